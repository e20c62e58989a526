"""Options for scoring a text over all token sequences that spell it."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.errors import IncompatibleOptionsError, OptionRef, words
from selectrie.options.argument_names import named_fields
from selectrie.options.checks import Bounds, Names, check_options, option

TOKENIZATIONS = ("canonical", "all")
SPELLING_EVENTS = ("auto", "ends", "begins")
SPELLING_ROWS = 64
"""Rows that are read for each row of the canonical spelling if no budget is given."""
MAX_SPELLING_ROWS = 4096
"""Maximum number of rows that are read for the bounds of a text without a budget."""


@named_fields
@dataclass(frozen=True, slots=True)
class SpellingParams:
    """The spellings of a text that are counted, and how many rows that may take.

    Attributes:
        tokenizations: What is counted: "canonical" for the tokenizer's own encoding, or
            "all" for every token sequence that spells the text.
        event: What is counted with "all": "ends" (the tokens spell the text, and an
            end-of-generation token follows), "begins" (the bytes begin with the text)
            or "auto" ("ends" if the model has such a token).
        budget_nodes: Maximum number of rows to read for the bounds; by default 64 for
            each row of the canonical spelling, up to 4096. These are `SPELLING_ROWS`
            and `MAX_SPELLING_ROWS`. The canonical spelling is read in any case.
    """

    tokenizations: str = option("canonical", Names(TOKENIZATIONS))
    event: str = option("auto", Names(SPELLING_EVENTS))
    budget_nodes: int | None = option(None, Bounds(1, optional=True))

    def __post_init__(self) -> None:
        check_options(self)
        for name, value, default in (("event", self.event, "auto"), ("budget_nodes", self.budget_nodes, None)):
            if self.tokenizations == "canonical" and value != default:
                remedy = words("only the sum over all spellings has it: set `tokenizations='all'`")
                raise IncompatibleOptionsError(name, OptionRef("tokenizations", "canonical"), remedy)
