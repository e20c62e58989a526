"""Text that records which of its characters a chat template wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from functools import wraps
from itertools import groupby
from typing import Any, SupportsIndex

from selectrie.errors import OptionError, of_value

TEMPLATE, VALUE, MIXED = range(3)
"""Origin of a character: the template, a message or argument, or unknown (either)."""
_LINE_END = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")


class TrackedText(str):
    """Text with the origin of each character.

    Slicing, splitting, trimming and joining keep the origins. A plain `str` that is
    combined with tracked text gets the origin MIXED, so text of unknown origin never
    passes for the template's own. Conversions give the same characters as those of
    `str`, so a template behaves as it does on plain text. The class has no public
    attribute that `str` lacks, because templates can read attributes.

    >>> text = TrackedText("<user>", TEMPLATE) + TrackedText(" Hi ").strip() + "!"
    >>> spans_of(text)
    [('<user>', 0), ('Hi', 1), ('!', 2)]
    """

    __slots__ = ("_origins",)
    _origins: bytes

    def __new__(cls, text: str, origins: bytes | int = VALUE) -> TrackedText:  # noqa: PYI034 - not subclassed
        """Create the text; `origins` has one origin per character, or one for all."""
        self = super().__new__(cls, text)
        self._origins = bytes([origins]) * len(text) if isinstance(origins, int) else origins
        return self

    def __str__(self) -> str:
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> TrackedText:
        text = super().__getitem__(key)
        if isinstance(key, slice):
            return TrackedText(text, self._origins[key])
        return TrackedText(text, self._origins[key.__index__()])

    def __iter__(self) -> Iterator[TrackedText]:
        return map(TrackedText, super().__iter__(), self._origins)

    def __add__(self, other: object) -> TrackedText:
        return join_texts([self, other]) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: object) -> TrackedText:
        return join_texts([other, self]) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> TrackedText:
        return TrackedText(super().__mul__(count), self._origins * count.__index__())

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> TrackedText:
        return derive_origins(super().__mod__(values), [self, values])

    def strip(self, chars: str | None = None, /) -> TrackedText:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> TrackedText:
        return self[len(self) - len(super().lstrip(chars)) :]

    def rstrip(self, chars: str | None = None, /) -> TrackedText:
        return self[: len(super().rstrip(chars))]

    def removeprefix(self, prefix: str, /) -> TrackedText:
        return self[len(self) - len(super().removeprefix(prefix)) :]

    def removesuffix(self, suffix: str, /) -> TrackedText:
        return self[: len(super().removesuffix(suffix))]

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[TrackedText]:  # type: ignore[override]
        return self._locate_parts(super().split(sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[TrackedText]:  # type: ignore[override]
        return self._locate_parts(super().rsplit(sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[TrackedText]:  # type: ignore[override] # noqa: FBT001, FBT002
        lines = self._locate_parts(super().splitlines(keepends=True), "")
        return lines if keepends else [line[: len(_LINE_END.split(line)[0])] for line in lines]

    def _locate_parts(self, parts: Iterable[str], sep: str | None) -> list[TrackedText]:
        """Return consecutive parts of this text with their origins.

        `sep` is the text between the parts; None means white space.
        """
        located, at = [], 0
        for part in parts:
            start = self.find(part, at)
            located.append(self[start : start + len(part)])
            at = start + len(part) + len(sep or "")
        return located

    def partition(self, sep: str, /) -> tuple[TrackedText, TrackedText, TrackedText]:
        before, middle, after = self._locate_parts(super().partition(sep), "")
        return before, middle, after

    def rpartition(self, sep: str, /) -> tuple[TrackedText, TrackedText, TrackedText]:
        before, middle, after = self._locate_parts(super().rpartition(sep), "")
        return before, middle, after

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> TrackedText:
        """Return the text with `old` replaced by `new`, which keeps its origins."""
        if old:
            return join_texts(self.split(old, count), new)
        n_positions = len(self) + 1 if count.__index__() < 0 else min(count.__index__(), len(self) + 1)
        last = max(n_positions - 1, 0)
        pieces = [piece for character in self[:last] for piece in (new, character)]
        return join_texts([*pieces, new if n_positions else "", self[last:]])

    def join(self, pieces: Iterable[str], /) -> TrackedText:
        return join_texts(pieces, self)


def _derive_result(method: Callable[..., str]) -> Callable[..., TrackedText]:
    """Wrap a `str` method so that its result gets origins by `derive_origins`."""

    @wraps(method)
    def computed(self: TrackedText, *args: Any, **kwargs: Any) -> TrackedText:
        return derive_origins(method(self, *args, **kwargs), [self, *args, *kwargs.values()])

    return computed


for _changes in (str.capitalize, str.casefold, str.lower, str.swapcase, str.title, str.translate, str.upper):
    setattr(TrackedText, _changes.__name__, _derive_result(_changes))
for _pads in (str.center, str.expandtabs, str.ljust, str.rjust, str.zfill):
    setattr(TrackedText, _pads.__name__, _derive_result(_pads))


def spans_of(text: TrackedText) -> list[tuple[str, int]]:
    """Return the text as pairs (plain text, origin), one for each run of one origin."""
    spans, start = [], 0
    for origin, run in groupby(text._origins):
        stop = start + len(list(run))
        spans.append((str.__getitem__(text, slice(start, stop)), origin))
        start = stop
    return spans


def join_texts(pieces: Iterable[str], separator: str = "") -> TrackedText:
    """Return `separator.join(pieces)` with the origin of every character."""
    pieces = list(pieces)
    return TrackedText(str.join(separator, pieces), _origins(separator).join(map(_origins, pieces)))


def _origins(text: str) -> bytes:
    """Return the origin of each character; MIXED for text that is not tracked."""
    return text._origins if type(text) is TrackedText else bytes([MIXED]) * len(text)


def derive_origins(text: str, sources: Iterable[object]) -> TrackedText:
    """Return `text`, which was computed from `sources`, with their common origin.

    If every text in `sources` comes from the template, or there is none (only
    numbers), all of `text` is TEMPLATE. If every one is a value, all of it is
    VALUE. Otherwise `text` keeps its own origins.
    """
    kinds = set(b"".join(map(_origins, texts_in([*sources]))))
    if kinds <= {TEMPLATE}:
        return TrackedText(text, TEMPLATE)
    return TrackedText(text, VALUE if kinds == {VALUE} else _origins(text))


def texts_in(value: object) -> Iterator[str]:
    """Yield every text within mappings, lists and the like, keys included.

    Any other object that is not a number, a boolean or None yields one mixed text.
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from texts_in(value.items())
    elif isinstance(value, list | tuple | set | frozenset | KeysView | ValuesView | ItemsView):
        for item in value:
            yield from texts_in(item)
    elif value is not None and type(value) not in (bool, int, float):
        yield TrackedText("?", MIXED)


def track(value: Any, name: str) -> Any:
    """Return the same value with every text in it tracked as a value.

    Raises `OptionError` with `name` for anything but text, a number, a boolean, None,
    or a list or mapping of these. The text that another object writes about itself
    could not be distinguished from the template's own text.
    """
    if isinstance(value, str):
        return TrackedText(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {track(key, name): track(item, f"{name}[{of_value(key)}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [track(item, f"{name}[{i}]") for i, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    raise OptionError(name, value, "text, a number, a boolean, None, or a list or mapping of these")


def match_trimmed(text: str, written: Sequence[str], said: Sequence[str]) -> TrackedText | None:
    """Split `text` into the template's pieces and the messages' texts, with origins.

    Returns None if `text` is not `written[0] said[0] written[1] ... written[n]`,
    where each text of `said` may be trimmed at the left, at the right, at both ends
    or not at all.

    Args:
        written: The pieces that a template wrote, one more than `said`.
        said: The messages' texts between them.
    """
    written = [TrackedText(piece, TEMPLATE) for piece in written]
    ends: dict[int, list[str]] = {0: []}  # possible ends of the pieces so far, with the pieces
    for before, value in zip(written, [*said, ""], strict=True):
        ends = {at + len(before): [*read, before] for at, read in ends.items() if text.startswith(before, at)}
        ways = [TrackedText(way) for way in (value, value.strip(), value.rstrip(), value.lstrip())]
        ends = {at + len(way): [*read, way] for at, read in ends.items() for way in ways if text.startswith(way, at)}
    return join_texts(ends[len(text)]) if len(text) in ends else None
