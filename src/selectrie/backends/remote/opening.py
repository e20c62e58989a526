"""Opens a model that a server evaluates: finds out, compares, verifies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import quote

import httpx2
import numpy as np

from selectrie.backends.remote.completions import OWN_ROUNDING, VLLM_ROUNDING, CompletionsDialect
from selectrie.backends.remote.detection import Found, Kind, find_out
from selectrie.backends.remote.dialect import Dialect, ServedModel
from selectrie.backends.remote.echo import EchoDialect
from selectrie.backends.remote.llama_server import LlamaServerDialect
from selectrie.backends.remote.model import RemoteModel
from selectrie.backends.remote.partial import together
from selectrie.backends.remote.remote_tokenizer import RemoteTokenizer
from selectrie.backends.remote.same_texts import compare_texts, fixed_texts, own_texts
from selectrie.backends.remote.sglang import SglangDialect
from selectrie.backends.remote.transport import Server, Transport
from selectrie.backends.remote.verify import measured_tolerance, paths_of
from selectrie.backends.remote.vocabulary_wire import read_vocabulary
from selectrie.core.types import ModelIdentity
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import OptionError, ServerError, UnsupportedModelError

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


def _dialect(transport: Transport, found: Found, vocabulary: Vocabulary) -> Dialect:
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
    transport: Transport, found: Found, dialect: Dialect, vocabulary: Vocabulary, texts: Sequence[str]
) -> None:
    """Raise `UnsupportedModelError` if a text has other tokens there than here."""

    def encoded(texts: list[str]) -> list[list[int] | None]:
        return transport.run(lambda: together(map(dialect.encode, texts)))

    name = transport.server.url
    n_compared = compare_texts(name, vocabulary, texts, encoded)
    if not n_compared and found.kind is not Kind.ECHO:
        reason = f"{found.server} does not say how it encodes texts (/tokenize), so its tokenizer cannot be compared"
        raise UnsupportedModelError(name, f"{reason}; use a version that does")
