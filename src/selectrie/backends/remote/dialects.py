"""The kinds of servers: the requests by which each gives rows and texts."""

from __future__ import annotations

import asyncio
import math
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from selectrie.backends.remote.transport import JsonValue, Transport, refuse_duplicates
from selectrie.core import numerics
from selectrie.core.path_model import PathLimits, RowBounds, RowQuery, ServedText
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import OptionError


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as its server describes it.

    Attributes:
        name: The name of the model in requests.
        server: Kind and version of the server.
        n_tokens: Number of tokens of the vocabulary.
        n_context: Maximum number of tokens of a context; None if it is unknown.
    """

    name: str
    server: str
    n_tokens: int
    n_context: int | None = None


class ServerDialect(Protocol):
    """The requests by which one kind of server is asked for rows.

    All methods but `limits` run on the event loop of the transport.
    """

    @property
    def limits(self) -> PathLimits:
        """Return the limits of queries."""
        ...

    async def rows(self, queries: Sequence[RowQuery]) -> list[RowBounds]:
        """Return the rows that valid queries ask about, in their order."""
        ...

    async def read_again(self, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:
        """Return log-probabilities after a path, read by another request than `rows`.

        If a server has only one request for them, its work is laid out differently.
        The result has at least one token, but not always the named ones.
        """
        ...

    async def encode(self, text: str) -> list[int] | None:
        """Return the tokens of a text, control tokens included and without BOS.

        None if the server does not say.
        """
        ...


DEFAULT_CONTEXT = 1 << 20
"""Maximum number of tokens of a path if a server does not state it."""

T = TypeVar("T")


def partial_row(
    query: RowQuery,
    values: Mapping[int, float],
    top: Sequence[float],
    *,
    n_tokens: int,
    rounding: float,
    answer: JsonValue,
) -> RowBounds:
    """Return a query's row, made from the log-probabilities in a server's answer.

    The bounds on the rest are 1 minus the sum of the known probabilities, widened by
    the rounding. The bound on any other token is the rest, or the last of the most
    probable tokens if that is smaller.

    Args:
        query: The query.
        values: Log-probabilities by token, the named ones among them.
        top: Log-probabilities of the most probable tokens, which are in `values`.
        n_tokens: Number of tokens of the vocabulary.
        rounding: Maximum rounding error of a value relative to its row, in nats.
        answer: The answer, for errors.

    Raises `ServerError` if a token is missing, or if the probabilities sum to more
    than 1.
    """
    missing = [token for token in query.named.tolist() if token not in values]
    if missing:
        answer.refuse(f"has no log-probability of token {missing[0]}, which was asked for")
    n_top = min(query.top, n_tokens)
    if len(top) < n_top:
        answer.refuse(f"has {len(top)} of the most probable tokens: {n_top} were asked for")
    ids = np.array(sorted(values), dtype=np.int32)
    logp = np.array([values[token] for token in ids.tolist()], dtype=np.float64)
    known = float(numerics.exp(logp).sum())
    slack = math.expm1(rounding) + 1e-12
    if known > 1.0 + slack:
        answer.refuse(f"has probabilities that sum to {known:.6g}")
    if len(ids) == n_tokens:
        return RowBounds(ids, logp, (-math.inf, -math.inf), -math.inf)
    low, high = (math.log(p) if p > 0 else -math.inf for p in (1.0 - known - slack, 1.0 - known + slack))
    least = sorted(top, reverse=True)[n_top - 1] if n_top else math.inf
    return RowBounds(ids, logp, (low, high), min(high, least))


async def run_together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at once, and return their results in order.

    If one fails, the others are cancelled and its error is raised.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def check_length(n_read: int, path: Sequence[int], answer: JsonValue) -> None:
    """Raise `ServerError` if a server read more or fewer tokens than a path has.

    `n_read` is the number that it states in `answer`.
    """
    if n_read == len(path) + 1:
        answer.refuse(
            f"says that {n_read} tokens were read, {len(path)} were sent: the server puts one, such as BOS, first"
        )
    if n_read != len(path):
        answer.refuse(f"says that {n_read} tokens were read, {len(path)} were sent")


_COMPLETIONS_PATH = "/v1/completions"
_BYTES_OF_DRAWN = 1024
"""Maximum number of bytes of an answer for each drawn token."""


async def draw(
    transport: Transport, model: str, ids: Sequence[int], prompt: list[int] | str, fields: Mapping[str, Any]
) -> ServedText:
    """Let a server draw a text, and return it.

    Args:
        transport: The connection.
        model: Name of the model.
        ids: The tokens of the prompt.
        prompt: The prompt as the server takes it: token ids or text.
        fields: The other fields of the request, `max_tokens` among them.

    Raises `ServerError` if the answer is not valid, or if the server read other than
    `len(ids)` tokens.
    """
    began, most = time.perf_counter(), fields["max_tokens"]
    body = {"model": model, "prompt": prompt, **fields}
    answer = await transport.post(_COMPLETIONS_PATH, body, max_bytes=(1 << 20) + _BYTES_OF_DRAWN * most)
    usage = answer["usage"]
    check_length(usage["prompt_tokens"].whole(), ids, usage["prompt_tokens"])
    (choice,) = answer["choices"].sequence(1)
    text, finish, n_tokens = choice["text"].text(), choice["finish_reason"].text(), usage["completion_tokens"].whole()
    if finish not in {"stop", "length"}:
        choice["finish_reason"].refuse(f"is {finish[:40]!r}: the text has no end")
    if n_tokens > most:
        usage["completion_tokens"].refuse(f"is {n_tokens}: {most} was the maximum that was asked for")
    if any("\ud800" <= c <= "\udfff" for c in text):
        choice["text"].refuse("has a lone surrogate, which is no character")
    return ServedText(text, n_tokens, finish, time.perf_counter() - began)


NAMED_IDS, TOP_IDS = 128, 20
"""Maximum of vLLM's `logprob_token_ids`, and its default maximum of `logprobs`."""
_KEY = re.compile(r"token_id:(0|[1-9][0-9]{0,9})")
_NEUTRAL: Mapping[str, Any] = {
    "temperature": 0,
    "top_p": 1,
    "min_p": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}
"""Sent explicitly, because vLLM's defaults are the model's generation configuration."""
OWN_ROUNDING, VLLM_ROUNDING = 1e-6, 1e-5
"""Maximum rounding error of a value relative to its row, in nats.

Here rows are normalised in float64 by sums of float32 exponentials; vLLM's log-softmax
is in float32.
"""


def token_of_key(answer: JsonValue, n_tokens: int, name: str | None = None) -> int:
    """Return the id in a key such as "token_id:123".

    Args:
        answer: The key itself, or the value of the key `name`.
        n_tokens: Number of tokens of the vocabulary.
        name: The key; None if it is `answer`.

    Raises `ServerError` for another key, or an id that is not below `n_tokens`.
    """
    found = _KEY.fullmatch(answer.text() if name is None else name)
    if found is None:
        answer.refuse("is not named by a token id (`return_tokens_as_token_ids`)")
    token = int(found[1])
    if token >= n_tokens:
        answer.refuse(f"is of token {token}: ids run from 0 to {n_tokens - 1}")
    return token


class CompletionsDialect:
    """Servers with the fields of vLLM's `/v1/completions`.

    Args:
        transport: The connection.
        model: The model.
        rounding: Maximum rounding error of a value relative to its row, in nats.
    """

    def __init__(self, transport: Transport, model: ServedModel, rounding: float) -> None:
        self._transport, self._model, self._rounding = transport, model, rounding
        n_context = model.n_context or DEFAULT_CONTEXT
        self.limits = PathLimits(
            named_ids=NAMED_IDS,
            top_ids=TOP_IDS,
            queries_per_request=1,
            requests_in_flight=transport.server.concurrency,
            path_tokens=max(1, n_context - 1),
        )

    async def rows(self, queries: Sequence[RowQuery]) -> list[RowBounds]:
        return await run_together(map(self._read_row, queries))

    async def _read_row(self, query: RowQuery) -> RowBounds:
        """Return a query's row, by a request for top tokens and one for named ones."""
        path, named = query.path.tolist(), query.named.tolist()
        values: dict[int, float] = {}
        top: list[float] = []
        answer = None
        if query.top or not named:
            answer, found = await self._read_last_row(path, {"logprobs": max(1, query.top)})
            values, top = found, sorted(found.values(), reverse=True)[: query.top]
        if named:
            answer, found = await self._read_last_row(path, {"logprobs": 0, "logprob_token_ids": named})
            values = {**values, **found}
        assert answer is not None  # noqa: S101 - one of the two was asked
        return partial_row(query, values, top, n_tokens=self._model.n_tokens, rounding=self._rounding, answer=answer)

    async def _read_last_row(
        self, path: Sequence[int], fields: Mapping[str, Any]
    ) -> tuple[JsonValue, dict[int, float]]:
        """Return the answer about the row after a path, and its log-probabilities."""
        lists = await self._request(path, {"max_tokens": 1, **fields})
        (row,) = lists["top_logprobs"].sequence(1)
        return row, self._read_values(row)

    async def _request(self, ids: Sequence[int], fields: Mapping[str, Any]) -> JsonValue:
        """Ask for a completion, and return its object `logprobs`."""
        body = {
            "model": self._model.name,
            "prompt": list(ids),
            "return_tokens_as_token_ids": True,
            "add_special_tokens": False,
            **_NEUTRAL,
            **fields,
        }
        answer = await self._transport.post(_COMPLETIONS_PATH, body)
        usage = answer.get("usage")
        if usage is not None:
            check_length(usage["prompt_tokens"].whole(), ids, usage["prompt_tokens"])
        (choice,) = answer["choices"].sequence(1)
        return choice["logprobs"]

    def _read_values(self, row: JsonValue) -> dict[int, float]:
        return {token_of_key(value, self._model.n_tokens, name): value.logp() for name, value in row.items()}

    async def read_again(self, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:
        async def echo_token(token: int) -> tuple[int, float]:
            ids = [*path, token]
            lists = await self._request(ids, {"max_tokens": 1, "logprobs": 1, "echo": True})
            values = lists["token_logprobs"].sequence(len(ids) + 1)
            return token, values[len(path)].logp()

        return dict(await run_together(map(echo_token, named)))

    async def encode(self, text: str) -> list[int] | None:
        body = {"model": self._model.name, "prompt": text, "add_special_tokens": False}
        answer = await self._transport.try_post("/tokenize", body)
        return None if answer is None else answer["tokens"].whole_numbers()


_GENERATE = "/generate"
_QUERIES_AT_ONCE = 256
"""Maximum number of rows of one request."""
_MAX_NAMED, _MAX_TOP = 1024, 64
_BYTES_OF_NAMED = 64
"""Maximum number of bytes of [value, id, null] in an answer."""
_ROUNDING = 1e-5
"""Maximum rounding error of values in nats: the log-softmax is in float32."""


class SglangDialect:
    """Servers of SGLang, asked by `/generate`."""

    def __init__(self, transport: Transport, model: ServedModel) -> None:
        self._transport, self._model = transport, model
        self.limits = PathLimits(
            named_ids=_MAX_NAMED,
            top_ids=_MAX_TOP,
            queries_per_request=_QUERIES_AT_ONCE,
            requests_in_flight=transport.server.concurrency,
            path_tokens=max(1, (model.n_context or DEFAULT_CONTEXT) - 1),
        )

    async def rows(self, queries: Sequence[RowQuery]) -> list[RowBounds]:
        parts = [queries[start : start + _QUERIES_AT_ONCE] for start in range(0, len(queries), _QUERIES_AT_ONCE)]
        return [row for part in await run_together(map(self._read_part, parts)) for row in part]

    async def _read_part(self, queries: Sequence[RowQuery]) -> list[RowBounds]:
        """Return the rows of queries that fit into one request."""
        paths = [query.path.tolist() for query in queries]
        named = [query.named.tolist() or [0] for query in queries]
        answers = await self._request(paths, named, top=max(query.top for query in queries))
        return [self._read_row(query, one, meta) for query, one, meta in zip(queries, named, answers, strict=True)]

    async def _request(
        self, paths: Sequence[Sequence[int]], named: Sequence[Sequence[int]], *, top: int, start: int = -1
    ) -> list[JsonValue]:
        """Ask about several paths, and return the `meta_info` of each.

        Args:
            paths: The paths.
            named: For each, the tokens whose log-probabilities are wanted.
            top: Number of most probable tokens of each row.
            start: Index of the first token of a path whose own log-probability is
                returned too; -1 for none.
        """
        body: dict[str, Any] = {
            "input_ids": list(paths),
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": [start] * len(paths),
            "top_logprobs_num": [top] * len(paths),
            "token_ids_logprob": list(named),
        }
        n_values = sum(len(ids) + top for ids in named) + (0 if start < 0 else 3 * sum(map(len, paths)))
        max_bytes = (1 << 20) + 4096 * len(paths) + _BYTES_OF_NAMED * n_values
        answer = await self._transport.post(_GENERATE, body, max_bytes=max_bytes)
        metas = [item["meta_info"] for item in answer.sequence(len(paths))]
        for path, meta in zip(paths, metas, strict=True):
            check_length(meta["prompt_tokens"].whole(), path, meta["prompt_tokens"])
        return metas

    def _read_row(self, query: RowQuery, named: Sequence[int], meta: JsonValue) -> RowBounds:
        """Return the row of a query from its `meta_info`; `named` were asked for."""
        (first,) = meta["output_token_ids_logprobs"].sequence(1)
        values = self._read_values(first)
        if sorted(values) != sorted(named):
            first.refuse("is about other tokens than were asked for")
        top: list[float] = []
        if query.top:
            (listed,) = meta["output_top_logprobs"].sequence(1)
            best = self._read_values(listed)
            top = sorted(best.values(), reverse=True)[: query.top]
            values = {**best, **values}
        return partial_row(query, values, top, n_tokens=self._model.n_tokens, rounding=_ROUNDING, answer=meta)

    def _read_values(self, entries: JsonValue) -> dict[int, float]:
        """Return the log-probability of each token from a list of [value, id]."""
        pairs = [entry.sequence()[:2] for entry in entries.sequence()]
        if any(len(pair) < 2 for pair in pairs):
            entries.refuse("has an item without a token")
        ids = [token.token(self._model.n_tokens) for _, token in pairs]
        refuse_duplicates(ids, entries)
        return {token: logp.logp() for token, (logp, _) in zip(ids, pairs, strict=True)}

    async def read_again(self, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:
        paths = [[*path, token] for token in named]
        metas = await self._request(paths, [[0]] * len(paths), top=0, start=0)
        values = {}
        for token, meta in zip(named, metas, strict=True):
            entries = meta["input_token_logprobs"].sequence(len(path) + 1)
            logp, last = entries[-1].sequence()[:2]
            if last.token(self._model.n_tokens) != token:
                last.refuse(f"is another token than {token}, which was sent there")
            values[token] = logp.logp()
        return values

    async def encode(self, text: str) -> list[int] | None:
        answer = await self._transport.try_post("/tokenize", {"prompt": text, "add_special_tokens": False})
        return None if answer is None else answer["tokens"].whole_numbers()


_NAMED_BY_ECHO, _ECHO_QUERIES = 1024, 1024
_ECHO_TOP = 5
"""Number of most probable tokens that `EchoDialect.read_again` asks for."""

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _SentPath:
    """A path as the prompt of a request.

    Attributes:
        prompt: Token ids, or a text.
        n_hidden: Number of tokens at the beginning that the echo may leave out: 1 for
            a BOS that the server itself puts before a text, else 0.
    """

    prompt: list[int] | str
    n_hidden: int


class EchoDialect:
    """Servers that return the log-probabilities of a prompt (`echo`).

    Args:
        transport: The connection.
        model: The model.
        vocabulary: The vocabulary, which turns tokens into texts.
        takes_ids: Whether prompts are sent as token ids, and not as texts.
    """

    def __init__(self, transport: Transport, model: ServedModel, vocabulary: Vocabulary, *, takes_ids: bool) -> None:
        self._transport, self._model, self._vocabulary, self._takes_ids = transport, model, vocabulary, takes_ids
        self.limits = PathLimits(
            named_ids=min(_NAMED_BY_ECHO, model.n_tokens),
            top_ids=0,
            queries_per_request=_ECHO_QUERIES,
            requests_in_flight=transport.server.concurrency,
            path_tokens=max(1, (model.n_context or DEFAULT_CONTEXT) - 2),
        )

    async def rows(self, queries: Sequence[RowQuery]) -> list[RowBounds]:
        paths: list[Tokens] = [tuple(query.path.tolist()) for query in queries]
        wanted = {(*path, token) for path, query in zip(paths, queries, strict=True) for token in query.named.tolist()}
        values: dict[Tokens, float] = {}
        for sequence, found in await run_together(self._echo(one) for one in longest_sequences(wanted)):
            for n in range(2, len(sequence) + 1):
                if sequence[:n] in wanted:
                    value = found[n - 1]
                    values[sequence[:n]] = value.logp()
        rows = []
        for path, query in zip(paths, queries, strict=True):
            known = {token: values[path + (token,)] for token in query.named.tolist()}  # noqa: RUF005 - unpacking in an index is read as Python 3.11
            answer = JsonValue({}, self._transport.server.url + _COMPLETIONS_PATH)
            rows.append(partial_row(query, known, [], n_tokens=self._model.n_tokens, rounding=_ROUNDING, answer=answer))
        return rows

    async def _echo(self, sequence: Tokens) -> tuple[Tokens, list[JsonValue]]:
        """Return a sequence and each token's log-probability; the first is null."""
        sent = self._encode_path(sequence)
        answer = await self._request(sent, {"echo": True, "logprobs": 1})
        usage = answer["usage"]
        check_length(usage["prompt_tokens"].whole(), sequence, usage["prompt_tokens"])
        (choice,) = answer["choices"].sequence(1)
        lists = choice["logprobs"]
        texts, values = lists["tokens"].texts(), lists["token_logprobs"].sequence()
        n_drawn = usage["completion_tokens"].whole()
        # A server may leave out the BOS that it added itself.
        n_hidden = len(sequence) + n_drawn - len(values)
        if len(texts) != len(values) or n_hidden not in {0, sent.n_hidden}:
            lists["token_logprobs"].refuse(
                f"has {len(values)} values for {len(sequence)} tokens of a prompt and {n_drawn} drawn: "
                "the server's echo is off by one, or of another prompt"
            )
        for token, text in zip(sequence[n_hidden:], texts, strict=False):
            self._check_spelling(token, text, lists["tokens"], may_begin=token == sequence[n_hidden])
        return sequence, [*values[:n_hidden], *values]

    def prompt_of(self, ids: Sequence[int]) -> list[int] | str:
        """Return tokens as a prompt of the server: ids, or text if it takes no ids.

        Raises `OptionError` if the text would be tokenized differently.
        """
        return self._encode_path(tuple(ids)).prompt

    def _encode_path(self, sequence: Tokens) -> _SentPath:
        """Return a path as a prompt; raises as `prompt_of` does."""
        if self._takes_ids:
            return _SentPath(list(sequence), 0)
        vocabulary = self._vocabulary
        begins = bool(sequence) and sequence[0] == vocabulary.bos
        plain = sequence[1:] if begins else sequence
        data = b"".join(vocabulary.pieces[token] or vocabulary.texts[token].encode() for token in plain)
        if vocabulary.space_prefix and vocabulary.spacing is None:
            data = data.removeprefix(b" ")
        tokens, rest = vocabulary.encode_spans([(data, True)])
        read = [*tokens.tolist(), *vocabulary.encode_run(rest, after=int(tokens[-1]) if len(tokens) else None)]
        if begins != (vocabulary.bos is not None) or tuple(read) != plain or not _is_text(data):
            shown = data[-60:].decode("utf-8", "backslashreplace")
            reason = "a path whose text has these tokens: this server takes texts alone, and reads this one as others"
            raise OptionError("path", f"…{shown}", reason)
        return _SentPath(data.decode(), int(begins))

    async def _request(self, sent: _SentPath, fields: Mapping[str, Any]) -> JsonValue:
        """Send a path as a prompt, and return the answer; a drawn token is ignored."""
        body = {"model": self._model.name, "prompt": sent.prompt, "max_tokens": 1, "temperature": 0, **fields}
        return await self._transport.post(_COMPLETIONS_PATH, body)

    def _check_spelling(self, token: int, text: str, answer: JsonValue, *, may_begin: bool) -> None:
        """Raise `ServerError` if the echo shows a token with another text than ours.

        If `may_begin`, the text may lack a space at its beginning.
        """
        piece = self._vocabulary.pieces[token]
        if not piece or text == f"token_id:{token}":
            return
        try:
            plain = piece.decode()
        except UnicodeDecodeError:
            return  # shown as bytes, as U+FFFD or not at all
        if text != plain and not (may_begin and text == plain.removeprefix(" ")):
            answer.refuse(f"shows {text[:40]!r} for token {token}, which is {plain[:40]!r} here: another tokenizer")

    async def read_again(self, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:  # noqa: ARG002
        sent = self._encode_path(tuple(path))
        answer = await self._request(sent, {"logprobs": _ECHO_TOP})
        (choice,) = answer["choices"].sequence(1)
        rows = choice["logprobs"]["top_logprobs"].sequence()
        if not rows:
            return {}  # it drew the end of the text
        known = {text: value.logp() for text, value in rows[0].items()}
        found = {token: value for text, value in known.items() for token in self._only_token(text)}
        return {token: value for token, value in found.items() if self._can_be_sent((*path, token))}

    def _can_be_sent(self, sequence: Tokens) -> bool:
        """Return whether a path can be sent as a prompt."""
        try:
            self._encode_path(sequence)
        except OptionError:
            return False
        return True

    def _only_token(self, text: str) -> list[int]:
        """Return [token] if a text stands for exactly one token, else []."""
        texts, ids = self._vocabulary.by_bytes()
        data = text.encode("utf-8", "surrogatepass")
        low, high = bisect_left(texts, data), bisect_right(texts, data)
        return [int(ids[low])] if high - low == 1 and self._is_certain(text) else []

    def _is_certain(self, text: str) -> bool:
        """Return whether an echoed text surely is the text of its token, unaltered.

        Bytes that are not UTF-8 come as U+FFFD, so such a text is not certain. Neither
        is an empty text, nor one that begins or ends with white space other than a
        space, which may have been changed on the way.
        """
        return "\ufffd" not in text and text.strip() == text.strip(" ") and bool(text)

    async def encode(self, text: str) -> list[int] | None:
        answer = await self._transport.try_post("/extras/tokenize", {"input": text})
        if answer is None:
            answer = await self._transport.try_post("/tokenize", {"prompt": text, "add_special_tokens": False})
            return None if answer is None else answer["tokens"].whole_numbers()
        tokens, bos = answer["tokens"].whole_numbers(), self._vocabulary.bos
        return tokens[1:] if bos is not None and tokens[:1] == [bos] else tokens


def longest_sequences(sequences: set[Tokens]) -> list[Tokens]:
    """Return the sequences that are not the beginning of another one."""
    ordered = sorted(sequences)
    return [one for one, following in zip(ordered, [*ordered[1:], ()], strict=True) if following[: len(one)] != one]


_COMPLETION_PATH = "/completion"
_STEPS = (64, 1024)
_WALK = 256
"""Maximum number of rows of one call of `LlamaServerDialect.rows`."""
_BYTES_OF_TOKEN = 2048
"""Maximum number of bytes of an answer for one token, whose bytes are listed."""
_FORCED = 1e6
"""Added to the logit of a token so that it is drawn.

The probabilities in the answer are those without it. After a token that ends within a
character llama-server gives no probabilities, so such a token is never drawn.
"""
_DRAWN_ALONE = 32
"""Maximum number of named tokens that are drawn one by one to get their values."""

Values = dict[int, float]


class LlamaServerDialect:
    """Servers of llama.cpp (llama-server), asked by `/completion`.

    Args:
        transport: The connection.
        model: The model.
        n_slots: Number of requests that the server works on at once.
        pieces: Bytes of each token.
    """

    def __init__(self, transport: Transport, model: ServedModel, *, n_slots: int, pieces: Sequence[bytes]) -> None:
        self._transport, self._model = transport, model
        self._is_whole = list(map(_is_text, pieces))
        self._letter = next((token for token, piece in enumerate(pieces) if len(piece) == 1 and piece.isalpha()), None)
        # Its softmax sums float32 numbers one after another.
        self._rounding = max(1e-6, model.n_tokens * 2.0**-24)
        self._places = asyncio.Semaphore(max(1, min(n_slots, transport.server.concurrency)))
        self.limits = PathLimits(
            named_ids=model.n_tokens,
            top_ids=model.n_tokens,
            queries_per_request=_WALK,  # one request each, in the order of a walk
            requests_in_flight=max(1, min(n_slots, transport.server.concurrency)),
            path_tokens=max(1, (model.n_context or DEFAULT_CONTEXT) - 1),
        )

    async def rows(self, queries: Sequence[RowQuery]) -> list[RowBounds]:
        order = sorted(range(len(queries)), key=lambda index: tuple(queries[index].path.tolist()))
        found: dict[int, RowBounds] = {}
        async with self._places:
            for index in order:
                found[index] = await self._read_row(queries[index])
        return [found[index] for index in range(len(queries))]

    async def _read_row(self, query: RowQuery) -> RowBounds:
        """Return a query's row; ask for more tokens until all named ones are there."""
        n_tokens, path, named = self._model.n_tokens, query.path.tolist(), query.named.tolist()
        sizes = sorted({*(size for size in _STEPS if max(query.top, 1) <= size < n_tokens), n_tokens})
        drawn = next((token for token in reversed(named) if self._is_whole[token]), self._letter)
        answer, listed, values = await self._request(path, sizes[0], drawn)
        missing = [token for token in named if token not in listed and token not in values]
        if len(missing) <= _DRAWN_ALONE and all(self._is_whole[token] for token in missing):
            for token in missing:
                values |= (await self._request(path, 1, token))[2]
        for size in sizes[1:]:
            if all(token in listed or token in values for token in named):
                break
            answer, listed, _ = await self._request(path, size, drawn)
        top = sorted(listed.values(), reverse=True)[: query.top]
        row = partial_row(query, {**values, **listed}, top, n_tokens=n_tokens, rounding=self._rounding, answer=answer)
        least = min(listed.values(), default=0.0)  # every token that was not listed is less probable
        return RowBounds(row.ids, row.logp, row.log_rest, min(row.rest_max, least))

    async def _request(
        self, path: Sequence[int], n: int, drawn: int | None, *, is_cached: bool = True
    ) -> tuple[JsonValue, Values, Values]:
        """Ask for the n most probable tokens after a path.

        Args:
            path: The path.
            n: Number of tokens.
            drawn: A token whose draw is forced, so that its value is returned too.
            is_cached: Whether the server may use its cache of the prompt.

        Returns:
            The answer, the values of the n tokens, and that of the drawn token.
        """
        n_tokens = self._model.n_tokens
        body = {
            "prompt": list(path),
            "n_predict": 1,
            "temperature": 0,
            "n_probs": n,
            "post_sampling_probs": False,
            "cache_prompt": is_cached,
            **({} if drawn is None else {"logit_bias": [[drawn, _FORCED]]}),
        }
        answer = await self._transport.post(_COMPLETION_PATH, body, max_bytes=(1 << 20) + _BYTES_OF_TOKEN * n)
        evaluated = answer.get("tokens_evaluated")
        if evaluated is not None:
            check_length(evaluated.whole(), path, evaluated)
        (row,) = answer["completion_probabilities"].sequence(1)
        entries = row["top_logprobs"].sequence(min(n, n_tokens))
        ids = [entry["id"].token(n_tokens) for entry in entries]
        refuse_duplicates(ids, row["top_logprobs"])
        listed = {token: entry["logprob"].logp() for token, entry in zip(ids, entries, strict=True)}
        return answer, listed, {row["id"].token(n_tokens): row["logprob"].logp()}

    async def read_again(self, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:  # noqa: ARG002 - all
        """Read a path token by token; `rows` reads a new one in one batch."""
        async with self._places:
            for n in range(1, len(path)):
                await self._request(path[:n], 1, self._letter, is_cached=n > 1)
            _, values, _ = await self._request(path, self._model.n_tokens, self._letter)
            # Otherwise `rows` would find the path in the cache.
            await self._request(path[:1], 1, self._letter, is_cached=False)
        return values

    async def encode(self, text: str) -> list[int] | None:
        body = {"content": text, "add_special": False, "parse_special": True}
        answer = await self._transport.post("/tokenize", body)
        return answer["tokens"].whole_numbers()


def _is_text(piece: bytes) -> bool:
    """Return whether a token's bytes are UTF-8."""
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
