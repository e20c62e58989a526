"""Text that remembers which of its characters a chat template wrote."""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from itertools import groupby
from typing import Any, SupportsIndex

from selectrie.errors import OptionError

TEMPLATE, VALUE, MIXED = range(3)
"""Who wrote a character: the template, a message or argument, or a computation on texts of both."""
_LINE_END = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")


class TrackedText(str):
    """Text with the origin of each character, which slicing, splitting, trimming and joining keep.

    Methods that are not overridden here give plain text; `derived` says what it comes from. The conversions are those of `str`,
    so a template behaves as it does on plain text. Nothing public is added to `str`, for templates read attributes.

    >>> text = "<user>" + TrackedText(" Hi ").strip() + "</user>"
    >>> spans_of(text)
    [('<user>', 0), ('Hi', 1), ('</user>', 0)]
    """

    __slots__ = ("_origins",)
    _origins: bytes

    def __new__(cls, text: str, origins: bytes | int = VALUE) -> TrackedText:  # noqa: PYI034 - it is never subclassed
        """origins: one for each character, or one for all."""
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
        return joined([self, other]) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: object) -> TrackedText:
        return joined([other, self]) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> TrackedText:
        return TrackedText(super().__mul__(count), self._origins * count.__index__())

    __rmul__ = __mul__

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
        return self._located(super().split(sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[TrackedText]:  # type: ignore[override]
        return self._located(super().rsplit(sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[TrackedText]:  # type: ignore[override] # noqa: FBT001, FBT002 - of str
        lines = self._located(super().splitlines(keepends=True), "")
        return lines if keepends else [line[: len(_LINE_END.split(line)[0])] for line in lines]

    def _located(self, parts: Iterable[str], sep: str | None) -> list[TrackedText]:
        """Consecutive parts with the origins they have here. sep: what stands between them; None: white space."""
        located, at = [], 0
        for part in parts:
            start = self.find(part, at)
            located.append(self[start : start + len(part)])
            at = start + len(part) + len(sep or "")
        return located

    def partition(self, sep: str, /) -> tuple[TrackedText, TrackedText, TrackedText]:
        before, middle, after = self._located(super().partition(sep), "")
        return before, middle, after

    def rpartition(self, sep: str, /) -> tuple[TrackedText, TrackedText, TrackedText]:
        before, middle, after = self._located(super().rpartition(sep), "")
        return before, middle, after

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> TrackedText:
        if old:
            return joined(self.split(old, count), new)
        n_places = len(self) + 1 if count.__index__() < 0 else min(count.__index__(), len(self) + 1)
        last = max(n_places - 1, 0)
        pieces = [piece for character in self[:last] for piece in (new, character)]
        return joined([*pieces, new if n_places else "", self[last:]])

    def join(self, pieces: Iterable[str], /) -> TrackedText:
        return joined(pieces, self)


def spans_of(text: TrackedText) -> list[tuple[str, int]]:
    """Return the longest pieces of one origin, as plain text."""
    spans, start = [], 0
    for origin, run in groupby(text._origins):
        stop = start + len(list(run))
        spans.append((str.__getitem__(text, slice(start, stop)), origin))
        start = stop
    return spans


def joined(pieces: Iterable[str], separator: str = "") -> TrackedText:
    """`separator.join(pieces)`, every character with its origin. Plain `str` is the template's, any other kind of text mixed."""
    pieces = list(pieces)
    return TrackedText(str.join(separator, pieces), _origins(separator).join(map(_origins, pieces)))


def _origins(text: str) -> bytes:
    if type(text) is TrackedText:
        return text._origins
    return bytes([TEMPLATE if type(text) is str else MIXED]) * len(text)


def derived(text: str, sources: Iterable[object]) -> str:
    """Text that some computation made of its sources: plain where these are the template's alone, else tracked as a whole.

    It is a value where it was made of values alone (and of numbers), else mixed.
    """
    kinds = set(b"".join(map(_origins, texts_in([*sources]))))
    if not kinds - {TEMPLATE}:
        return text
    return TrackedText(text, VALUE if kinds == {VALUE} else MIXED)


def texts_in(value: object) -> Iterator[str]:
    """Every text within mappings, lists and their like, keys included; mixed text in place of any other object but a number."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from texts_in(value.items())
    elif isinstance(value, list | tuple | set | frozenset | KeysView | ValuesView | ItemsView):
        for item in value:
            yield from texts_in(item)
    elif value is not None and not isinstance(value, int | float):
        yield TrackedText("?", MIXED)


def tracked(value: Any, name: str) -> Any:
    """The same value, every text in it tracked as a value.

    Raises `OptionError` with `name` for what is neither text, number, boolean, None, nor a list or mapping of these: what such an
    object writes about itself could not be told from the template's own text.
    """
    if isinstance(value, str):
        return TrackedText(str.__str__(value))
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {tracked(key, name): tracked(item, f"{name}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([tracked(item, f"{name}[{i}]") for i, item in enumerate(value)])
    raise OptionError(name, value, "text, a number, a boolean, None, or a list or mapping of these")


def trimmed_to(text: str, written: Sequence[str], said: Sequence[str]) -> TrackedText | None:
    """Return `text` as what a template wrote, with what is said between, each trimmed at either end or not; None where it differs.

    written: one more than said.
    """
    ends: dict[int, list[str]] = {0: []}  # where the pieces so far may end, and how they read
    for before, value in zip(written, [*said, ""], strict=True):
        ends = {at + len(before): [*read, before] for at, read in ends.items() if text.startswith(before, at)}
        ways = [TrackedText(way) for way in (value, value.strip(), value.rstrip(), value.lstrip())]
        ends = {at + len(way): [*read, way] for at, read in ends.items() for way in ways if text.startswith(way, at)}
    return joined(ends[len(text)]) if len(text) in ends else None
