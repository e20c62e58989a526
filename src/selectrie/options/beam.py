"""Options of a beam search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef, words
from selectrie.options.argument_names import named_fields
from selectrie.options.checks import Bounds, Names, callback, check_options, option

BEAM_TERMINATORS = ("auto", "none", "eog", "unless-continued")
MAX_PENALTY = 16
"""Largest exponent of the length.

The largest `max_tokens`, 2^63, to this power is still a float.
"""


@named_fields
@dataclass(frozen=True, slots=True)
class BeamSearchParams:
    """Options of a beam search.

    Attributes:
        width: Number of unfinished texts kept at every step. Finished texts do not
            count.
        n: Maximum number of texts returned, best first.
        max_tokens: Maximum number of tokens of a path.
        length_penalty: Exponent of the number of tokens, by which a log-probability is
            divided for the score; 0 is the joint itself. At most 16.
        diversity: Nats subtracted from a token's rank score in a group for each time
            that earlier groups chose it at the same step. This is the Hamming diversity
            of Vijayakumar et al. (2016).
        groups: Number of groups of equal width into which the beam is divided.
        canonical_only: Keep only the tokens that the tokenizer itself makes of a text;
            other spellings take no place. False allows any tokens.
        merge_equal_text: Add up the finished paths that spell one text. Otherwise the
            best of them represents it.
        exact: Find the n best for certain, by best-first search. Available for the
            joint only.
        budget_nodes: Maximum number of nodes evaluated; then the best so far are
            returned. None means as many as needed or, with `exact`, at most
            `GRAMMAR_NODES`.
        expand: Called from the model's thread for every kept path with a `PathView` and
            the most probable tokens that may follow, as `TokenScore`s, best first.
            Returns the ids to continue with, which the grammar must allow. With
            `canonical_only` they may have to be the tokenizer's own. None means all.
        terminator: What ends a text: "none", "eog" (the generation ends),
            "unless-continued" (no token follows that the grammar allows), or "auto". If
            a text of the grammar may continue to another one, "auto" is "eog" in a chat
            and "unless-continued" after other prompts; else it is "none".
        incomplete: Always return the paths that `max_tokens` or the budget broke off.
            Otherwise they are returned only if nothing was finished.
    """

    width: int = option(8, Bounds(1))
    n: int = option(1, Bounds(1))
    max_tokens: int = option(128, Bounds(1))
    length_penalty: float = option(
        0.0, Bounds(0, MAX_PENALTY, f"a number from 0 to {MAX_PENALTY} (0 = the joint itself)")
    )
    diversity: float = option(0.0, Bounds(0, remedy="nats, at least 0 (0 = groups are independent)"))
    groups: int = option(1, Bounds(1))
    canonical_only: bool = True
    merge_equal_text: bool = True
    exact: bool = False
    budget_nodes: int | None = option(None, Bounds(1, optional=True))
    expand: Callable[[Any, Any], Sequence[int]] | None = None
    terminator: str = option("auto", Names(BEAM_TERMINATORS))
    incomplete: bool = False

    def __post_init__(self) -> None:
        check_options(self)
        if self.width % self.groups:
            raise OptionError(
                "groups", self.groups, words("a divisor of `width={}`: groups are of equal width", self.width)
            )
        if self.diversity and self.groups == 1:
            remedy = words("only groups can differ; increase `groups`, or leave out `diversity`")
            raise IncompatibleOptionsError("diversity", OptionRef("groups", 1), remedy)
        callback("expand", self.expand, "a path and its tokens")
        if self.exact:
            self._check_exact()

    def _check_exact(self) -> None:
        for name, neutral in (("length_penalty", 0.0), ("groups", 1), ("expand", None)):
            if getattr(self, name) != neutral:
                remedy = "an exact search ranks by the joint; leave out one of them"
                raise IncompatibleOptionsError(name, OptionRef("exact", value=True), remedy)


DEFAULT_BEAM = BeamSearchParams()
