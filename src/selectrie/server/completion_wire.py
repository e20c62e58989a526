"""The body of `/v1/completions`, with vLLM's fields, as a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag

from selectrie.errors import THE_PROMPT, IncompatibleOptionsError, OptionError
from selectrie.results import Chunk
from selectrie.server.generation_wire import GenerationBody, GenerationRequest, options_of, read_generation
from selectrie.server.http_errors import HttpError
from selectrie.server.options import ServerOptions
from selectrie.server.wire import BY_TYPE, Items, NotOffered, Text, TokenId, UpTo, read

DEFAULT_MAX_TOKENS = 16
"""Number of tokens drawn if a request does not say, as OpenAI has it."""
MAX_NAMED = 128
"""Maximum number of tokens that a request may name, as vLLM has it."""

PromptInput = str | tuple[int, ...]
"""A prompt as it came: a text, or token ids."""


def _not_zero(value: int) -> int:
    if value == 0:
        raise ValueError
    return value


def _form_of(prompt: object) -> str | None:
    """Return the form of a prompt: a text, token ids, or several of these."""
    if isinstance(prompt, list):
        return "ids" if prompt and type(prompt[0]) is int else "several"
    return "text" if isinstance(prompt, str) else None


_Ids = Annotated[Items[TokenId], Field(min_length=1, title="a list of token ids that is not empty")]
_Prompt = Annotated[Text | _Ids, BY_TYPE, Field(title="a text or a list of token ids")]
_Several = Annotated[Items[_Prompt], Field(min_length=1), UpTo("max_prompts", "prompts in a request")]


class CompletionBody(GenerationBody):
    """Prompts to continue."""

    suffix: Annotated[Any, NotOffered(("",))] = None
    prompt_embeds: Annotated[Any, NotOffered(([],))] = None
    prompt: (
        Annotated[
            Annotated[Text, Tag("text")] | Annotated[_Ids, Tag("ids")] | Annotated[_Several, Tag("several")],
            Discriminator(_form_of),
        ]
        | None
    ) = Field(None, title="a text, token ids, or a list of these that is not empty")
    """What is continued; the empty text by default."""
    max_tokens: int | None = Field(
        None, ge=0, description=f"Maximum number of tokens drawn; {DEFAULT_MAX_TOKENS} by default."
    )
    echo: bool | None = None
    """Whether the text begins with the prompt."""
    logprobs: Annotated[int, Field(ge=0), UpTo("max_logprobs")] | None = None
    """Number of most probable tokens at each position; 0 for the token alone."""
    prompt_logprobs: Annotated[int, Field(ge=0), UpTo("max_logprobs")] | None = None
    """The same of the prompt, in a field of their own; not in streams."""
    logprob_token_ids: Items[TokenId] | None = Field(
        None, title=f"a list of at most {MAX_NAMED} token ids", max_length=MAX_NAMED
    )
    """Tokens whose log-probabilities are wanted at each position, with `logprobs`."""
    return_tokens_as_token_ids: bool | None = None
    """Whether tokens are shown by their ids."""
    return_token_ids: bool | None = None
    """Whether ids of prompt and text are returned."""
    add_special_tokens: bool | None = None
    """Whether text gets the model's own BOS; it does."""
    parse_special: bool | None = None
    """Whether control tokens are read in text; they are."""
    truncate_prompt_tokens: Annotated[int, Field(ge=-1), AfterValidator(_not_zero)] | None = Field(
        None,
        title="a whole number of at least 1, or -1 for what there is room for",
        json_schema_extra={"not": {"const": 0}},
    )
    """Number of last tokens of a prompt that are kept; -1: what there is room for."""


FIELDS = {
    **options_of(CompletionBody, {}),
    THE_PROMPT.name: "prompt",
    "truncate": "truncate_prompt_tokens=-1",
    "n_alternatives": "logprobs",
}
"""The fields by the names of the options that they become."""


@dataclass(frozen=True, slots=True, eq=False)
class CompletionRequest:
    """A request of `/v1/completions`.

    Attributes:
        body: The fields as they came.
        prompts: The prompts.
        is_list: Whether the request has a list of them, so that errors name the item.
        generation: How text is drawn.
        max_tokens: Maximum number of tokens drawn; 0 for none.
    """

    body: CompletionBody
    prompts: Sequence[PromptInput]
    is_list: bool
    generation: GenerationRequest
    max_tokens: int

    @property
    def named(self) -> tuple[int, ...]:
        """Return the ids of tokens whose log-probabilities are wanted."""
        return tuple(self.body.logprob_token_ids or ())

    @property
    def adds_bos(self) -> bool:
        """Return whether text gets the model's own BOS."""
        return self.body.add_special_tokens is not False

    @property
    def scores_echo(self) -> bool:
        """Return whether the echoed prompt has log-probabilities."""
        return bool(self.body.echo) and self.body.logprobs is not None

    @property
    def scores_prompts(self) -> bool:
        """Return whether log-probabilities of prompts are needed."""
        return self.scores_echo or self.body.prompt_logprobs is not None

    def number_of(self, chunk: Chunk) -> int:
        """Return the number of the choice that a chunk belongs to."""
        return chunk.prompt_index * self.generation.n + chunk.index

    def name_of(self, index: int) -> str:
        """Return the path to a prompt in the request."""
        return f"prompt[{index}]" if self.is_list else "prompt"


def read_completion(data: Mapping[str, Any], options: ServerOptions) -> CompletionRequest:
    """Return a request of `/v1/completions`.

    Raises:
        HttpError, RequestError: For whatever can be found wrong without a model.
    """
    body = read(CompletionBody, data, options)
    prompts, is_list = _prompts_of(body.prompt)
    if len(prompts) > options.max_rows:  # each has a token at least
        message = f"the request has {len(prompts)} prompts: expected at most {options.max_rows} tokens in all"
        raise HttpError(400, "too_many_rows", message, "prompt")
    named = tuple(body.logprob_token_ids or ())
    max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    n_alternatives = 0 if named else body.logprobs or 0
    generation = read_generation(
        body, data, options, max_tokens=max(1, max_tokens), n_alternatives=n_alternatives, named=named
    )
    if body.prompt_logprobs is not None and generation.is_stream:
        raise IncompatibleOptionsError("prompt_logprobs", "stream", "set `echo` and `logprobs`")
    if named and body.logprobs is None:
        raise OptionError("logprob_token_ids", list(named), "`logprobs` too, which may be 0")
    in_all = len(prompts) * (generation.options.best_of or generation.n) * max_tokens
    if in_all > options.max_rows:
        message = f"the request may draw {in_all} tokens: expected at most {options.max_rows} in all"
        raise HttpError(400, "too_many_rows", message, "max_tokens")
    return CompletionRequest(body, prompts, is_list, generation, max_tokens)


def _prompts_of(prompt: str | list[int] | list[str | list[int]] | None) -> tuple[list[PromptInput], bool]:
    """Return the prompts of a request, and whether it has a list of them."""
    form = _form_of(prompt or "")
    if form != "several":
        return [prompt or "" if form == "text" else tuple(prompt)], False  # type: ignore[list-item, arg-type]
    return [one if isinstance(one, str) else tuple(one) for one in prompt], True  # type: ignore[union-attr, arg-type]
