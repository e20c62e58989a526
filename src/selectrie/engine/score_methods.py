"""The method of an engine that scores one text.

It is apart from `Engine` because of its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from selectrie.core.model import ModelDescription
from selectrie.engine.aio import awaitable
from selectrie.engine.requests import select as select_requests
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.requests.session import Prepared
from selectrie.errors import OptionError
from selectrie.options import DEFAULT_PROMPTING, PromptParams, SpellingParams
from selectrie.options.argument_names import named_arguments
from selectrie.tokenization.prompts import Prompt

if TYPE_CHECKING:
    from selectrie.results import TextScore

R = TypeVar("R")


class _Runs(Protocol):
    """What the method needs of an engine."""

    def _run(self, prepare: Callable[[ModelDescription], Prepared[R]]) -> R: ...


class ScoreMethods:
    """Scores one text. `Engine` has this method."""

    __slots__ = ()

    @named_arguments
    def score(
        self: _Runs,
        prompt: Prompt,
        text: str,
        *,
        following: str = "",
        tokenizations: str = "canonical",
        event: str = "auto",
        budget_nodes: int | None = None,
        prompting: PromptParams = DEFAULT_PROMPTING,
    ) -> TextScore:
        """Return the log-probability of one text after a prompt, token by token.

        With `tokenizations="all"`, `TextScore.spellings` also bounds the probability of
        the text, summed over all token sequences that spell it.

        Args:
            prompt: Text, token ids, or chat messages.
            text: The text to score.
            following: The text after it. Its first tokens, up to a boundary, are scored
                too (terminator "text").
            tokenizations: "canonical" for the tokenizer's own encoding, or "all".
            event: What "all" counts. "ends": the text, and then the end of generation.
                "begins": whatever begins with the text. "auto" is "ends" if the model
                has an end-of-generation token.
            budget_nodes: Maximum number of rows that "all" reads for its bounds
                (`SpellingParams`).
            prompting: As in `select`.

        Raises:
            RequestError: If the request is invalid, before any model call.
            ModelError: If the model fails.
        """
        if not text:
            raise OptionError("text", text, "some text to score")
        params = SpellingParams(tokenizations, event, budget_nodes)
        options = SelectRequest(terminator="text" if following else "none", following=following, prompting=prompting)
        if params.tokenizations == "canonical":
            return self._run(lambda model: select_requests.prepare_score(model, prompt, text, options))
        from selectrie.engine.requests import spellings  # imported on first use

        return self._run(lambda model: spellings.prepare_text(model, prompt, text, options, params))

    ascore = awaitable(score)
