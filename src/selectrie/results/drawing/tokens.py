"""Draws texts as their tokens, tinted and underlined by how improbable each one was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from selectrie.core.notation import cells_of, count, cut, percent, show_bytes, write_logp
from selectrie.results.drawing.shapes import CELL, Drawing, Item, Shape, rect, text, titles

WIDTH = 720.0
MAX_TOKENS = 200
"""Maximum number of tokens that are drawn."""
_LINE, _TOP, _MAX_CELLS = 26.0, 8.0, 40
_LEVELS = (0.9, 0.5, 0.1, 0.01)
"""Probabilities below which a token is tinted one step more."""


class TokenLike(Protocol):
    """The attributes of a `TokenScore` that are drawn."""

    @property
    def id(self) -> int: ...
    @property
    def piece(self) -> bytes: ...
    @property
    def logp(self) -> float: ...
    @property
    def spelling(self) -> str: ...
    @property
    def label(self) -> str: ...


@dataclass(frozen=True, slots=True)
class TokenText:
    """A text as tokens.

    Attributes:
        tokens: The tokens.
        head: A line above the text; "" for none.
        alternatives: Other probable tokens at each position, if known.
    """

    tokens: Sequence[TokenLike]
    head: str = ""
    alternatives: Sequence[Sequence[TokenLike]] = ()


def draw_tokens(
    texts: Sequence[TokenText], *, tolerance: float, title: str = "The tokens and their probabilities"
) -> Drawing:
    """Return the drawing of texts as tokens, in lines that are as long as fits.

    `tolerance` is that of the probabilities, as for `percent`.
    """
    shapes: list[Shape] = []
    items: list[Item] = []
    y, left = _TOP, MAX_TOKENS
    for part in texts:
        if part.head:
            shapes.append(text(8, y + 16, part.head, "soft"))
            y += _LINE
        x, children = 8.0, []
        for at, token in enumerate(part.tokens[:left]):
            item = _describe(token, part.alternatives[at] if at < len(part.alternatives) else (), tolerance)
            label = cut(_label(token), _MAX_CELLS)
            width = cells_of(label) * CELL + 4
            if x + width > WIDTH - 8 and x > 8:
                x, y = 8.0, y + _LINE
            shapes.append(_draw_token(token, label, item, (x, y, width)))
            x += width + 2
            children.append(item)
        y += _LINE + 4
        hidden, left = len(part.tokens) - len(children), left - len(children)
        if hidden > 0:
            shapes.append(text(8, y + 12, f"… {count(hidden, 'more token')}", "soft"))
            y += _LINE
        items.append(Item(part.head or title, children=tuple(children)))
    ground = rect(0, 0, WIDTH, y + 4, "ground")
    return Drawing(WIDTH, y + 4, title, (ground, *shapes), tuple(items))


def _label(token: TokenLike) -> str:
    """Return the visible text of a token, or the name of a control token."""
    return show_bytes(token.piece) or token.spelling or "control token"


def _draw_token(token: TokenLike, label: str, item: Item, place: tuple[float, float, float]) -> Shape:
    """Return a token in its tint; the line below is thick if it was improbable."""
    x, y, width = place
    p = 1.0 if math.isnan(token.logp) else math.exp(min(0.0, token.logp))
    level = sum(p < bound for bound in _LEVELS)
    shapes = [rect(x, y, width, 20, f"tint{level}", radius=2), text(x + 2, y + 14.5, label, "data")]
    if level:
        shapes.append(rect(x, y + 20, width, level, "bar", "alt"))
    return Shape("g", {}, "", (*titles(item.words), *shapes))


def _describe(token: TokenLike, alternatives: Sequence[TokenLike], tolerance: float) -> Item:
    """Return the outline of a token, with those that were probable in its place."""
    others = [other for other in alternatives if other.id != token.id]
    children = tuple(Item(f"‹{_label(other)}›", _numbers(other, tolerance), ("instead",)) for other in others)
    return Item(f"‹{_label(token)}›", _numbers(token, tolerance), (), None, children)


def _numbers(token: TokenLike, tolerance: float) -> tuple[tuple[str, float | None, str], ...]:
    """Return the numbers of a token for an outline."""
    if math.isnan(token.logp):
        return (("probability", None, "not known"),)
    p = math.exp(min(0.0, token.logp))
    return ("probability", p, percent(p, tolerance)), ("log-probability", token.logp, write_logp(token.logp, tolerance))
