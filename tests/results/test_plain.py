"""Tests of the writer of records as values of JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from selectrie.results.plain import fields_of


@dataclass(frozen=True)
class Inner:
    low: float
    pair: tuple[float, ...]


@dataclass(frozen=True)
class Outer:
    n: int = 3
    piece: bytes = b"a\xff"
    inner: tuple[Inner, ...] = (Inner(-math.inf, (0.5, math.nan)),)
    by_name: dict[str, Inner] = field(default_factory=lambda: {"x": Inner(1.0, ())})
    no_text: str = ""
    no_items: tuple[int, ...] = ()
    nothing: float | None = None
    zero: float = 0.0
    is_so: bool = False


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("n is_so", {"n": 3, "is_so": False}),
        ("is_so count=n", {"is_so": False, "count": 3}),
        ("piece", {"piece": "a\ufffd", "bytes": [97, 255]}),
        ("text=piece", {"text": "a\ufffd", "text_bytes": [97, 255]}),
        ("inner", {"inner": [{"low": None, "pair": [0.5, None]}]}),
        ("by_name", {"by_name": {"x": {"low": 1.0, "pair": []}}}),
        ("no_text? no_items? nothing?", {}),
        ("no_text no_items nothing", {"no_text": "", "no_items": [], "nothing": None}),
        ("zero? is_so? kept=n?", {"zero": 0.0, "is_so": False, "kept": 3}),
        ("", {}),
    ],
)
def test_fields_are_written_in_the_order_of_their_names(names, expected):
    """`key=name` calls a field `key`; `name?` leaves out None, an empty text and an empty tuple, but neither 0 nor false."""
    written = fields_of(Outer(), names)
    assert list(written.items()) == list(expected.items())
