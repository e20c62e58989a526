"""How a beam search goes on, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from selectrie.errors import OptionError
from selectrie.options.checks import at_least, callback, flag, number, one_of

BEAM_TERMINATORS = ("auto", "none", "eog")
MOST_PENALTY = 16
"""Of the length: as many tokens as `max_tokens` takes, 2^63, to this power are still a float."""


@dataclass(frozen=True, slots=True)
class Beam:
    """How a beam search goes on, and what it gives.

    width: unfinished texts kept at every step; finished ones take no place among them. n: most texts given, best first.
    max_tokens: longest path. length_penalty: score = logp / n_tokens ** length_penalty, 0 = the joint itself, at most 16.
    groups, diversity: the beam is cut into groups of equal width; at every step, `diversity` nats are taken off a token's
    place in a group's order for each time that earlier groups chose it at that step (Vijayakumar et al. 2016, Hamming).
    canonical_only: only the tokens that the tokenizer itself makes of a text; other spellings take no place. False: any
    tokens. merge_equal_text: the finished paths that spell one text are added up; else the best of them stands for it.
    exact: the n best for certain, by best-first search; for the joint alone. budget_nodes: most nodes evaluated, then the
    best so far; None: as many as it takes, with `exact` at most `GRAMMAR_NODES`. terminator: "none", "eog", or "auto": "eog" where a text of the grammar may go on to another one.
    incomplete: give the paths that `max_tokens` or the budget broke off too; else only where nothing was finished.
    expand: called for every kept path with a `PathView` and the most probable tokens that may follow, as `TokenScore`s, best
    first, from the model's thread; returns the ids to go on with, which the grammar must allow. None: all of them.
    """

    width: int = 8
    n: int = 1
    max_tokens: int = 128
    length_penalty: float = 0.0
    diversity: float = 0.0
    groups: int = 1
    canonical_only: bool = True
    merge_equal_text: bool = True
    exact: bool = False
    budget_nodes: int | None = None
    expand: Callable[[Any, Any], Sequence[int]] | None = None
    terminator: str = "auto"
    incomplete: bool = False

    def __post_init__(self) -> None:
        for name in ("width", "n", "max_tokens", "groups"):
            at_least(name, getattr(self, name), 1, optional=False)
        at_least("budget_nodes", self.budget_nodes, 1)
        remedy = f"a number from 0 to {MOST_PENALTY} (0 = the joint itself)"
        number("length_penalty", self.length_penalty, least=0, most=MOST_PENALTY, remedy=remedy)
        number("diversity", self.diversity, least=0, remedy="nats, at least 0 (0 = groups do not mind each other)")
        one_of("terminator", self.terminator, BEAM_TERMINATORS)
        for name in ("canonical_only", "merge_equal_text", "exact", "incomplete"):
            flag(name, getattr(self, name))
        if self.width % self.groups:
            raise OptionError("groups", self.groups, f"a divisor of width={self.width}: groups are of equal width")
        if self.diversity and self.groups == 1:
            raise OptionError("diversity", self.diversity, "0 unless there are several groups to differ")
        callback("expand", self.expand, "a path and its tokens")
        if self.exact:
            self._check_exact()

    def _check_exact(self) -> None:
        for name, neutral in (("length_penalty", 0.0), ("groups", 1), ("expand", None)):
            if getattr(self, name) != neutral:
                raise OptionError(name, getattr(self, name), f"{neutral} beside exact=True, which is about the joint")


DEFAULT_BEAM = Beam()
