"""Opens a model that a server evaluates, after checking its tokenizer and values."""

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
    run_together,
)
from selectrie.backends.remote.transport import JsonValue, Server, Transport
from selectrie.backends.remote.vocabulary import RemoteTokenizer, read_vocabulary
from selectrie.core.path_model import Cancellation, RowBounds, RowQuery, ServedText, check_queries
from selectrie.core.types import IntArray, ModelIdentity
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import CancelledError, OptionError, ServerError, TextError, UnsupportedModelError, clip

N_TEXTS = 200
"""Number of texts whose tokens are compared with those of the server."""
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
    """Return the texts by which tokenizers are compared.

    They are words in many scripts, other leading bytes, texts of control tokens, ASCII
    characters, and numbers.
    """
    texts = list(dict.fromkeys(_WORDS))
    texts += [f"a{character}" for character in _LEADING]
    spellings = [vocabulary.texts[token] for token in vocabulary.control.tolist() if vocabulary.texts[token]]
    texts += [f"a {spelling}b" for spelling in spellings[:_N_CONTROL] if _is_plain(spelling)]
    texts += [f"x{chr(code)}y" for code in range(128)]
    more = (f"number {n} of {n * n}" for n in range(N_TEXTS))
    texts += [next(more) for _ in range(N_TEXTS - len(texts))]
    return texts[:N_TEXTS]


def sample_texts(vocabulary: Vocabulary) -> list[str]:
    """Return a tenth of `fixed_texts`, some of each kind.

    They suffice if the tokenizer is the server's own.
    """
    return fixed_texts(vocabulary)[::10]


def compare_texts(
    name: str, vocabulary: Vocabulary, texts: Iterable[str], encode: Callable[[list[str]], list[list[int] | None]]
) -> int:
    """Compare the tokens of texts here and on the server; return how many could be.

    A text that the vocabulary cannot tokenize is left out.

    Args:
        name: The address of the server, for errors.
        vocabulary: The vocabulary.
        texts: The texts.
        encode: Returns the server's tokens of texts, each None if it does not say.

    Raises `UnsupportedModelError` for the first text with other tokens.
    """
    known = [(text, own) for text in texts if (own := _own_tokens(vocabulary, text)) is not None]
    found = encode([text for text, _ in known])
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
    """Return the tokens of a text in our vocabulary; None if it cannot be encoded."""
    try:
        tokens, rest = vocabulary.encode_spans([(text.encode(), True)])
        last = int(tokens[-1]) if len(tokens) else None
        return [*tokens.tolist(), *vocabulary.encode_run(rest, after=last)]
    except TextError:
        return None


def _is_plain(spelling: str) -> bool:
    """Return whether a token's spelling is not empty and can be sent as UTF-8."""
    try:
        return bool(spelling.encode())
    except UnicodeEncodeError:
        return False


def _shown(tokens: list[int]) -> str:
    return f"{tokens[:12]}" if len(tokens) <= 12 else f"{tokens[:12]} and {len(tokens) - 12} more"


MAX_NATS = 1.0
"""Difference of two readings of a value above which a server is refused."""
FACTOR = 4.0
"""The tolerance as a multiple of the largest difference that was measured."""
_ALIKE = 0.1
"""Difference in nats below which two readings count as readings of the same row."""
_FLOOR = -40.0
"""Log-probabilities below this one are not compared, because they tell little."""
_TEXTS = ("The capital of France is the city of", "1, 2, 3, 4, 5, 6, 7", "def main():\n    return")
_N_NAMED = 4
_N_EXPLAINED = 8
"""Maximum number of values that a neighbouring row has to explain."""
_OFF_BY_ONE = "its values are off by one token: one of two readings is that of the row before or after"


@dataclass(frozen=True, slots=True)
class _Reading:
    """Two readings of the log-probability of a token after a path."""

    path: list[int]
    token: int
    first: float
    second: float


async def measure_tolerance(
    name: str, dialect: ServerDialect, vocabulary: Vocabulary, paths: Sequence[Sequence[int]]
) -> float:
    """Read rows in two ways, and return the tolerance of a server's values, in nats.

    The tolerance is `FACTOR` times the largest difference of two readings of a value.

    Args:
        name: The address of the server, for errors.
        dialect: The requests by which it is asked.
        vocabulary: The vocabulary.
        paths: The paths whose rows are read, from `paths_of`.

    Raises `UnsupportedModelError` if the largest difference exceeds `MAX_NATS`. The
    error names the cause if values are off by one token, or if the server puts BOS
    before the ids of a prompt.
    """
    differences: list[float] = []
    compared: list[_Reading] = []
    for path in paths:
        again = dict(await dialect.read_again(path, _tokens_to_compare(vocabulary, path)))
        if not again:
            continue
        first = await _read_first(dialect, path, list(again))
        for token, value in again.items():
            if max(value, first[token]) > _FLOOR:
                differences.append(abs(value - first[token]))
                compared.append(_Reading(list(path), token, first[token], value))
    if not differences:
        raise UnsupportedModelError(name, "none of its log-probabilities could be read in a second way, to check them")
    largest = max(differences)
    if not largest <= MAX_NATS:
        raise UnsupportedModelError(name, await _explain_difference(dialect, vocabulary, compared, largest))
    return FACTOR * largest


def paths_of(vocabulary: Vocabulary, max_tokens: int) -> list[list[int]]:
    """Return three token paths by which the values of a server are checked.

    They are the tokens of texts, or fixed ids if the tokenizer cannot encode a text. It
    must not be called on the thread of the transport, which the tokenizer may need.
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


def _tokens_to_compare(vocabulary: Vocabulary, path: Sequence[int]) -> list[int]:
    """Return the tokens whose values are compared after a path."""
    n = len(vocabulary.pieces)
    return list(dict.fromkeys([path[-1], n // 3, n // 2, n - 1]))[:_N_NAMED]


async def _read_first(dialect: ServerDialect, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:
    """Return the log-probabilities of tokens after a path, read by `rows`."""
    (row,) = await dialect.rows([RowQuery(np.array(path, dtype=np.int32), np.array(sorted(named), dtype=np.int32))])
    return dict(zip(row.ids.tolist(), row.logp.tolist(), strict=True))


async def _explain_difference(
    dialect: ServerDialect, vocabulary: Vocabulary, compared: Sequence[_Reading], largest: float
) -> str:
    """Return, in words, why two readings differ, found by reading neighbouring paths.

    Args:
        dialect: The requests by which the server is asked.
        vocabulary: The vocabulary.
        compared: Pairs of readings; those that differ most are explained.
        largest: The largest difference, in nats.
    """
    worst = sorted(compared, key=lambda one: -abs(one.first - one.second))[:_N_EXPLAINED]
    start = vocabulary.start
    ways: list[tuple[str, Callable[[_Reading], list[int]]]] = [
        (_OFF_BY_ONE, lambda one: [*one.path, one.token]),
        (_OFF_BY_ONE, lambda one: one.path[:-1]),
    ]
    if start is not None:
        ways.insert(0, ("it puts BOS before the token ids of a prompt", lambda one: [start, *one.path]))
    for said, moved in ways:
        if await _is_explained_by(dialect, worst, [moved(one) for one in worst]):
            return f"{said} (two readings of one row differ by {largest:.3g} nats)"
    return (
        f"two readings of one row differ by {largest:.3g} nats, more than {MAX_NATS:g}: its values cannot be relied on"
    )


async def _is_explained_by(dialect: ServerDialect, compared: Sequence[_Reading], paths: Sequence[list[int]]) -> bool:
    """Return whether one reading of each pair is that of another path.

    It must be the first one in all pairs, or the second one in all. `paths` has the
    other path for each of `compared`.
    """
    is_first = is_second = True
    for one, path in zip(compared, paths, strict=True):
        if not path:
            return False
        first = (await _read_first(dialect, path, [one.token])).get(one.token, math.nan)
        second = (await dialect.read_again(path, [one.token])).get(one.token, math.nan)
        is_first &= abs(first - one.second) < _ALIKE
        is_second &= abs(second - one.first) < _ALIKE
    return is_first or is_second


_MAX_NAMES = 20
"""Maximum number of models that an error lists."""


@unique
class Kind(Enum):
    """The kinds of servers, by the `owned_by` of their models; "" stands for others."""

    OWN = "selectrie"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMA_SERVER = "llamacpp"
    ECHO = ""


_NAMES = {Kind.OWN: "selectrie", Kind.VLLM: "vLLM", Kind.SGLANG: "SGLang", Kind.LLAMA_SERVER: "llama-server"}


class ServerInfo:
    """The facts that a server states about itself and a model.

    Attributes:
        kind: The kind of server.
        name: Name of the model.
        server: Name of the kind, with the version if it is known.
        n_context: Maximum number of tokens of a context, or None.
        n_tokens: Number of tokens of the vocabulary, or None.
        n_slots: Number of requests that it works on at once, or None.
        tolerance: The tolerance of its values that the server states, in nats; 0 if it
            states none.
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


async def identify_server(transport: Transport, model: str | None) -> ServerInfo:
    """Find out the kind of server at an address, and the facts about one of its models.

    `model` is the name of the model; None for the only one.

    Raises:
        OptionError: If there is no such model, or several and no name.
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
    entry = _choose_model(entries, model)
    owner = entry.get("owned_by")
    kind = next((kind for kind in Kind if owner is not None and owner.value == kind.value), Kind.ECHO)
    found = ServerInfo(kind, entry["id"].text(), entry)
    await _ask_details(transport, found)
    return found


def _choose_model(entries: Sequence[JsonValue], model: str | None) -> JsonValue:
    """Return the entry of a model in the server's list, or raise `OptionError`."""
    names = [entry["id"].text() for entry in entries]
    listed = ", ".join(repr(clip(name, 80)) for name in names[:_MAX_NAMES]) + (" …" if len(names) > _MAX_NAMES else "")
    if len(names) != 1 if model is None else model not in names:
        raise OptionError("model", model, f"one of the models that the server has: {listed or 'none'}")
    return entries[0 if model is None else names.index(model)]


async def _ask_details(transport: Transport, found: ServerInfo) -> None:
    """Ask for the facts that the list of models lacks, and set them in `found`."""
    version: JsonValue | None = None
    if found.kind is Kind.OWN:
        info = await transport.get(f"/tokenizer_info?model={quote(found.name, safe='')}", max_bytes=8 << 20)
        assert info is not None  # noqa: S101 - it may not lack
        found.n_context = _count(info, "model_max_length")
        stated = info.get("tolerance")
        found.tolerance = 0.0 if stated is None else stated.nats()
        health = await transport.get("/health", may_lack=True)
        version = None if health is None else health.get("version")
    elif found.kind in {Kind.VLLM, Kind.SGLANG}:
        path = "/version" if found.kind is Kind.VLLM else "/get_server_info"
        answer = await transport.get(path, max_bytes=8 << 20, may_lack=True)
        version = None if answer is None else answer.get("version")
    elif found.kind is Kind.LLAMA_SERVER:
        props = await transport.get("/props", max_bytes=8 << 20, may_lack=True)
        if props is not None:
            version = props.get("build_info")
            found.n_slots = _count(props, "total_slots")
    if version is not None:
        found.server = f"{found.server} {clip(version.text(), 80)}"


def _count(answer: JsonValue, name: str) -> int | None:
    """Return a number that the server states; None for 0 or no number."""
    value = answer.get(name)
    return None if value is None else value.whole() or None


class RemoteModel:
    """A model that a server evaluates and draws text with.

    It is a `PathModel`, and satisfies `core.path_model.SupportsCompletion`. The
    argument `prompt_of` turns token ids into the prompt of a request that draws a text.

    Attributes:
        dialect: The requests by which the server is asked for rows.
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
        self.vocabulary, self.identity, self.tolerance = vocabulary, identity, tolerance
        self.limits, self.sampler_name = dialect.limits, identity.build

    def rows(self, queries: Sequence[RowQuery], cancellation: Cancellation) -> list[RowBounds]:
        check_queries(queries, self.limits, len(self.vocabulary.pieces))
        self.transport.require_open()
        if cancellation.is_cancelled:
            raise CancelledError
        return self.transport.run(lambda: self.dialect.rows(queries), cancellation)

    def complete(
        self,
        prompt: IntArray,
        fields: Mapping[str, Any],
        done: Callable[[ServedText | BaseException], None],
        cancellation: Cancellation,
    ) -> None:
        ids = prompt.tolist()

        async def draw_text() -> ServedText:
            async with self._places:
                return await draw(self.transport, self.identity.name, ids, self._prompt_of(ids), fields)

        self.transport.start(draw_text, done, cancellation)

    def close(self) -> None:
        self.transport.close()


_MAX_VOCABULARY_BYTES = 256 << 20
_REASONS = {
    Kind.LLAMA_SERVER: "does not say which tokens are unknown and which control, nor what unused ones are called"
}
"""The reason, for errors, why the server's statements give no vocabulary."""


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
        server: The server.
        model: Name of the model; None for the only one.
        read_tokenizer: Returns the vocabulary, given the number of tokens or None.
            Without it, the server's own vocabulary is used; only selectrie's server
            offers one.
        http_transport: Replaces the network in tests.

    Raises:
        OptionError: If there is no such model, or if a tokenizer must be given.
        ServerError: If the server fails, or its answers are not valid.
        UnsupportedModelError: If the server is of no known kind, has another tokenizer,
            or if two readings of a row differ by more than 1 nat.
    """
    transport = Transport(server, http_transport)
    try:
        found = transport.run(lambda: identify_server(transport, model))
        vocabulary = _open_vocabulary(transport, found, read_tokenizer)
        dialect = _make_dialect(transport, found, vocabulary)
        is_own = found.kind is Kind.OWN and read_tokenizer is None
        texts = sample_texts(vocabulary) if is_own else fixed_texts(vocabulary)
        _compare_tokenizers(transport, found, dialect, vocabulary, texts)
        paths = paths_of(vocabulary, dialect.limits.path_tokens)
        tolerance = transport.run(lambda: measure_tolerance(server.url, dialect, vocabulary, paths))
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


def _open_vocabulary(
    transport: Transport, found: ServerInfo, read_tokenizer: Callable[[int | None], Vocabulary] | None
) -> Vocabulary:
    """Return the vocabulary of `read_tokenizer`, or else the server's own."""
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
        tokenizer.prefetch([text.encode() for text in sample_texts(own)])
        return own
    if given.digest != own.digest:
        reason = f"its vocabulary has the digest {own.digest}, the given tokenizer {given.digest}"
        raise UnsupportedModelError(transport.server.url, f"{reason}; leave `tokenizer` out, or give the model's own")
    return given


def _make_dialect(transport: Transport, found: ServerInfo, vocabulary: Vocabulary) -> ServerDialect:
    """Return the dialect of a server."""
    model = ServedModel(found.name, found.server, vocabulary.n_tokens, found.n_context)
    if found.kind is Kind.SGLANG:
        return SglangDialect(transport, model)
    if found.kind is Kind.LLAMA_SERVER:
        return LlamaServerDialect(transport, model, n_slots=found.n_slots or 1, pieces=vocabulary.pieces)
    if found.kind is Kind.ECHO:
        return EchoDialect(transport, model, vocabulary, takes_ids=_takes_ids(transport, found, vocabulary))
    return CompletionsDialect(transport, model, OWN_ROUNDING if found.kind is Kind.OWN else VLLM_ROUNDING)


def _takes_ids(transport: Transport, found: ServerInfo, vocabulary: Vocabulary) -> bool:
    """Send token ids as a prompt, and return whether the server accepts them."""
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
    transport: Transport, found: ServerInfo, dialect: ServerDialect, vocabulary: Vocabulary, texts: Sequence[str]
) -> None:
    """Raise `UnsupportedModelError` if a text has other tokens there than here."""

    def encode(texts: list[str]) -> list[list[int] | None]:
        return transport.run(lambda: run_together(map(dialect.encode, texts)))

    name = transport.server.url
    n_compared = compare_texts(name, vocabulary, texts, encode)
    if not n_compared and found.kind is not Kind.ECHO:
        reason = f"{found.server} does not say how it encodes texts (/tokenize), so its tokenizer cannot be compared"
        raise UnsupportedModelError(name, f"{reason}; use a version that does")
