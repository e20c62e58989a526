r"""`POST /v1/completions`, with vLLM's fields: prompts, responses, the endpoint.

OpenAI's legacy log-probabilities show tokens as texts and places in characters, while
tokens are bytes. The rules here make both agree:

- The echoed prompt is what its tokens spell. A control token is spelled by its name, a
  space that the tokenizer adds before text is left out, and so is the BOS token that is
  put before a prompt of text.
- The place of a token is the character in which its first byte lies. Tokens that spell
  one character together have one place.
- A token that is no whole UTF-8 is shown by its bytes, as OpenAI does: `bytes:\xe2`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import time
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter
from pydantic import AfterValidator, Discriminator, Field, Tag
from starlette.requests import Request
from starlette.responses import Response

from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.sampling.sequence import n_incomplete
from selectrie.engine.aio import Arrivals
from selectrie.engine.engine import Engine
from selectrie.engine.scheduler.task_group import check_cancelled
from selectrie.errors import THE_PROMPT, IncompatibleOptionsError, OptionError, PromptTooLongError
from selectrie.options import PromptParams
from selectrie.results import Chunk, Completion, Generation, PromptLogprobs
from selectrie.results.generation import finish_reason, json_logprob
from selectrie.server.exchange import Events, EventStream, Exchange, exchange_of, json_response, read_request
from selectrie.server.generation import (
    GenerationBody,
    GenerationRequest,
    generate,
    join_chunks,
    lease_model,
    note_generation,
    open_stream,
    options_of,
    read_generation,
)
from selectrie.server.http_errors import HttpError, error_of, errors_at
from selectrie.server.options import ServerOptions
from selectrie.server.state import ServerState, state_of
from selectrie.server.wire import BY_TYPE, EncodableText, Items, NotOffered, TokenId, UpTo, check_tokenized, read
from selectrie.tokenization.encoding import PromptText, least_tokens, spell_pieces
from selectrie.tokenization.prompts import SHORTEN_PROMPT, spelled_note

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
_Prompt = Annotated[EncodableText | _Ids, BY_TYPE, Field(title="a text or a list of token ids")]
_Several = Annotated[Items[_Prompt], Field(min_length=1), UpTo("max_prompts", "prompts in a request")]


class CompletionBody(GenerationBody):
    """Prompts to continue."""

    suffix: Annotated[Any, NotOffered(("",))] = None
    prompt_embeds: Annotated[Any, NotOffered(([],))] = None
    prompt: (
        Annotated[
            Annotated[EncodableText, Tag("text")] | Annotated[_Ids, Tag("ids")] | Annotated[_Several, Tag("several")],
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


Label = Callable[[int], str]
"""Returns how a token is shown."""


def labels_of(vocabulary: Vocabulary, *, as_ids: bool = False) -> Label:
    """Return how the tokens of a vocabulary are shown.

    With `as_ids` that is vLLM's `token_id:123`.
    """
    if as_ids:
        return "token_id:{}".format

    def label(token: int) -> str:
        piece = vocabulary.pieces[token]
        if not piece:
            return vocabulary.texts[token]
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)

    return label


@dataclass(frozen=True, slots=True)
class PromptSpelling:
    """The text of a prompt's tokens, and the place of each.

    Attributes:
        text: The text. An incomplete character at its end is U+FFFD.
        offsets: Place of each token in the text, in characters.
        tail: Bytes of that incomplete character.
    """

    text: str
    offsets: tuple[int, ...]
    tail: bytes


def spelling_of(vocabulary: Vocabulary, ids: Sequence[int], *, hides_first: bool) -> PromptSpelling:
    """Return the text of a prompt.

    Args:
        vocabulary: The vocabulary.
        ids: The prompt's tokens, which exist.
        hides_first: Whether the first token has no text, because the prompt was text
            and BOS was put before it.
    """
    pieces = spell_pieces(vocabulary, np.asarray(ids, dtype=np.int32))
    if hides_first:
        pieces[0] = b""
    places = Places()
    offsets = tuple(map(places.add, pieces))
    return PromptSpelling(b"".join(pieces).decode("utf-8", "replace"), offsets, places.pending)


class Places:
    """Finds the place of each token of a growing text, in characters.

    Args:
        n: Number of characters before.
        tail: Bytes of an incomplete character before the text. The text begins with the
            whole character if it is completed.
        shows_broken: Whether the text begins with U+FFFD if that character is not
            completed. Otherwise it has nothing of it.
    """

    def __init__(self, n: int = 0, tail: bytes = b"", *, shows_broken: bool = False) -> None:
        self._n, self.pending, self._is_from_before = n, tail, bool(tail) and not shows_broken

    def add(self, piece: bytes) -> int:
        """Return the place of a token with these bytes, which the text gains."""
        if not piece:
            return self._n
        place = self._n
        if self.pending and not _continues(self.pending, piece[:1]):
            if self._is_from_before:
                self.pending, self._is_from_before = b"", False
            else:
                place += 1  # the incomplete character becomes U+FFFD
        data = self.pending + piece
        n_whole = len(data) - n_incomplete(data)
        self._n += len(data[:n_whole].decode("utf-8", "replace"))
        self.pending, self._is_from_before = data[n_whole:], self._is_from_before and not n_whole
        return place


class BegunCharacter:
    """Tells what drawn tokens make of a character that the prompt began.

    Args:
        tail: Bytes of the character, b"" for none.
    """

    def __init__(self, tail: bytes) -> None:
        self._data = tail

    def broken(self, pieces: Iterable[bytes], *, is_last: bool) -> str:
        """Return U+FFFD once, when the tokens with these bytes break the character off.

        With `is_last` the end of the text does too. Otherwise return "".
        """
        for piece in pieces:
            if self._data and piece:
                data = self._data + piece
                if n_incomplete(data) == len(data):
                    self._data = data
                    continue
                self._data = b""
                shown = data.decode("utf-8", "replace")[0]
                return shown if shown == "\ufffd" and not data.startswith(shown.encode()) else ""
        if self._data and is_last:
            self._data = b""
            return "\ufffd"
        return ""


def _continues(pending: bytes, byte: bytes) -> bool:
    """Return whether a byte belongs to the character that `pending` begins."""
    data = pending + byte
    if n_incomplete(data) == len(data):
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


Choice = dict[str, Any]
Logprob = tuple[int, float]
"""A token and its log-probability."""


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """A token with its log-probability and those of others in its place.

    Attributes:
        token: Id of the token.
        logp: Its log-probability; None if nothing predicts it.
        others: Tokens in its place, best first; it may be one of them.
        place: Its place in the text, in characters.
    """

    token: int
    logp: float | None
    others: Sequence[Logprob]
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class PromptTokens:
    """A prompt as its tokens.

    Attributes:
        ids: Its tokens.
        spelling: Its text, and the places of its tokens.
        scored: The log-probabilities of its tokens, if they are wanted.
    """

    ids: Sequence[int]
    spelling: PromptSpelling
    scored: PromptLogprobs | None = None


class CompletionWriter:
    """Writes the objects of one answer around its choices.

    Args:
        request: The request.
        exchange: Its id and the name of the model.
    """

    def __init__(self, request: CompletionRequest, exchange: Exchange) -> None:
        self._includes_usage = request.generation.includes_usage
        self._head = {
            "id": f"cmpl-{exchange.id}",
            "object": "text_completion",
            "created": int(time()),
            "model": exchange.model,
        }
        self._warned = {"warnings": list(request.generation.warnings)} if request.generation.warnings else {}

    def whole(self, choices: Sequence[Choice], usage: Mapping[str, int]) -> Choice:
        """Return the completion object."""
        return {**self._head, "choices": choices, "usage": usage, **self._warned}

    def chunks(self, choices: Sequence[Choice | None]) -> list[Choice]:
        """Return a chunk object for each choice; the first of all has the warnings."""
        chunks = [{**self._head, "choices": [choice]} for choice in choices if choice is not None]
        if self._includes_usage:
            chunks = [{**chunk, "usage": None} for chunk in chunks]
        if chunks:
            chunks[0] |= self._warned
            self._warned = {}
        return chunks

    def last(self, usage: Mapping[str, int]) -> list[Choice]:
        """Return the chunk object with the usage, if the request wants one."""
        return [{**self._head, "choices": [], "usage": usage}] if self._includes_usage else []


class ChoiceWriter:
    """Writes one choice of a response, whole or as it grows.

    Args:
        request: The request.
        prompt: The choice's prompt.
        index: Number of the choice in the response.
        label: How tokens are shown.
    """

    def __init__(self, request: CompletionRequest, prompt: PromptTokens, index: int, label: Label) -> None:
        self._request, self._prompt, self._index, self._label = request, prompt, index, label
        spelling = prompt.spelling
        self._begun = BegunCharacter(spelling.tail if request.body.echo else b"")
        self._echo = spelling.text if request.body.echo else ""
        if request.max_tokens and spelling.tail:
            self._echo = self._echo[:-1]  # what is drawn may complete the last character
        self._n_sent = len(self._echo)
        self._places = Places(self._n_sent, spelling.tail, shows_broken=bool(request.body.echo))
        self._waiting: list[TokenEntry] = []

    def before(self) -> Choice:
        """Return the choice before anything is drawn: the prompt, if it is echoed.

        If nothing will be drawn, it has ended.
        """
        request, prompt = self._request, self._prompt
        choice = self._choice(self._echo, self._prompt_entries())
        if not request.max_tokens:
            choice["finish_reason"] = "length"
        if request.body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = self._prompt_logprobs(request.body.prompt_logprobs)
        if request.body.return_token_ids:
            choice |= {"prompt_token_ids": list(prompt.ids), "token_ids": []}
        return choice

    def after(self, chunk: Chunk) -> Choice | None:
        """Return the choice of what its sequence has gained, None for nothing to send.

        The log-probabilities of a token wait for the text at its place. So places do
        not depend on a stop string that is found later.
        """
        broken = self._begun.broken((one.piece for one in chunk.tokens), is_last=chunk.completion is not None)
        text = broken + chunk.text
        self._n_sent += len(text)
        for index, one in enumerate(chunk.tokens):
            others = [(other.id, other.logp) for other in chunk.alternatives[index]] if chunk.alternatives else []
            others += zip(self._request.named, chunk.named[index], strict=True) if chunk.named else []
            self._waiting.append(TokenEntry(one.id, one.logp, others, self._places.add(one.piece)))
        ready = self._ready(is_last=chunk.completion is not None)
        if not text and chunk.completion is None and not self._request.body.return_token_ids:
            return None
        choice = self._choice(text, ready)
        if self._request.body.return_token_ids:
            choice["token_ids"] = [one.id for one in chunk.tokens]
        return choice if chunk.completion is None else choice | _ended(chunk.completion)

    def whole(self, completion: Completion) -> Choice:
        """Return the whole choice of a finished sequence."""
        text, tokens = completion.text, completion.tokens
        chunk = Chunk(completion.prompt_index, completion.index, text, tokens, completion)
        before = self.before()
        after = self.after(replace(chunk, alternatives=completion.alternatives, named=completion.named)) or {}
        whole = {**before, **after, "text": before["text"] + after["text"]}
        if before["logprobs"] is not None:
            whole["logprobs"] = {
                name: before["logprobs"][name] + after["logprobs"][name] for name in before["logprobs"]
            }
        return whole

    def _ready(self, *, is_last: bool) -> list[TokenEntry]:
        """Return the entries that may be sent, and no longer wait."""
        n = len(self._waiting)
        if not is_last:
            n = next((i for i, one in enumerate(self._waiting) if one.place >= self._n_sent), n)
        ready, self._waiting = self._waiting[:n], self._waiting[n:]
        return [replace(one, place=min(one.place, self._n_sent)) for one in ready]

    def _choice(self, text: str, entries: Iterable[TokenEntry]) -> Choice:
        logprobs = None if self._request.body.logprobs is None else logprobs_of(entries, self._label)
        return {"index": self._index, "text": text, "logprobs": logprobs, "finish_reason": None, "stop_reason": None}

    def _prompt_entries(self) -> list[TokenEntry]:
        """Return the entries of the echoed prompt."""
        request, scored = self._request, self._prompt.scored
        if not request.body.echo or request.body.logprobs is None or scored is None:
            return []
        entries = []
        for index, (token, place) in enumerate(zip(self._prompt.ids, self._prompt.spelling.offsets, strict=True)):
            others = [*(scored.top[index] or ())[: request.body.logprobs]]
            others += zip(request.named, scored.named[index] or (), strict=False)
            entries.append(TokenEntry(token, scored.logp[index], others, place))
        return entries

    def _prompt_logprobs(self, k: int) -> list[dict[str, Any] | None]:
        """Return vLLM's list: None, or the prompt token and the top k there, by id.

        The token itself comes first. Its rank is known if it is among those asked for.
        """
        scored = self._prompt.scored
        entries: list[dict[str, Any] | None] = []
        for index, token in enumerate(self._prompt.ids):
            logp = None if scored is None else scored.logp[index]
            if scored is None or logp is None:
                entries.append(None)
                continue
            top = (scored.top[index] or ())[:k]
            ranks = {one: rank for rank, (one, _) in enumerate(scored.top[index] or (), 1)}
            if scored.is_greedy[index]:
                ranks[token] = 1
            entries.append(
                {
                    str(one): {
                        "logprob": json_logprob(value),
                        "rank": ranks.get(one),
                        "decoded_token": self._label(one),
                    }
                    for one, value in dict([(token, logp), *top]).items()
                }
            )
        return entries


def logprobs_of(entries: Iterable[TokenEntry], label: Label) -> dict[str, list[Any]]:
    """Return OpenAI's lists over tokens.

    In `top_logprobs`, where two tokens are shown by one text, the larger value stays.
    The token itself is always in it.
    """
    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for one in entries:
        top: dict[str, float] | None = None
        if one.logp is not None:
            top = {}
            for token, logp in (*one.others, (one.token, one.logp)):
                shown, value = label(token), json_logprob(logp)
                if value is not None and value > top.get(shown, float("-inf")):
                    top[shown] = value
        lists["tokens"].append(label(one.token))
        lists["token_logprobs"].append(json_logprob(one.logp))
        lists["top_logprobs"].append(top)
        lists["text_offset"].append(one.place)
    return lists


def _ended(completion: Completion) -> Choice:
    """Return how a sequence ended, and by which text or token of the request."""
    is_token = completion.finish == "stop" and completion.stop is None
    cause = completion.ended_by if is_token else completion.stop
    return {"finish_reason": finish_reason(completion.finish), "stop_reason": cause}


MAX_SCORES = 500_000
"""Maximum number of log-probabilities of all prompts of a request.

Each takes 200 bytes until the answer is sent, and those of `prompt_logprobs` take, and
count, twice that.
"""


async def score_prompts(
    exchange: Exchange, engine: Engine, request: CompletionRequest, options: ServerOptions
) -> tuple[CompletionRequest, list[PromptTokens]]:
    """Return a request and its prompts, with their log-probabilities if it needs them.

    The request gets a warning about control tokens in its text, if any.

    Raises:
        HttpError: 400 for a prompt that cannot be evaluated, or for too many tokens.
        SelectrieError: If the model fails.
    """
    request, prompts = await exchange.in_thread(lambda: _all_read(engine, request, options.max_rows))
    in_all = _n_copies(request) * sum(len(one.ids) for one in prompts)
    if in_all > options.max_rows:
        raise _too_many(in_all, options.max_rows)
    if not request.scores_prompts:
        return request, prompts
    n_top, prompt_top = request.body.logprobs or 0 if request.scores_echo else 0, request.body.prompt_logprobs
    n_echo = 1 + max(n_top, len(request.named)) if request.scores_echo else 0
    n_scores = in_all * (n_echo + (0 if prompt_top is None else 2 * (1 + prompt_top)))
    if n_scores > MAX_SCORES:
        counted = "logprobs" if prompt_top is None else "prompt_logprobs"
        message = f"the prompts have {n_scores} log-probabilities: expected at most {MAX_SCORES} in all; ask for fewer"
        raise HttpError(400, "too_many_rows", message, counted)
    with prompt_errors(request):
        scored = await exchange.hold(
            lambda: engine.aprompt_logprobs(
                [one.ids for one in prompts],
                top=max(n_top, prompt_top or 0),
                named=request.named if request.scores_echo else (),
                priority=request.generation.options.priority,
            )
        )
    return request, [replace(one, scored=scores) for one, scores in zip(prompts, scored, strict=True)]


def _with_warning(engine: Engine, request: CompletionRequest) -> CompletionRequest:
    """Return the request with a warning about control tokens in its text, if any.

    A request that says how they are read has none.
    """
    texts = (
        [prompt for prompt in request.prompts if isinstance(prompt, str)] if request.body.parse_special is None else []
    )
    spelled = dict.fromkeys(name for text in texts for name in engine.vocabulary.controls_spelled(text.encode()))
    if not spelled:
        return request
    warning = f"{spelled_note(list(spelled))} control tokens; parse_special=false reads them as text"
    generation = request.generation
    return replace(request, generation=replace(generation, warnings=[*generation.warnings, warning]))


@contextmanager
def prompt_errors(request: CompletionRequest, index: int = 0) -> Iterator[None]:
    """Name the prompt in the error about one too long: by default a single one.

    Where the tokens to be drawn are too many, the error names their limit.
    """
    try:
        yield
    except PromptTooLongError as error:
        found = error_of(error, FIELDS)
        if found.param != "max_tokens":
            found.param = request.name_of(error.request or index)
        raise found from error


def exact_prompts(prompts: Sequence[PromptTokens]) -> list[PromptText]:
    """Return the prompts as the engine draws after them: exactly these tokens."""
    return [PromptText(np.asarray(one.ids, dtype=np.int32), b"") for one in prompts]


def _too_many(n_tokens: int, max_rows: int, *, is_least: bool = False) -> HttpError:
    has = "has at least" if is_least else "has"
    message = f"the request {has} {n_tokens} tokens of prompts: expected at most {max_rows} in all"
    return HttpError(400, "too_many_rows", message, "prompt")


def _n_copies(request: CompletionRequest) -> int:
    """Return how often the answer has the scores of each prompt; 1 for none."""
    return request.generation.n if request.scores_prompts else 1


def _check_lengths(engine: Engine, request: CompletionRequest, max_rows: int) -> None:
    """Raise `HttpError` for prompts that cannot fit, before any of them is encoded.

    A text is taken to have as many tokens as its bytes need at least.
    """
    in_all, n_copies, n_kept = 0, _n_copies(request), _n_kept(engine, request)
    if n_kept is not None:
        check_tokenized("prompt", sum(len(one.encode()) for one in request.prompts if isinstance(one, str)))
    for index, prompt in enumerate(request.prompts):
        least = least_tokens(engine.vocabulary, prompt.encode()) if isinstance(prompt, str) else len(prompt)
        if n_kept is None and least - 1 > engine.limits.nodes:  # the last token takes no room
            with prompt_errors(request, index):
                raise engine.limits.too_long(least - 1, SHORTEN_PROMPT, is_least=True)
        in_all += n_copies * (least if n_kept is None else min(least, n_kept))
        if in_all > max_rows:
            raise _too_many(in_all, max_rows, is_least=True)


def _all_read(
    engine: Engine, request: CompletionRequest, max_rows: int
) -> tuple[CompletionRequest, list[PromptTokens]]:
    with errors_at("logprob_token_ids"):
        engine.vocabulary.check_tokens(request.named)
    _check_lengths(engine, request, max_rows)
    prompts = [_read(engine, request, index) for index in range(len(request.prompts))]
    return _with_warning(engine, request), prompts


def _read(engine: Engine, request: CompletionRequest, index: int) -> PromptTokens:
    check_cancelled()
    prompt, vocabulary = request.prompts[index], engine.vocabulary
    with errors_at(request.name_of(index)):
        ids = _tokens(engine, prompt, request)
    hides_first = isinstance(prompt, str) and request.adds_bos and _is_added(engine, ids, prompt, request)
    n_kept = _n_kept(engine, request)
    if n_kept is not None and len(ids) > n_kept:
        ids = [*ids[:1], *ids[len(ids) - n_kept + 1 :]] if hides_first else ids[len(ids) - n_kept :]
    return PromptTokens(ids, spelling_of(vocabulary, ids, hides_first=hides_first))


def _tokens(engine: Engine, prompt: PromptInput, request: CompletionRequest) -> list[int]:
    if isinstance(prompt, str):
        prompting = PromptParams(parse_special=request.body.parse_special is not False, add_bos=request.adds_bos)
        encoded: list[int] = engine.encode(prompt, prompting=prompting).tolist()
        return encoded
    tokens: list[int] = engine.vocabulary.check_tokens(prompt).tolist()
    return tokens


def _is_added(engine: Engine, ids: Sequence[int], text: str, request: CompletionRequest) -> bool:
    """Return whether the first token is a BOS that the text does not spell."""
    vocabulary = engine.vocabulary
    if vocabulary.bos is None or ids[0] != vocabulary.bos:
        return False
    if request.body.parse_special is False or not text or not text.startswith(vocabulary.texts[vocabulary.bos]):
        return True
    return len(engine.encode(text, prompting=PromptParams(parse_special=True, add_bos=False))) < len(ids)


def _n_kept(engine: Engine, request: CompletionRequest) -> int | None:
    """Return how many tokens of a prompt are kept, None for all."""
    if request.body.truncate_prompt_tokens != -1:
        return request.body.truncate_prompt_tokens
    return max(1, engine.limits.nodes - max(0, request.max_tokens - 1))


router = APIRouter()

WRITTEN_IN_PLACE = 1_000
"""Scored prompt tokens up to which an answer is written on the event loop."""


@router.post("/v1/completions")
async def completions(request: Request) -> Response:
    """Continue prompts, and return log-probabilities of prompt and text."""
    state, exchange = state_of(request), exchange_of(request)
    exchange.fields = FIELDS | options_of(CompletionBody, exchange.body)
    completion_request = await read_request(exchange, read_completion, state.options)
    if completion_request.generation.is_stream:
        exchange.warnings += completion_request.generation.warnings
        return EventStream(_events(state, exchange, completion_request), state.options.ping_interval_s)
    generation = None
    async with lease_model(state, exchange) as lease:
        completion_request, prompts = await score_prompts(exchange, lease.engine, completion_request, state.options)
        if completion_request.max_tokens:
            with prompt_errors(completion_request):
                generation = await generate(
                    exchange, lease.engine, exact_prompts(prompts), completion_request.generation
                )
        choices = _choices(lease.engine, completion_request, prompts)
    usage, answer = _usage(exchange, prompts, generation), CompletionWriter(completion_request, exchange)

    def response() -> Response:
        if generation is None:
            return json_response(answer.whole([writer.before() for writer in choices], usage))
        return json_response(answer.whole([w.whole(one) for w, one in zip(choices, generation, strict=True)], usage))

    exchange.is_large |= _is_large(prompts)
    return await exchange.run(response)


async def _events(state: ServerState, exchange: Exchange, request: CompletionRequest) -> Events:
    """Yield the objects of an answer while it is drawn."""
    generation = None
    async with lease_model(state, exchange) as lease:
        request, prompts = await score_prompts(exchange, lease.engine, request, state.options)
        choices, answer = _choices(lease.engine, request, prompts), CompletionWriter(request, exchange)
        exchange.is_large |= _is_large(prompts)
        if request.body.echo or request.body.return_token_ids or not request.max_tokens:
            for writer in choices:
                yield answer.chunks([await exchange.run(writer.before)])
        if request.max_tokens:
            with prompt_errors(request):
                async with open_stream(exchange, lease.engine, exact_prompts(prompts), request.generation) as stream:
                    async for arrived in Arrivals(stream):
                        exchange.n_drawn += sum(len(one.tokens) for one in arrived)
                        more = [choices[request.number_of(one)].after(one) for one in join_chunks(arrived)]
                        if any(more):
                            yield answer.chunks(more)
                    generation = stream.generation()
        usage = _usage(exchange, prompts, generation)
    yield answer.last(usage)


def _is_large(prompts: Sequence[PromptTokens]) -> bool:
    """Return whether writing the answer would hold up other requests."""
    return sum(len(one.ids) for one in prompts if one.scored is not None) > WRITTEN_IN_PLACE


def _choices(engine: Engine, request: CompletionRequest, prompts: Sequence[PromptTokens]) -> list[ChoiceWriter]:
    """Return a writer for each choice; choice i of prompt p is number p·n + i."""
    label, n = labels_of(engine.vocabulary, as_ids=bool(request.body.return_tokens_as_token_ids)), request.generation.n
    return [ChoiceWriter(request, prompt, p * n + i, label) for p, prompt in enumerate(prompts) for i in range(n)]


def _usage(exchange: Exchange, prompts: Sequence[PromptTokens], generation: Generation | None) -> dict[str, int]:
    """Return the usage of an answer, and keep what it took for log and metrics."""
    if generation is not None:
        return note_generation(generation, exchange)
    exchange.n_prompt = n_prompt = sum(len(one.ids) for one in prompts)
    exchange.rows_naive = sum(one.scored.cost.rows_naive for one in prompts if one.scored is not None)
    return {"prompt_tokens": n_prompt, "completion_tokens": 0, "total_tokens": n_prompt}
