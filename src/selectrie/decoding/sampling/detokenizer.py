"""Turns bytes of drawn tokens into text that may be shown now.

It handles stop strings, holds text back, and keeps UTF-8 characters whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from selectrie.errors import OptionError, ProtocolError

_LENGTHS = {0xC: 2, 0xD: 2, 0xE: 3, 0xF: 4}
"""Bytes of a character by the upper half of its first byte."""
_SECOND = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}
"""Second bytes that have a narrower range than 80..BF (Unicode 15, table 3-7)."""


class IncrementalDetokenizer:
    """Turns a byte stream into text, and ends it before the first stop string.

    The emitted text depends only on the bytes fed so far, never on how they were cut
    into pieces:

    * The stream ends where a stop string is first **complete** (of "abcd" and "bc" in
      `abcd`, that is "bc"). If several are complete at that byte, the longest one
      counts. Neither that stop string nor anything after it is text. A stop string that
      is complete within bytes that were fed with `goes_on` is text.
    * Held back are the longest end of the stream that begins a stop string and, before
      it, an incomplete UTF-8 character.
    * Bytes that are not UTF-8 become U+FFFD as in `bytes.decode("utf-8", "replace")`:
      one for each maximal part of a character (Unicode 15, section 3.9, "U+FFFD
      substitution of maximal subparts").
    * An incomplete character before the stop string, or at the end, is not text.

    The cost of a piece is, for each stop string, its length plus that of the longest
    stop string.

    Args:
        stop: Byte strings; an empty one raises `OptionError`.
    """

    def __init__(self, stop: Sequence[bytes]) -> None:
        self._stops = tuple(dict.fromkeys(stop))
        if b"" in self._stops:
            raise OptionError("stop", b"", "stop strings that are not empty")
        self._beginnings = frozenset(s[:n] for s in self._stops for n in range(1, len(s)))
        self._longest = max(map(len, self._stops), default=1) - 1
        self._data = bytearray()
        self._n_passed = self._n_free = 0
        self._finished = False
        self._stopped: bytes | None = None

    @property
    def stopped(self) -> bytes | None:
        """Return the stop string that ended the stream, or None."""
        return self._stopped

    @property
    def data(self) -> bytes:
        """Return all bytes before the stop string, including those held back."""
        return bytes(self._data)

    def feed(self, piece: bytes, *, goes_on: bool = False) -> str:
        """Add bytes and return the text that may be emitted now, often "".

        With `goes_on`, no stop string that is complete so far ends the stream. Raises
        `ProtocolError` after the end.
        """
        if self._finished:
            raise ProtocolError("fed bytes after the end of the text")
        self._data += piece
        if goes_on:
            self._n_free = len(self._data)
        first = self._first_stop()
        if first is None:
            return self._pass_on(len(self._data) - self._n_held())
        end, self._stopped = first
        del self._data[end - len(self._stopped) :]
        self._finished = True
        return self._pass_on(len(self._data))

    def finish(self) -> str:
        """End the stream and return the text held back for a possible stop string.

        Returns "" if the stream has already ended.
        """
        self._finished = True
        return self._pass_on(len(self._data))

    def _first_stop(self) -> tuple[int, bytes] | None:
        """Return the end of the first complete stop string, and the string.

        It begins in the bytes that are held back, or after them.
        """
        complete = []
        for stop in self._stops:
            start = self._data.find(stop, max(self._n_passed, self._n_free - len(stop) + 1))
            if start >= 0:
                complete.append((start + len(stop), -len(stop), stop))
        if not complete:
            return None
        end, _, stop = min(complete)
        return end, stop

    def _n_held(self) -> int:
        """Return how many bytes at the end are the beginning of a stop string."""
        for n in range(min(self._longest, len(self._data) - self._n_passed), 0, -1):
            if bytes(self._data[-n:]) in self._beginnings:
                return n
        return 0

    def _pass_on(self, end: int) -> str:
        """Return as text the bytes up to `end` that were not returned before.

        An incomplete character is left out.
        """
        new = bytes(self._data[self._n_passed : end])
        new = new[: len(new) - n_incomplete(new)]
        self._n_passed += len(new)
        return new.decode("utf-8", "replace")


def n_incomplete(data: bytes) -> int:
    """Return how many bytes at the end begin a character and lack the rest of it.

    Python's incremental decoder would also keep the beginning of a surrogate, which
    cannot become a character.
    """
    for n in range(1, min(3, len(data)) + 1):
        lead = data[-n]
        if lead >= 0xC0:
            lacks = n < (_LENGTHS[lead >> 4] if 0xC2 <= lead <= 0xF4 else 0)
            low, high = _SECOND.get(lead, (0x80, 0xBF))
            return n if lacks and (n == 1 or low <= data[1 - n] <= high) else 0
        if lead < 0x80:
            return 0
    return 0
