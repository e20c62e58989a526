"""The methods of an engine that only use its tokenizer.

They are apart from `Engine` because of its size. No model call is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from selectrie.core.model import ModelDescription
from selectrie.core.types import IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.engine.aio import awaitable
from selectrie.engine.requests.session import at_one_time
from selectrie.options import DEFAULT_PROMPTING, PromptParams
from selectrie.options.argument_names import named_arguments
from selectrie.options.checks import record
from selectrie.tokenization.encoding import encode_prompt
from selectrie.tokenization.prompts import Prompt, read_prompt

R = TypeVar("R")


class _Runs(Protocol):
    """What the methods need of an engine."""

    def _prepare_only(self, prepare: Callable[[ModelDescription], R]) -> R: ...


class TokenizerMethods:
    """Turns prompts into tokens. `Engine` has these methods."""

    __slots__ = ()

    @named_arguments
    def encode(self: _Runs, prompt: Prompt, *, prompting: PromptParams = DEFAULT_PROMPTING) -> IntArray:
        """Return the tokens of a prompt as the other methods read it, int32[].

        BOS comes first if the model adds one. Control tokens are recognised in text
        with `prompting.parse_special`, and in what a chat template writes. `decode`
        turns tokens into text again.

        Args:
            prompt: Text, token ids, or chat messages.
            prompting: Options for chat and control tokens; the others have no effect.

        Raises:
            RequestError: If the prompt is invalid or empty.
        """
        record("prompting", prompting, PromptParams)
        return self._prepare_only(lambda model: _encoded(model.vocabulary, prompt, prompting))

    @named_arguments
    def decode(self: _Runs, tokens: Sequence[int] | IntArray) -> str:
        """Return the text of tokens, with control tokens by their names.

        A space that the tokenizer adds before text is left out, so `encode` with
        `parse_special` gives back tokens that it made. Bytes that are no UTF-8 become
        U+FFFD.

        Raises:
            TokenRangeError: For a token that does not exist.
        """
        from selectrie.tokenization.encoding import spelled  # imported on first use

        return self._prepare_only(lambda model: spelled(model.vocabulary, model.vocabulary.check_tokens(tokens)))

    aencode = awaitable(encode)
    adecode = awaitable(decode)


def _encoded(vocabulary: Vocabulary, prompt: Prompt, prompting: PromptParams) -> IntArray:
    read = read_prompt(vocabulary, prompt, at_one_time(vocabulary, prompting, prompt))
    return encode_prompt(vocabulary, read)
