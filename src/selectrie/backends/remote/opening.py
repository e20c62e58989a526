"""Opens a model that a server evaluates: finds out, compares, verifies."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from typing import Any
from urllib.parse import quote

import httpx2
import numpy as np

from selectrie.backends.remote.dialects import (
    OWN_ROUNDING,
    VLLM_ROUNDING,
    CompletionsDialect,
    EchoDialect,
    LlamaServerDialect,
    ServedModel,
    ServerDialect,
    SglangDialect,
    draw,
    together,
)
from selectrie.backends.remote.transport import JsonValue, Server, Transport
from selectrie.backends.remote.vocabulary import RemoteTokenizer, read_vocabulary
from selectrie.core.path_model import Cancellation, PathLimits, RowBounds, RowQuery, ServedText, check_queries
from selectrie.core.types import IntArray, ModelIdentity
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import CancelledError, OptionError, ServerError, TextError, UnsupportedModelError, clip

N_TEXTS = 200
"""Number of texts that are compared."""
_N_CONTROL = 12
_WORDS = (
    *("The capital of France is Paris.", "don't we'll I'M", "HTTPServer", "x == y[0] != z", "1234567.89 + 1e-7"),
    *("def f(a):\n    return a\n", "\t\tif x:\r\n", "a\n\n\nb", "  two  spaces  ", " a", "a ", " ", "  ", "\n", "\n\n"),
    *("naïve café Ünïcödé", "e\u0301 n\u0303", "ﬁ ﬂ ½ ①", "日本語の文章です。", "한국어 문장", "Привет, мир!"),
    *("مرحبا بالعالم", "שלום", "नमस्ते दुनिया", "สวัสดี", "\u00a0\u2003\u3000", "\u200b\u200d\ufeff", "\u2581a\u2581"),
    *("🤗", "👩‍👩‍👧‍👦 🇫🇷", "🏳️‍🌈a", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "a<0x0A>b", "<|x|>", "</s>", "[INST]", "{{x}}", '{"a": [1, null]}'),
)
_LEADING = "".join(
    chr(point)
    for point in (0x80, 0x100, 0x7FF, 0x800, 0xFFF, 0x1000, 0x8000, 0xD7FF, 0xE000, 0xFFFD, 0x10000, 0x40000, 0x10FFFF)
)
"""Characters whose UTF-8 begins with different bytes."""


def fixed_texts(vocabulary: Vocabulary) -> list[str]:
    """Return the texts: words, other bytes, control spellings, ASCII characters."""
    texts = list(dict.fromkeys(_WORDS))
    texts += [f"a{character}" for character in _LEADING]
    spellings = [vocabulary.texts[token] for token in vocabulary.control.tolist() if vocabulary.texts[token]]
    texts += [f"a {spelling}b" for spelling in spellings[:_N_CONTROL] if _is_plain(spelling)]
    texts += [f"x{chr(code)}y" for code in range(128)]
    more = (f"number {n} of {n * n}" for n in range(N_TEXTS))
    texts += [next(more) for _ in range(N_TEXTS - len(texts))]
    return texts[:N_TEXTS]


def own_texts(vocabulary: Vocabulary) -> list[str]:
    """Return a tenth of the texts, some of each kind.

    Where the tokenizer is the server's own, only how its texts are joined can differ.
    """
    return fixed_texts(vocabulary)[::10]


def compare_texts(
    name: str, vocabulary: Vocabulary, texts: Iterable[str], encoded: Callable[[list[str]], list[list[int] | None]]
) -> int:
    """Return how many texts were compared.

    A text that the vocabulary cannot write is left out.

    Args:
        name: What serves the model, for errors.
        vocabulary: The vocabulary.
        texts: The texts.
        encoded: Returns the server's tokens of texts, None where it does not say.

    Raises `UnsupportedModelError` for the first text with other tokens.
    """
    known = [(text, own) for text in texts if (own := _own_tokens(vocabulary, text)) is not None]
    found = encoded([text for text, _ in known])
    n_compared = 0
    for (text, own), theirs in zip(known, found, strict=True):
        if theirs is None:
            continue
        if own != theirs:
            raise UnsupportedModelError(
                name,
                f"the text {text!r} is the tokens {_shown(theirs)} there, and {_shown(own)} with this tokenizer; "
                "give the tokenizer of the model that is served",
            )
        n_compared += 1
    return n_compared


def _own_tokens(vocabulary: Vocabulary, text: str) -> list[int] | None:
    try:
        tokens, rest = vocabulary.encode_spans([(text.encode(), True)])
        last = int(tokens[-1]) if len(tokens) else None
        return [*tokens.tolist(), *vocabulary.encode_run(rest, after=last)]
    except TextError:
        return None


def _is_plain(spelling: str) -> bool:
    try:
        return bool(spelling.encode())
    except UnicodeEncodeError:
        return False


def _shown(tokens: list[int]) -> str:
    return f"{tokens[:12]}" if len(tokens) <= 12 else f"{tokens[:12]} and {len(tokens) - 12} more"


MAX_NATS = 1.0
"""Difference above which a server is refused."""
FACTOR = 4.0
"""The stated tolerance, over the largest difference that was seen."""
_ALIKE = 0.1
"""Two readings that differ by less are of the same row, if those compared first differ
by more than `MAX_NATS`."""
_FLOOR = -40.0
"""Log-probabilities below this one are not compared; no row is known by them."""
_TEXTS = ("The capital of France is the city of", "1, 2, 3, 4, 5, 6, 7", "def main():\n    return")
_N_NAMED = 4
_N_EXPLAINED = 8
"""Number of values that a neighbouring row has to explain."""
_OFF_BY_ONE = "its values are off by one token: one of two readings is that of the row before or after"


@dataclass(frozen=True, slots=True)
class _Read:
    """The log-probability of a token after a path, in two readings."""

    path: list[int]
    token: int
    first: float
    second: float


async def measured_tolerance(
    name: str, dialect: ServerDialect, vocabulary: Vocabulary, paths: Sequence[Sequence[int]]
) -> float:
    """Return the tolerance of a server, in nats.

    The tolerance is four times the largest difference of two readings of a row.

    Args:
        name: What serves the model, for errors.
        dialect: How it is asked.
        vocabulary: The vocabulary.
        paths: The paths that are read, from `paths_of`.

    Raises `UnsupportedModelError` if it exceeds 1 nat; the error says so if the values
    are off by one token, or if the server puts BOS before the ids that it gets.
    """
    differences: list[float] = []
    compared: list[_Read] = []
    for path in paths:
        again = dict(await dialect.read_again(path, _named(vocabulary, path)))
        if not again:
            continue
        first = await _first(dialect, path, list(again))
        for token, value in again.items():
            if max(value, first[token]) > _FLOOR:
                differences.append(abs(value - first[token]))
                compared.append(_Read(list(path), token, first[token], value))
    if not differences:
        raise UnsupportedModelError(name, "none of its log-probabilities could be read in a second way, to check them")
    largest = max(differences)
    if not largest <= MAX_NATS:
        raise UnsupportedModelError(name, await _why(dialect, vocabulary, compared, largest))
    return FACTOR * largest


def paths_of(vocabulary: Vocabulary, max_tokens: int) -> list[list[int]]:
    """Return three paths: of texts, or of ids where the tokenizer cannot write them.

    It must not be called on the thread of the transport, which the tokenizer may ask.
    """
    start = [] if vocabulary.bos is None else [vocabulary.bos]
    paths = []
    for index, text in enumerate(_TEXTS):
        try:
            tokens = vocabulary.encode(text.encode()).tolist()
        except TextError:
            plain = np.setdiff1d(np.arange(len(vocabulary.pieces)), vocabulary.control)
            tokens = [int(plain[(7 * index + 11 * n) % len(plain)]) for n in range(6)]
        paths.append([*start, *tokens][: max(1, max_tokens - 2)])
    return paths


def _named(vocabulary: Vocabulary, path: Sequence[int]) -> list[int]:
    """Return tokens that are compared after a path."""
    n = len(vocabulary.pieces)
    return list(dict.fromkeys([path[-1], n // 3, n // 2, n - 1]))[:_N_NAMED]


async def _first(dialect: ServerDialect, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:
    (row,) = await dialect.rows([RowQuery(np.array(path, dtype=np.int32), np.array(sorted(named), dtype=np.int32))])
    return dict(zip(row.ids.tolist(), row.logp.tolist(), strict=True))


async def _why(dialect: ServerDialect, vocabulary: Vocabulary, compared: Sequence[_Read], largest: float) -> str:
    """Return what is wrong, as far as readings of neighbouring paths tell."""
    worst = sorted(compared, key=lambda one: -abs(one.first - one.second))[:_N_EXPLAINED]
    start = vocabulary.start
    ways: list[tuple[str, Callable[[_Read], list[int]]]] = [
        (_OFF_BY_ONE, lambda one: [*one.path, one.token]),
        (_OFF_BY_ONE, lambda one: one.path[:-1]),
    ]
    if start is not None:
        ways.insert(0, ("it puts BOS before the token ids of a prompt", lambda one: [start, *one.path]))
    for said, moved in ways:
        if await _explains(dialect, worst, [moved(one) for one in worst]):
            return f"{said} (two readings of one row differ by {largest:.3g} nats)"
    return (
        f"two readings of one row differ by {largest:.3g} nats, more than {MAX_NATS:g}: its values cannot be relied on"
    )


async def _explains(dialect: ServerDialect, compared: Sequence[_Read], paths: Sequence[list[int]]) -> bool:
    """Return whether one of two readings is, each time, that of another path."""
    is_first = is_second = True
    for one, path in zip(compared, paths, strict=True):
        if not path:
            return False
        first = (await _first(dialect, path, [one.token])).get(one.token, math.nan)
        second = (await dialect.read_again(path, [one.token])).get(one.token, math.nan)
        is_first &= abs(first - one.second) < _ALIKE
        is_second &= abs(second - one.first) < _ALIKE
    return is_first or is_second


_MAX_NAMES = 20
"""Maximum number of models that an error lists."""


@unique
class Kind(Enum):
    """The kinds of servers, by what they call themselves as owners of their models."""

    OWN = "selectrie"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMA_SERVER = "llamacpp"
    ECHO = ""


_NAMES = {Kind.OWN: "selectrie", Kind.VLLM: "vLLM", Kind.SGLANG: "SGLang", Kind.LLAMA_SERVER: "llama-server"}


class Found:
    """What a server says of itself.

    Attributes:
        kind: Its kind.
        name: Name of the model.
        server: What it calls itself, with its version.
        n_context: Number of tokens of the context, or None.
        n_tokens: Number of tokens of the vocabulary, or None.
        n_slots: Number of requests that it works on at once, or None.
        tolerance: Nats by which the server itself says that its values may move.
    """

    def __init__(self, kind: Kind, name: str, entry: JsonValue) -> None:
        self.kind, self.name = kind, name
        self.server = _NAMES.get(kind, "a server with echo")
        meta = entry.get("meta")
        self.n_context = _count(entry, "max_model_len")
        self.n_tokens = None if meta is None or kind is not Kind.LLAMA_SERVER else _count(meta, "n_vocab")
        if self.n_context is None and meta is not None and kind is Kind.LLAMA_SERVER:
            self.n_context = _count(meta, "n_ctx")
        self.n_slots: int | None = None
        self.tolerance = 0.0


async def find_out(transport: Transport, model: str | None) -> Found:
    """Return what answers.

    Raises:
        OptionError: If there is no model of the name, or several without one.
        ServerError: If the server does not answer.
        UnsupportedModelError: If it has no list of models.
    """
    models = await transport.get("/v1/models", may_lack=True)
    if models is None:
        raise UnsupportedModelError(
            transport.server.url,
            "has no /v1/models, so it is no server that is known here: selectrie, vLLM, SGLang, llama-server, or one "
            "with OpenAI's /v1/completions",
        )
    entries = models["data"].sequence()
    entry = _entry(entries, model)
    owner = entry.get("owned_by")
    kind = next((kind for kind in Kind if owner is not None and owner.value == kind.value), Kind.ECHO)
    found = Found(kind, entry["id"].text(), entry)
    await _complete(transport, found)
    return found


def _entry(entries: Sequence[JsonValue], model: str | None) -> JsonValue:
    names = [entry["id"].text() for entry in entries]
    listed = ", ".join(repr(clip(name, 80)) for name in names[:_MAX_NAMES]) + (" …" if len(names) > _MAX_NAMES else "")
    if model is None and len(names) != 1:
        raise OptionError("model", model, f"one of the models that the server has: {listed or 'none'}")
    if model is not None and model not in names:
        raise OptionError("model", model, f"one of the models that the server has: {listed or 'none'}")
    return entries[0 if model is None else names.index(model)]


async def _complete(transport: Transport, found: Found) -> None:
    """Ask for what the list of models does not say."""
    version: JsonValue | None = None
    if found.kind is Kind.OWN:
        info = await transport.get(f"/tokenizer_info?model={quote(found.name, safe='')}", max_bytes=8 << 20)
        assert info is not None  # noqa: S101 - it may not lack
        found.n_context = _count(info, "model_max_length")
        stated = info.get("tolerance")
        found.tolerance = 0.0 if stated is None else stated.nats()
        health = await transport.get("/health", may_lack=True)
        version = None if health is None else health.get("version")
    elif found.kind is Kind.VLLM:
        answer = await transport.get("/version", may_lack=True)
        version = None if answer is None else answer.get("version")
    elif found.kind is Kind.SGLANG:
        answer = await transport.get("/get_server_info", max_bytes=8 << 20, may_lack=True)
        version = None if answer is None else answer.get("version")
    elif found.kind is Kind.LLAMA_SERVER:
        props = await transport.get("/props", max_bytes=8 << 20, may_lack=True)
        if props is not None:
            version = props.get("build_info")
            found.n_slots = _count(props, "total_slots")
    if version is not None:
        found.server = f"{found.server} {clip(version.text(), 80)}"


def _count(answer: JsonValue, name: str) -> int | None:
    value = answer.get(name)
    return None if value is None else value.whole() or None


class RemoteModel:
    """A model that a server evaluates (`PathModel`), and draws with as well.

    It satisfies `core.path_model.SupportsCompletion`. `prompt_of` returns tokens as the
    server takes a prompt of text.

    Attributes:
        dialect: How the server is asked for rows.
        transport: The connection, which `close` closes.
    """

    def __init__(
        self,
        transport: Transport,
        dialect: ServerDialect,
        *,
        vocabulary: Vocabulary,
        identity: ModelIdentity,
        tolerance: float,
        prompt_of: Callable[[Sequence[int]], list[int] | str] = list,
    ) -> None:
        self.transport, self.dialect, self._prompt_of = transport, dialect, prompt_of
        # Requests that wait for one another do not wait within their timeout.
        self._places = asyncio.Semaphore(max(1, dialect.limits.requests_in_flight))
        self._vocabulary, self._identity, self._tolerance = vocabulary, identity, tolerance

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    @property
    def identity(self) -> ModelIdentity:
        return self._identity

    @property
    def limits(self) -> PathLimits:
        return self.dialect.limits

    @property
    def tolerance(self) -> float:
        return self._tolerance

    def rows(self, queries: Sequence[RowQuery], cancellation: Cancellation) -> list[RowBounds]:
        check_queries(queries, self.limits, len(self._vocabulary.pieces))
        self.transport.require_open()
        if cancellation.is_cancelled:
            raise CancelledError
        return self.transport.run(lambda: self.dialect.rows(queries), cancellation)

    @property
    def sampler_name(self) -> str:
        return self._identity.build

    def complete(
        self,
        prompt: IntArray,
        fields: Mapping[str, Any],
        done: Callable[[ServedText | BaseException], None],
        cancellation: Cancellation,
    ) -> None:
        ids = prompt.tolist()

        async def drawn() -> ServedText:
            async with self._places:
                return await draw(self.transport, self._identity.name, ids, self._prompt_of(ids), fields)

        self.transport.start(drawn, done, cancellation)

    def close(self) -> None:
        self.transport.close()


_MAX_VOCABULARY_BYTES = 256 << 20
_REASONS = {
    Kind.LLAMA_SERVER: "does not say which tokens are unknown and which control, nor what unused ones are called"
}
"""Why a vocabulary cannot be read from what a server says of its tokens."""


def open_server(
    server: Server,
    *,
    model: str | None = None,
    read_tokenizer: Callable[[int | None], Vocabulary] | None = None,
    http_transport: httpx2.AsyncBaseTransport | None = None,
) -> RemoteModel:
    """Open the model of a server.

    The server's values are verified: rows are read in two ways, and 200 texts are
    encoded here and there, or 20 where the tokenizer is the server's own.

    Args:
        server: Where it is.
        model: Name of the model; None for the only one.
        read_tokenizer: Returns the vocabulary, given the number of tokens if the
            server says it; None for the server's own, where it hands it over.
        http_transport: What carries requests, for tests.

    Raises:
        OptionError: If there is no such model, or if a tokenizer must be given.
        ServerError: If the server fails, or answers what cannot be right.
        UnsupportedModelError: If the server is of no known kind, has another tokenizer,
            or if two readings of a row differ by more than 1 nat.
    """
    transport = Transport(server, http_transport)
    try:
        found = transport.run(lambda: find_out(transport, model))
        vocabulary = _vocabulary(transport, found, read_tokenizer)
        dialect = _dialect(transport, found, vocabulary)
        is_own = found.kind is Kind.OWN and read_tokenizer is None
        texts = own_texts(vocabulary) if is_own else fixed_texts(vocabulary)
        _compare_tokenizers(transport, found, dialect, vocabulary, texts)
        paths = paths_of(vocabulary, dialect.limits.path_tokens)
        tolerance = transport.run(lambda: measured_tolerance(server.url, dialect, vocabulary, paths))
    except BaseException:
        transport.close()
        raise
    identity = ModelIdentity(
        name=found.name,
        digest=f"served:{found.name}",
        tokenizer_digest=vocabulary.digest,
        backend="remote",
        build=found.server,
        processor="remote",
        precision="remote",
    )
    return RemoteModel(
        transport,
        dialect,
        vocabulary=vocabulary,
        identity=identity,
        tolerance=max(tolerance, found.tolerance),
        prompt_of=dialect.prompt_of if isinstance(dialect, EchoDialect) else list,
    )


def _vocabulary(
    transport: Transport, found: Found, read_tokenizer: Callable[[int | None], Vocabulary] | None
) -> Vocabulary:
    """Return the vocabulary that was given, or the server's own."""
    given = None if read_tokenizer is None else read_tokenizer(found.n_tokens)
    if found.kind is not Kind.OWN:
        if given is None:
            expected = f"the tokenizer of {found.name!r}: a folder, `hf:owner/repo` or a GGUF file, as {found.server} "
            raise OptionError("tokenizer", None, expected + _REASONS.get(found.kind, "does not hand it over"))
        if found.n_tokens is not None and found.n_tokens != given.n_tokens:
            reason = f"the model has {found.n_tokens} tokens, the given tokenizer {given.n_tokens}"
            raise UnsupportedModelError(transport.server.url, reason)
        return given
    tokenizer = RemoteTokenizer(transport, found.name)
    path = f"/v1/vocabulary?model={quote(found.name, safe='')}"
    answer = transport.run(lambda: transport.get(path, max_bytes=_MAX_VOCABULARY_BYTES))
    if answer is None:
        raise ServerError(transport.server.url + path, "there is no answer")
    own = read_vocabulary(answer, begin=tokenizer.begin, inside=tokenizer.inside, normalize=tokenizer.normalize)
    if given is None:
        tokenizer.prefetch([text.encode() for text in own_texts(own)])
        return own
    if given.digest != own.digest:
        reason = f"its vocabulary has the digest {own.digest}, the given tokenizer {given.digest}"
        raise UnsupportedModelError(transport.server.url, f"{reason}; leave `tokenizer` out, or give the model's own")
    return given


def _dialect(transport: Transport, found: Found, vocabulary: Vocabulary) -> ServerDialect:
    """Return how the server is asked for rows."""
    model = ServedModel(found.name, found.server, vocabulary.n_tokens, found.n_context)
    if found.kind is Kind.SGLANG:
        return SglangDialect(transport, model)
    if found.kind is Kind.LLAMA_SERVER:
        return LlamaServerDialect(transport, model, n_slots=found.n_slots or 1, pieces=vocabulary.pieces)
    if found.kind is Kind.ECHO:
        return EchoDialect(transport, model, vocabulary, takes_ids=_takes_ids(transport, found, vocabulary))
    return CompletionsDialect(transport, model, OWN_ROUNDING if found.kind is Kind.OWN else VLLM_ROUNDING)


def _takes_ids(transport: Transport, found: Found, vocabulary: Vocabulary) -> bool:
    """Return whether a server takes token ids as a prompt."""
    plain = np.setdiff1d(np.arange(vocabulary.n_tokens), vocabulary.control)[:3].tolist()
    body = {"model": found.name, "prompt": plain, "max_tokens": 1, "temperature": 0}
    try:
        answer = transport.run(lambda: transport.post("/v1/completions", body))
    except ServerError as error:
        if error.status in (400, 422, 500):  # 500: llama_cpp.server, of what its schema refuses
            return False
        raise
    return answer["usage"]["prompt_tokens"].whole() == len(plain)


def _compare_tokenizers(
    transport: Transport, found: Found, dialect: ServerDialect, vocabulary: Vocabulary, texts: Sequence[str]
) -> None:
    """Raise `UnsupportedModelError` if a text has other tokens there than here."""

    def encoded(texts: list[str]) -> list[list[int] | None]:
        return transport.run(lambda: together(map(dialect.encode, texts)))

    name = transport.server.url
    n_compared = compare_texts(name, vocabulary, texts, encoded)
    if not n_compared and found.kind is not Kind.ECHO:
        reason = f"{found.server} does not say how it encodes texts (/tokenize), so its tokenizer cannot be compared"
        raise UnsupportedModelError(name, f"{reason}; use a version that does")
