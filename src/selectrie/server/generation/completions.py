r"""`POST /v1/completions`, with vLLM's fields: prompts, responses, the endpoint.

OpenAI's legacy log-probabilities show tokens as texts and places in characters, while
tokens are bytes. The rules here make both agree:

- The echoed prompt is the text of its tokens. A control token is written by name, a
  space that the tokenizer adds before text is left out, and so is the BOS token that is
  put before a prompt of text.
- The place of a token is the character in which its first byte lies. Tokens that spell
  one character together have one place.
- A token that is not valid UTF-8 is shown by its bytes, as OpenAI does: `bytes:\xe2`.
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
from selectrie.results.generation import finish_reason
from selectrie.results.records import json_logprob
from selectrie.server.fields.reading import check_tokenized, check_tokens, read
from selectrie.server.fields.structured import constraining_field
from selectrie.server.fields.wire import BY_TYPE, EncodableText, Items, NotOffered, TokenId, UpTo
from selectrie.server.generation.generation import (
    GenerationBody,
    GenerationRequest,
    generate,
    join_chunks,
    note_generation,
    open_stream,
    options_of,
    read_generation,
)
from selectrie.server.options import ServerOptions
from selectrie.server.transport.http_errors import HttpError, error_of, errors_at
from selectrie.server.transport.request_context import (
    Events,
    EventStream,
    Exchange,
    exchange_of,
    json_response,
    read_request,
)
from selectrie.server.transport.state import ServerState, state_of
from selectrie.tokenization.encoding import PromptText, least_tokens, spell_pieces
from selectrie.tokenization.prompts import SHORTEN_PROMPT, spelled_note

DEFAULT_MAX_TOKENS = 16
"""Number of tokens drawn if the request has no `max_tokens`, as in OpenAI's API."""
MAX_NAMED = 128
"""Maximum length of `logprob_token_ids`, as in vLLM."""

PromptInput = str | tuple[int, ...]
"""A prompt as the client sent it: a text, or token ids."""


def _reject_zero(value: int) -> int:
    if value == 0:
        raise ValueError
    return value


def _prompt_form(prompt: object) -> str | None:
    """Return the form of a prompt: "text", "ids" or "several"; None for others."""
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
            Discriminator(_prompt_form),
        ]
        | None
    ) = Field(None, title="a text, token ids, or a list of these that is not empty")
    """The prompts to continue; the empty text by default."""
    max_tokens: int | None = Field(
        None, ge=0, description=f"Maximum number of tokens drawn; {DEFAULT_MAX_TOKENS} by default."
    )
    echo: bool | None = None
    """Whether the text begins with the prompt."""
    logprobs: Annotated[int, Field(ge=0), UpTo("max_logprobs")] | None = None
    """Number of most probable tokens at each position; 0 for the token alone."""
    prompt_logprobs: Annotated[int, Field(ge=0), UpTo("max_logprobs")] | None = None
    """As `logprobs`, for the prompt's tokens, in a separate field; not in streams."""
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
    truncate_prompt_tokens: Annotated[int, Field(ge=-1), AfterValidator(_reject_zero)] | None = Field(
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
    "add_bos": "add_special_tokens",
}
"""Names of request fields by the options that they set, for messages of errors."""


@dataclass(frozen=True, slots=True, eq=False)
class CompletionRequest:
    """A request of `/v1/completions`.

    Attributes:
        body: The parsed body.
        prompts: The prompts.
        is_list: Whether the body has a list of prompts, so that errors name the item.
        generation: The options for drawing text.
        max_tokens: Maximum number of tokens drawn; 0 to draw none.
    """

    body: CompletionBody
    prompts: Sequence[PromptInput]
    is_list: bool
    generation: GenerationRequest
    max_tokens: int

    @property
    def named(self) -> tuple[int, ...]:
        """Return the ids in `logprob_token_ids`, scored at each position."""
        return tuple(self.body.logprob_token_ids or ())

    @property
    def adds_bos(self) -> bool:
        """Return whether the model's own BOS is put before prompts of text."""
        return self.body.add_special_tokens is not False

    @property
    def scores_echo(self) -> bool:
        """Return whether the echoed prompt comes with log-probabilities."""
        return bool(self.body.echo) and self.body.logprobs is not None

    @property
    def scores_prompts(self) -> bool:
        """Return whether log-probabilities of prompts are needed."""
        return self.scores_echo or self.body.prompt_logprobs is not None

    def choice_number(self, chunk: Chunk) -> int:
        """Return the number of the choice that a chunk belongs to, over all prompts."""
        return chunk.prompt_index * self.generation.n + chunk.index

    def prompt_path(self, index: int) -> str:
        """Return the path to a prompt: `prompt`, or `prompt[i]` in a list."""
        return f"prompt[{index}]" if self.is_list else "prompt"


def read_completion(data: Mapping[str, Any], options: ServerOptions) -> CompletionRequest:
    """Parse and check the body of `/v1/completions`.

    Raises:
        HttpError, RequestError: For errors that can be found without a model.
    """
    body = read(CompletionBody, data, options)
    prompts, is_list = _list_prompts(body.prompt)
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


def _list_prompts(prompt: str | list[int] | list[str | list[int]] | None) -> tuple[list[PromptInput], bool]:
    """Return the prompts of a body, and whether they came as a list."""
    form = _prompt_form(prompt or "")
    if form != "several":
        return [prompt or "" if form == "text" else tuple(prompt)], False  # type: ignore[list-item, arg-type]
    return [one if isinstance(one, str) else tuple(one) for one in prompt], True  # type: ignore[union-attr, arg-type]


Label = Callable[[int], str]
"""Maps a token id to the text with which the answer shows it."""


def token_labeller(vocabulary: Vocabulary, *, as_ids: bool = False) -> Label:
    """Return the function that turns token ids into the labels shown in answers.

    A label is the token's text; with `as_ids` it is vLLM's `token_id:123`.
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
    """The text of a prompt's tokens, and where each token begins.

    Attributes:
        text: The text. An incomplete character at its end is shown as U+FFFD.
        offsets: Place of each token in the text, in characters.
        tail: The bytes of the incomplete character at the end; b"" for none.
    """

    text: str
    offsets: tuple[int, ...]
    tail: bytes


def spell_prompt(vocabulary: Vocabulary, ids: Sequence[int], *, hides_first: bool) -> PromptSpelling:
    """Return the text of a prompt's tokens and the place of each.

    Args:
        vocabulary: The vocabulary.
        ids: The prompt's tokens; all exist in the vocabulary.
        hides_first: Whether the first token is a BOS that was put before a prompt of
            text, so that it has no text.
    """
    pieces = spell_pieces(vocabulary, np.asarray(ids, dtype=np.int32))
    if hides_first:
        pieces[0] = b""
    places = Places()
    offsets = tuple(map(places.add, pieces))
    return PromptSpelling(b"".join(pieces).decode("utf-8", "replace"), offsets, places.pending)


class Places:
    """Computes the place of each token in a growing text, in characters.

    Args:
        n: Number of characters before the text.
        tail: Bytes of an incomplete character before the text. If the first tokens
            complete it, the text begins with the whole character.
        shows_broken: Whether the text begins with U+FFFD if they do not complete it.
            Otherwise the text shows nothing of it.
    """

    def __init__(self, n: int = 0, tail: bytes = b"", *, shows_broken: bool = False) -> None:
        self._n, self.pending, self._is_from_before = n, tail, bool(tail) and not shows_broken

    def add(self, piece: bytes) -> int:
        """Append a token with these bytes to the text and return its place."""
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
    """Watches drawn tokens complete, or break off, a character begun by the prompt.

    Args:
        tail: Bytes of the incomplete character, b"" for none.
    """

    def __init__(self, tail: bytes) -> None:
        self._data = tail

    def break_off(self, pieces: Iterable[bytes], *, is_last: bool) -> str:
        """Return U+FFFD when these tokens leave the character incomplete, else "".

        It is returned at most once.

        Args:
            pieces: Bytes of the next tokens.
            is_last: Whether the text ends after them, which breaks the character off
                too.
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
    """Return whether a byte can follow `pending` in the character that it begins."""
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
    """A token and alternatives at its position, with log-probabilities.

    Attributes:
        token: Id of the token.
        logp: Its log-probability; None for a first token, which nothing predicts.
        others: Alternative tokens, best first; the token itself may be among them.
        place: Its place in the text, in characters.
    """

    token: int
    logp: float | None
    others: Sequence[Logprob]
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class PromptTokens:
    """A prompt as token ids, with its text.

    Attributes:
        ids: Its tokens.
        spelling: Its text, and the places of its tokens.
        scored: Log-probabilities of its tokens; None if not requested.
    """

    ids: Sequence[int]
    spelling: PromptSpelling
    scored: PromptLogprobs | None = None


class CompletionWriter:
    """Writes the response objects of OpenAI's completions, whole or streamed.

    A choice is one generated text in OpenAI's form (`Choice`).

    Args:
        request: The request.
        exchange: The exchange, which has the id of the answer and the model's name.
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
        """Return the completion object of a response that is not streamed."""
        return {**self._head, "choices": choices, "usage": usage, **self._warned}

    def chunks(self, choices: Sequence[Choice | None]) -> list[Choice]:
        """Return a chunk object for each choice; the first of all has the warnings.

        None among the choices is left out.
        """
        chunks = [{**self._head, "choices": [choice]} for choice in choices if choice is not None]
        if self._includes_usage:
            chunks = [{**chunk, "usage": None} for chunk in chunks]
        if chunks:
            chunks[0] |= self._warned
            self._warned = {}
        return chunks

    def last(self, usage: Mapping[str, int]) -> list[Choice]:
        """Return the final chunk object, with the usage, if the request wants one."""
        return [{**self._head, "choices": [], "usage": usage}] if self._includes_usage else []


class ChoiceWriter:
    """Writes one choice of a response, whole or as it grows.

    Args:
        request: The request.
        prompt: The choice's prompt.
        index: Number of the choice in the response.
        label: Turns token ids into the labels shown.
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
        """Return the choice object before anything is drawn: the prompt, if echoed.

        Without tokens to draw it has a finish reason.
        """
        request, prompt = self._request, self._prompt
        choice = self._choice(self._echo, self._prompt_entries())
        if not request.max_tokens:
            choice["finish_reason"] = "length"
        if request.body.prompt_logprobs is not None:
            scored = self._prompt.scored
            entries: list[dict[str, Any] | None] = []
            for index, token in enumerate(self._prompt.ids):
                logp = None if scored is None else scored.logp[index]
                if scored is None or logp is None:
                    entries.append(None)
                    continue
                top = (scored.top[index] or ())[: request.body.prompt_logprobs]
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
            choice["prompt_logprobs"] = entries
        if request.body.return_token_ids:
            choice |= {"prompt_token_ids": list(prompt.ids), "token_ids": []}
        return choice

    def after(self, chunk: Chunk) -> Choice | None:
        """Return the choice object for a chunk of its sequence; None to send nothing.

        The log-probabilities of a token wait for the text at its place, so that places
        do not depend on a stop string that is found later.
        """
        broken = self._begun.break_off((one.piece for one in chunk.tokens), is_last=chunk.completion is not None)
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
        return choice if chunk.completion is None else choice | _finish_fields(chunk.completion)

    def whole(self, completion: Completion) -> Choice:
        """Return the choice object of a finished sequence that is not streamed."""
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
        """Remove and return the waiting entries whose text has been sent."""
        n = len(self._waiting)
        if not is_last:
            n = next((i for i, one in enumerate(self._waiting) if one.place >= self._n_sent), n)
        ready, self._waiting = self._waiting[:n], self._waiting[n:]
        return [replace(one, place=min(one.place, self._n_sent)) for one in ready]

    def _choice(self, text: str, entries: Iterable[TokenEntry]) -> Choice:
        logprobs = None if self._request.body.logprobs is None else logprobs_of(entries, self._label)
        return {"index": self._index, "text": text, "logprobs": logprobs, "finish_reason": None, "stop_reason": None}

    def _prompt_entries(self) -> list[TokenEntry]:
        """Return an entry for each token of the echoed prompt, if they are scored."""
        request, scored = self._request, self._prompt.scored
        if not request.body.echo or request.body.logprobs is None or scored is None:
            return []
        entries = []
        for index, (token, place) in enumerate(zip(self._prompt.ids, self._prompt.spelling.offsets, strict=True)):
            others = [*(scored.top[index] or ())[: request.body.logprobs]]
            others += zip(request.named, scored.named[index] or (), strict=False)
            entries.append(TokenEntry(token, scored.logp[index], others, place))
        return entries


def logprobs_of(entries: Iterable[TokenEntry], label: Label) -> dict[str, list[Any]]:
    """Return OpenAI's `logprobs` object: parallel lists over the tokens.

    Where two tokens of `top_logprobs` have the same label, the larger value stays. The
    token itself is always in it.
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


def _finish_fields(completion: Completion) -> Choice:
    """Return why a sequence ended, and the stop text or token that ended it."""
    is_token = completion.finish == "stop" and completion.stop is None
    cause = completion.ended_by if is_token else completion.stop
    return {"finish_reason": finish_reason(completion.finish), "stop_reason": cause}


MAX_SCORES = 500_000
"""Maximum number of log-probabilities of all prompts of a request.

Each takes 200 bytes until the answer is sent. Each of `prompt_logprobs` takes, and
counts, twice that.
"""


async def score_prompts(
    exchange: Exchange, engine: Engine, request: CompletionRequest, options: ServerOptions
) -> tuple[CompletionRequest, list[PromptTokens]]:
    """Tokenize the prompts, and score their tokens if the request needs that.

    Returns the request, with a warning if names of control tokens in its texts are read
    as such, and the prompts.

    Raises:
        HttpError: 400 for a prompt that cannot be evaluated, or for too many tokens.
        SelectrieError: If the model fails.
    """
    request, prompts = await exchange.in_thread(lambda: _read_prompts(engine, request, options.max_rows))
    in_all = _n_score_copies(request) * sum(len(one.ids) for one in prompts)
    if in_all > options.max_rows:
        raise _too_many_tokens(in_all, options.max_rows)
    if not request.scores_prompts:
        return request, prompts
    n_top, prompt_top = request.body.logprobs or 0 if request.scores_echo else 0, request.body.prompt_logprobs
    n_echo = 1 + max(n_top, len(request.named)) if request.scores_echo else 0
    n_scores = in_all * (n_echo + (0 if prompt_top is None else 2 * (1 + prompt_top)))
    if n_scores > MAX_SCORES:
        counted = "logprobs" if prompt_top is None else "prompt_logprobs"
        message = f"the prompts have {n_scores} log-probabilities: expected at most {MAX_SCORES} in all; ask for fewer"
        raise HttpError(400, "too_many_rows", message, counted)
    with errors_name_prompt(request):
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
    """Return the request, with a warning if its texts have names of control tokens.

    A request with `parse_special` gets none.
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
def errors_name_prompt(request: CompletionRequest, index: int = 0) -> Iterator[None]:
    """Turn a `PromptTooLongError` into an `HttpError` that names the prompt.

    If the tokens to be drawn are too many, the error names `max_tokens`.

    Args:
        index: Index of the prompt, if the error does not say.
    """
    try:
        yield
    except PromptTooLongError as error:
        found = error_of(error, FIELDS)
        if found.param != "max_tokens":
            found.param = request.prompt_path(error.request or index)
        raise found from error


def exact_prompts(prompts: Sequence[PromptTokens]) -> list[PromptText]:
    """Return the prompts for the engine, which evaluates exactly these tokens."""
    return [PromptText(np.asarray(one.ids, dtype=np.int32), b"") for one in prompts]


def _too_many_tokens(n_tokens: int, max_rows: int, *, is_least: bool = False) -> HttpError:
    """Return the error (400) for prompts with more than `max_rows` tokens in all."""
    has = "has at least" if is_least else "has"
    message = f"the request {has} {n_tokens} tokens of prompts: expected at most {max_rows} in all"
    return HttpError(400, "too_many_rows", message, "prompt")


def _n_score_copies(request: CompletionRequest) -> int:
    """Return how many copies of each prompt's scores the answer has; 1 for none."""
    return request.generation.n if request.scores_prompts else 1


def _check_lengths(engine: Engine, request: CompletionRequest, max_rows: int) -> None:
    """Raise `HttpError` for prompts that cannot fit, before any of them is encoded.

    A text counts with the least number of tokens that its bytes can have.
    """
    in_all, n_copies, n_kept = 0, _n_score_copies(request), _n_kept(engine, request)
    if n_kept is not None:
        check_tokenized("prompt", sum(len(one.encode()) for one in request.prompts if isinstance(one, str)))
    for index, prompt in enumerate(request.prompts):
        least = least_tokens(engine.vocabulary, prompt.encode()) if isinstance(prompt, str) else len(prompt)
        if n_kept is None and least - 1 > engine.limits.nodes:  # the last token takes no room
            with errors_name_prompt(request, index):
                raise engine.limits.too_long(least - 1, SHORTEN_PROMPT, is_least=True)
        in_all += n_copies * (least if n_kept is None else min(least, n_kept))
        if in_all > max_rows:
            raise _too_many_tokens(in_all, max_rows, is_least=True)


def _read_prompts(
    engine: Engine, request: CompletionRequest, max_rows: int
) -> tuple[CompletionRequest, list[PromptTokens]]:
    """Tokenize all prompts; return the request, with any warning, and the prompts."""
    check_tokens(engine.vocabulary, request.named, "logprob_token_ids")
    _check_lengths(engine, request, max_rows)
    prompts = [_read_prompt(engine, request, index) for index in range(len(request.prompts))]
    return _with_warning(engine, request), prompts


def _read_prompt(engine: Engine, request: CompletionRequest, index: int) -> PromptTokens:
    """Tokenize and truncate the prompt at an index."""
    check_cancelled()
    prompt, vocabulary = request.prompts[index], engine.vocabulary
    ids: list[int]
    if isinstance(prompt, str):
        prompting = PromptParams(parse_special=request.body.parse_special is not False, add_bos=request.adds_bos)
        with errors_at(request.prompt_path(index)):
            ids = engine.encode(prompt, prompting=prompting).tolist()
    else:
        ids = check_tokens(vocabulary, prompt, request.prompt_path(index)).tolist()
    hides_first = isinstance(prompt, str) and request.adds_bos and _has_added_bos(engine, ids, prompt, request)
    n_kept = _n_kept(engine, request)
    if n_kept is not None and len(ids) > n_kept:
        ids = [*ids[:1], *ids[len(ids) - n_kept + 1 :]] if hides_first else ids[len(ids) - n_kept :]
    return PromptTokens(ids, spell_prompt(vocabulary, ids, hides_first=hides_first))


def _has_added_bos(engine: Engine, ids: Sequence[int], text: str, request: CompletionRequest) -> bool:
    """Return whether the first token is a BOS that the text itself does not contain."""
    vocabulary = engine.vocabulary
    if vocabulary.bos is None or ids[0] != vocabulary.bos:
        return False
    if request.body.parse_special is False or not text or not text.startswith(vocabulary.texts[vocabulary.bos]):
        return True
    return len(engine.encode(text, prompting=PromptParams(parse_special=True, add_bos=False))) < len(ids)


def _n_kept(engine: Engine, request: CompletionRequest) -> int | None:
    """Return the number of last tokens kept of each prompt; None to keep all."""
    if request.body.truncate_prompt_tokens != -1:
        return request.body.truncate_prompt_tokens
    return max(1, engine.limits.nodes - max(0, request.max_tokens - 1))


router = APIRouter()

WRITTEN_IN_PLACE = 1_000
"""Maximum number of scored prompt tokens for writing an answer on the event loop."""


@router.post("/v1/completions")
async def completions(request: Request) -> Response:
    """Continue prompts, and return log-probabilities of prompts and text."""
    state, exchange = state_of(request), exchange_of(request)
    exchange.fields = FIELDS | options_of(CompletionBody, exchange.body)
    has_grammar = constraining_field(exchange.body) is not None
    completion_request = await read_request(exchange, read_completion, state.options, has_grammar=has_grammar)
    if completion_request.generation.is_stream:
        exchange.warnings += completion_request.generation.warnings
        return EventStream(_stream_events(state, exchange, completion_request), state.options.ping_interval_s)
    generation = None
    async with state.lease_model(exchange) as lease:
        completion_request, prompts = await score_prompts(exchange, lease.engine, completion_request, state.options)
        if completion_request.max_tokens:
            with errors_name_prompt(completion_request):
                generation = await generate(
                    exchange, lease.engine, exact_prompts(prompts), completion_request.generation
                )
        choices = _make_writers(lease.engine, completion_request, prompts)
    usage, answer = _note_usage(exchange, prompts, generation), CompletionWriter(completion_request, exchange)

    def response() -> Response:
        if generation is None:
            return json_response(answer.whole([writer.before() for writer in choices], usage))
        return json_response(answer.whole([w.whole(one) for w, one in zip(choices, generation, strict=True)], usage))

    exchange.is_large |= _is_large(prompts)
    return await exchange.run(response)


async def _stream_events(state: ServerState, exchange: Exchange, request: CompletionRequest) -> Events:
    """Yield the chunk objects of a streamed answer while its text is drawn."""
    generation = None
    async with state.lease_model(exchange) as lease:
        request, prompts = await score_prompts(exchange, lease.engine, request, state.options)
        choices, answer = _make_writers(lease.engine, request, prompts), CompletionWriter(request, exchange)
        exchange.is_large |= _is_large(prompts)
        if request.body.echo or request.body.return_token_ids or not request.max_tokens:
            for writer in choices:
                yield answer.chunks([await exchange.run(writer.before)])
        if request.max_tokens:
            with errors_name_prompt(request):
                async with open_stream(exchange, lease.engine, exact_prompts(prompts), request.generation) as stream:
                    async for arrived in Arrivals(stream):
                        exchange.n_drawn += sum(len(one.tokens) for one in arrived)
                        more = [choices[request.choice_number(one)].after(one) for one in join_chunks(arrived)]
                        if any(more):
                            yield answer.chunks(more)
                    generation = stream.generation()
        usage = _note_usage(exchange, prompts, generation)
    yield answer.last(usage)


def _is_large(prompts: Sequence[PromptTokens]) -> bool:
    """Return whether writing the answer would hold up other requests."""
    return sum(len(one.ids) for one in prompts if one.scored is not None) > WRITTEN_IN_PLACE


def _make_writers(engine: Engine, request: CompletionRequest, prompts: Sequence[PromptTokens]) -> list[ChoiceWriter]:
    """Return a writer for each choice; choice i of prompt p has number p·n + i."""
    label = token_labeller(engine.vocabulary, as_ids=bool(request.body.return_tokens_as_token_ids))
    n = request.generation.n
    return [ChoiceWriter(request, prompt, p * n + i, label) for p, prompt in enumerate(prompts) for i in range(n)]


def _note_usage(exchange: Exchange, prompts: Sequence[PromptTokens], generation: Generation | None) -> dict[str, int]:
    """Return the numbers of tokens of an answer, and note them in the exchange."""
    if generation is not None:
        return note_generation(generation, exchange)
    exchange.n_prompt = n_prompt = sum(len(one.ids) for one in prompts)
    exchange.rows_naive = sum(one.scored.cost.rows_naive for one in prompts if one.scored is not None)
    return {"prompt_tokens": n_prompt, "completion_tokens": 0, "total_tokens": n_prompt}
