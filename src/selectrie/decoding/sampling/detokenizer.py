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

    A byte costs a step for each stop string that may begin or go on there, whatever the
    length of the strings.

    Args:
        stop: Byte strings; an empty one raises `OptionError`.
    """

    def __init__(self, stop: Sequence[bytes]) -> None:
        self._stops = tuple(dict.fromkeys(stop))
        if b"" in self._stops:
            raise OptionError("stop", b"", "stop strings that are not empty")
        self._matchers = [_Matcher(one) for one in self._stops]
        self._data = bytearray()
        self._n_passed = 0
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
        matchers = [one for one in self._matchers if one.n or one.stop[0] in piece]
        for end, byte in enumerate(piece if matchers else b"", len(self._data) - len(piece) + 1):
            complete = [one.stop for one in matchers if one.feed(byte)]
            if complete and not goes_on:
                self._stopped = max(complete, key=len)
                del self._data[end - len(self._stopped) :]
                return self.finish()
        return self._pass_on(len(self._data) - max((one.n for one in matchers), default=0))

    def finish(self) -> str:
        """End the stream and return the text held back for a possible stop string.

        Returns "" if the stream has already ended.
        """
        self._finished = True
        return self._pass_on(len(self._data))

    def _pass_on(self, end: int) -> str:
        """Return as text the bytes up to `end` that were not returned before.

        An incomplete character is left out.
        """
        new = bytes(self._data[self._n_passed : end])
        new = new[: len(new) - n_incomplete(new)]
        self._n_passed += len(new)
        return new.decode("utf-8", "replace")


class _Matcher:
    """Finds a stop string in a stream (Knuth, Morris and Pratt 1977).

    Borders of beginnings are found as these are reached, so a long stop string that is
    not met costs nothing.

    Attributes:
        stop: The stop string.
        n: Length of its longest beginning with which the stream ends, short of all.
    """

    def __init__(self, stop: bytes) -> None:
        self.stop, self.n = stop, 0
        self._borders = [0, 0]  # of each beginning: its longest proper end that begins it

    def feed(self, byte: int) -> bool:
        """Take a byte; return whether the stop string is complete with it."""
        n = self._longer(self.n, byte)
        if n == len(self._borders):
            self._borders.append(self._longer(self._borders[n - 1], byte))
        is_complete = n == len(self.stop)
        self.n = self._borders[n] if is_complete else n
        return is_complete

    def _longer(self, n: int, byte: int) -> int:
        """Return how much of the stop string ends `n` bytes of it and one more byte."""
        while n and self.stop[n] != byte:
            n = self._borders[n]
        return n + (self.stop[n] == byte)


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
