"""The prompts of a decision, as a caller may look at them or ask them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from selectrie.grammar import Grammar
from selectrie.options import PromptParams, SearchParams


@dataclass(frozen=True, slots=True)
class DecisionPrompt:
    """One prompt of a question: the arguments of the `select` that answers it.

    `llm.select(p.prompt, p.choices, …)` with the other fields under their names gives
    the selection behind the answer; with a grammar, its texts are followed by
    `following` there.

    Attributes:
        prompt: The page, or the messages of a chat.
        choices: The texts that are scored; None with a grammar.
        grammar: The grammar that was given in place of options, or None.
        terminator: The event that ends the answer.
        following: The text after the answer, or "".
        prior: Weights of the choices, or None.
        search: How the choices are evaluated.
        prompting: Options of the chat template.
        shown: What the model reads, with control tokens by their spelling.
        n_tokens: Number of tokens of the prompt.
        n_choice_tokens: Number of tokens of all choices together; 0 with a grammar.
    """

    prompt: str | tuple[Mapping[str, str], ...]
    choices: tuple[str, ...] | None
    grammar: Grammar | None
    terminator: str
    following: str
    prior: tuple[float, ...] | None
    search: SearchParams
    prompting: PromptParams
    shown: str
    n_tokens: int
    n_choice_tokens: int
