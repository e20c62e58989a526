"""Defines the options of generation other than sampling and stopping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selectrie.errors import IncompatibleOptionsError, OptionError
from selectrie.options import MAX_TEXTS, at_least, flag, texts, token_ids
from selectrie.options.arguments import named_fields
from selectrie.options.checks import DEADLINE, listed, text_of

if TYPE_CHECKING:
    from selectrie.grammar import Grammar


@named_fields
@dataclass(frozen=True, slots=True)
class GenerationParams:
    """Options of generation other than sampling and stopping.

    Attributes:
        best_of: Number of sequences drawn after each prompt, of which the `n` most
            probable are returned, best first.
        choices: The only texts that may be generated, chosen token by token among those
            that are left (`select` decides by the whole text). Any iterable that
            `select` takes but a mapping.
        grammar: A grammar whose texts are the only ones that may be generated, also
            token by token. A text that `max_tokens` breaks off ends with "length". A
            type, or the dict of a JSON Schema, is read as one.
        heal: Whether prompt tokens that the continuation may change are taken back. The
            first tokens drawn then spell their bytes, so that the text may go on within
            the prompt's last word. These bytes are not part of the text, and tokens
            that spell nothing else do not count for `max_tokens`.
        n_alternatives: Number of most probable tokens recorded at every step.
        named: Ids of tokens whose log-probabilities are recorded at every step.
        priority: Requests with a higher priority go first.
        deadline_s: Seconds from now after which a sequence ends with the text it has;
            None for no deadline.
    """

    best_of: int | None = None
    choices: Sequence[str] | None = None
    grammar: Grammar | None = None
    heal: bool = False
    n_alternatives: int = 0
    priority: int = 0
    deadline_s: float | None = None
    named: Sequence[int] = ()

    def __post_init__(self) -> None:
        at_least("best_of", self.best_of, 1, max_value=MAX_TEXTS)
        if self.choices is not None:
            given = self.choices
            values = listed(given, lambda allowed: OptionError("choices", given, allowed))
            written = [one if text is None else text for one, text in zip(values, map(text_of, values), strict=True)]
            object.__setattr__(self, "choices", texts("choices", written))
            if not self.choices:
                raise OptionError("choices", self.choices, "at least one text, or None")
        if self.grammar is not None:
            from selectrie.grammar import read_grammar  # imported on first use, as only grammars need it

            object.__setattr__(self, "grammar", read_grammar(self.grammar))
        if self.grammar is not None and self.choices is not None:
            raise IncompatibleOptionsError("choices", "a grammar", "give one of the two")
        flag("heal", self.heal)
        at_least("n_alternatives", self.n_alternatives, 0, optional=False)
        object.__setattr__(self, "named", token_ids("named", self.named))
        if type(self.priority) is not int:
            raise OptionError("priority", self.priority, "a whole number")
        if self.deadline_s is not None:
            DEADLINE.check("deadline_s", self.deadline_s)


DEFAULT_GENERATING = GenerationParams()
