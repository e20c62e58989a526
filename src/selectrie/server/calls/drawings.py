"""Drawings that an answer of our own calls has on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from selectrie.engine.engine import Engine
from selectrie.errors import RequestError
from selectrie.grammar import Grammar
from selectrie.options import DEFAULT_PROMPTING, DEFAULT_SEARCH, BeamSearchParams, SearchParams
from selectrie.results import BeamResult, Page, SampledChoice, Selection
from selectrie.results.drawing.beams import draw_beam
from selectrie.results.drawing.choices import draw_selection
from selectrie.results.drawing.pieces import MAX_CHOICES, why_no_strip

MAX_FOLDED = 1000
"""Maximum number of nodes that a request folds."""
_EXAMPLES = BeamSearchParams(width=8, n=8, max_tokens=4, incomplete=True, canonical_only=False)
"""The search for texts that the model would write instead of the choices."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A result with what its drawings need besides.

    Attributes:
        result: The result.
        examples: Probable texts of any kind after the prompt, or None.
    """

    result: Selection | BeamResult | Page
    examples: BeamResult | None = None


def add_drawings(answer: dict[str, Any], drawn: Drawn, fold: Sequence[int]) -> dict[str, Any]:
    """Return the body of a response with drawings.

    Those of a page are in the records of its slots.

    Args:
        answer: The body without drawings, whose slots are changed.
        drawn: The result.
        fold: Numbers of the trie's nodes below which nothing is drawn.

    Raises:
        OptionError: If the trie has no node that is to be folded.
    """
    result = drawn.result
    if not isinstance(result, Page):
        return {**answer, "drawing": _draw(result, drawn.examples, fold)}
    for slot, fields in zip(result.slots, answer["slots"], strict=True):
        drawing = _draw(slot.record, None, ())
        if fields["record"] is not None and drawing is not None:
            fields["record"]["drawing"] = drawing
    return answer


def _draw(result: object, examples: BeamResult | None, fold: Sequence[int]) -> dict[str, object] | None:
    """Return the drawings of a result; None for one that has none."""
    if isinstance(result, SampledChoice):
        result = result.selection
    if isinstance(result, Selection):
        return draw_selection(result, examples, fold=fold)
    return draw_beam(result, fold=fold) if isinstance(result, BeamResult) else None


def score_all(arguments: dict[str, Any], texts: Sequence[str]) -> None:
    """Let a call score every choice of a list if a strip has a piece for each.

    Args:
        arguments: The arguments of the call, which are changed.
        texts: The choices; none if they are those of a grammar that is searched.
    """
    search: SearchParams | None = arguments.get("search")
    if 0 < len(texts) <= MAX_CHOICES and (search is None or search.stop == DEFAULT_SEARCH.stop):
        arguments["search"] = replace(search or DEFAULT_SEARCH, stop="all")


def find_examples(engine: Engine, result: object, arguments: Mapping[str, Any]) -> BeamResult | None:
    """Return the texts that the model would most likely write, of four tokens at most.

    They are None for results that are not drawn as a strip, and if nothing was found.
    The prompt is joined to them as to the choices, so its end is healed only if it was.

    Args:
        engine: The engine.
        result: The result that is drawn.
        arguments: The arguments of the call that gave it.
    """
    if not isinstance(result, Selection) or why_no_strip(result):
        return None
    prompting = replace(arguments.get("prompting", DEFAULT_PROMPTING), delimiter="")
    if not result.healed:
        prompting = replace(prompting, boundary="split")
    with suppress(RequestError):
        return engine.beam_search(arguments["prompt"], _any_text(), beam=_EXAMPLES, prompting=prompting)
    return None


@lru_cache(1)
def _any_text() -> Grammar:
    """Return the grammar of all texts on one line."""
    return Grammar.from_regex(r"[^\n]{1,80}")
