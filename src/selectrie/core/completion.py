"""The port of models that draw text themselves, as servers do.

Whole rows of a server's model cannot be read, so text is drawn there.
`SupportsCompletion` is what a `PathModel` has beside its rows if it can do that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from selectrie.core.path_model import Cancellation
from selectrie.core.types import IntArray


@dataclass(frozen=True, slots=True)
class ServedText:
    """A text that a server drew.

    Attributes:
        text: The text without a stop string.
        n_tokens: Number of drawn tokens.
        finish: "stop" (also the end of the text) or "length".
        decode_s: Seconds from the request to its answer.
    """

    text: str
    n_tokens: int
    finish: str
    decode_s: float


@runtime_checkable
class SupportsCompletion(Protocol):
    """A model that draws text with a sampler that is not ours."""

    @property
    def sampler_name(self) -> str:
        """Return what the sampler calls itself, with its version."""
        ...

    def complete(
        self,
        prompt: IntArray,
        fields: Mapping[str, Any],
        done: Callable[[ServedText | BaseException], None],
        cancellation: Cancellation,
    ) -> None:
        """Have one text drawn after a prompt, and return without waiting for it.

        Args:
            prompt: int32[T], T >= 1, the tokens before the text.
            fields: Fields of OpenAI's `/v1/completions`; `max_tokens` is one of them.
            done: Called exactly once, in any thread, with the text or an error:
                `ServerError` if the server failed after all retries or its answer
                cannot be right, `CancelledError`, or `ClosedError`.
            cancellation: Ends the request.

        Raises `ClosedError` or `ForkedError` if it cannot begin; `done` is not called
        then.
        """
        ...
