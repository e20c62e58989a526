"""The methods of an engine that read what a model makes of given prompts.

They are apart from `Engine` because of its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from selectrie.core.model import ModelDescription
from selectrie.engine.aio import awaitable
from selectrie.engine.requests.session import Prepared
from selectrie.options import DEFAULT_PROMPTING, PromptParams
from selectrie.options.argument_names import named_arguments
from selectrie.tokenization.prompts import Prompt

if TYPE_CHECKING:
    from selectrie.results import PromptLogprobs

R = TypeVar("R")


class _Runs(Protocol):
    """What the methods need of an engine."""

    def _run(
        self,
        prepare: Callable[[ModelDescription], Prepared[R]],
        *,
        priority: int = 0,
        deadline_s: float | None = None,
        keep_cached: bool = False,
    ) -> R: ...


class PromptMethods:
    """Reads the log-probabilities of prompts. `Engine` has these methods."""

    __slots__ = ()

    @named_arguments
    def prompt_logprobs(
        self: _Runs,
        prompts: Iterable[Prompt],
        *,
        top: int = 0,
        named: Sequence[int] = (),
        first: int = 1,
        prompting: PromptParams = DEFAULT_PROMPTING,
        priority: int = 0,
        deadline_s: float | None = None,
    ) -> list[PromptLogprobs]:
        """Return the log-probability of every token of each prompt.

        The prompts of one call share their prefixes, and what is cached is evaluated
        again only where its rows are read. Of a row nothing is kept but the values
        asked for.

        Args:
            prompts: Texts, token ids or chats. Ids are evaluated exactly as they are
                given: no BOS is added. A text or chat gets BOS if the model adds one,
                unless `prompting` says otherwise.
            top: Number of most probable tokens to return in place of each token.
            named: Ids of tokens whose log-probabilities to return in place of each
                token.
            first: Index of the first token whose row is read; at least 1, because
                nothing predicts the token 0. A prompt of no more tokens has no rows.
            prompting: Options for chats, control tokens and BOS.
            priority: Requests with a higher priority go first.
            deadline_s: Seconds from now after which the request ends with
                `DeadlineError`; None for no deadline.

        Returns:
            One result for each prompt, in their order.

        Raises:
            RequestError: If an option or a prompt is invalid or a prompt does not fit,
                before any model call. `SelectrieError.request` is its index.
            DeadlineError: If the deadline passes.
            ModelError: If the model fails.
        """
        from selectrie.engine.requests import prompt_logprobs as requests  # imported on first use

        request = requests.PromptLogprobsRequest(top, named, first, prompting, priority, deadline_s)
        return self._run(
            lambda model: requests.prepare(model, prompts, request),
            priority=priority,
            deadline_s=deadline_s,
            keep_cached=True,  # what goes on from a prompt comes next
        )

    aprompt_logprobs = awaitable(prompt_logprobs)
