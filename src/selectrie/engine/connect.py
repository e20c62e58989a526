"""Engines on models that servers evaluate."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from selectrie.engine.engine import Engine
from selectrie.engine.hub import download_tokenizer, is_hub_source
from selectrie.engine.path_runtime import PathRuntime
from selectrie.errors import MissingExtraError, OptionError
from selectrie.options import at_least, number

if TYPE_CHECKING:
    from selectrie.core.path_model import PathModel

MAX_CONCURRENCY = 1024


def connect(
    url: str,
    *,
    model: str | None = None,
    tokenizer: str | Path | None = None,
    api_key: str | None = None,
    concurrency: int = 8,
    timeout_s: float = 60.0,
) -> Engine:
    """Return an engine on the model that a server evaluates (extra `remote`).

    The server is selectrie's own, vLLM, SGLang, llama-server, or any with `echo` in
    OpenAI's `/v1/completions`; which one is found out. Before it is used, 200 texts are
    encoded by it and by the tokenizer here, and three paths are read in two ways. Four
    times the largest difference is `engine.tolerance`.

    Args:
        url: The server's address, as in "http://host:8000"; a `/v1` at its end is
            left out.
        model: Name of the model there; None if there is one only.
        tokenizer: The tokenizer of the model: a folder or `hf:owner/repo` (extra
            `transformers`), or a GGUF file, which needs no weights. None for
            selectrie's own server, which hands its vocabulary over.
        api_key: The server's key. It is sent as `Authorization: Bearer` and shown
            nowhere.
        concurrency: Maximum number of requests under way at once.
        timeout_s: Seconds in which each request must be answered, repetitions after
            429 and 503 included.

    Raises:
        OptionError: If a value is invalid, there is no such model, or the tokenizer
            must be given.
        ServerError: If the server does not answer, or its answer cannot be right.
        UnsupportedModelError: If the server is of no known kind, its tokenizer is
            another one, or if two readings of a row differ by more than 1 nat.
        MissingExtraError: If an extra is not installed.
    """
    return connected(
        url,
        model=model,
        tokenizer=tokenizer,
        api_key=api_key,
        concurrency=concurrency,
        timeout_s=timeout_s,
    )


def connected(
    url: str,
    *,
    model: str | None = None,
    tokenizer: str | Path | None = None,
    api_key: str | None = None,
    concurrency: int = 8,
    timeout_s: float = 60.0,
    max_waiting: int | None = None,
) -> Engine:
    """Return the engine of `connect`, with at most `max_waiting` tasks in its queue."""
    opened = _open(url, model=model, tokenizer=tokenizer, api_key=api_key, concurrency=concurrency, timeout_s=timeout_s)
    try:
        return Engine(PathRuntime(opened, max_waiting=max_waiting))
    except BaseException:
        opened.close()
        raise


def _open(
    url: str,
    *,
    model: str | None,
    tokenizer: str | Path | None,
    api_key: str | None,
    concurrency: int,
    timeout_s: float,
) -> PathModel:
    if not isinstance(url, str):
        raise OptionError("url", url, "the address of a server, as in http://host:8000")
    if model is not None and not isinstance(model, str):
        raise OptionError("model", model, "the name of a model that the server has")
    _check_key(api_key)
    at_least("concurrency", concurrency, 1, max_value=MAX_CONCURRENCY, optional=False)
    number("timeout_s", timeout_s, min_value=0.001, remedy="a number of seconds above 0")
    if find_spec("httpx2") is None:
        raise MissingExtraError("a model of a server", "remote")
    from selectrie.backends.remote.given_tokenizer import read_tokenizer
    from selectrie.backends.remote.opening import open_server
    from selectrie.backends.remote.transport import Server, base_url

    server = Server(base_url(url), api_key, concurrency, float(timeout_s))
    path = None if tokenizer is None else _local(tokenizer)
    return open_server(
        server, model=model, read_tokenizer=None if path is None else lambda n_tokens: read_tokenizer(path, n_tokens)
    )


def _local(tokenizer: object) -> Path:
    """Return the local path of a tokenizer; files of the hub are downloaded."""
    if is_hub_source(tokenizer):
        return download_tokenizer(tokenizer)
    if isinstance(tokenizer, str | os.PathLike) and isinstance(os.fspath(tokenizer), str) and os.fspath(tokenizer):
        return Path(tokenizer)
    raise OptionError("tokenizer", tokenizer, "a folder with a tokenizer, `hf:owner/repo`, or a GGUF file")


def _check_key(api_key: object) -> None:
    """Raise `OptionError`, without the key, if it cannot be sent in a header."""
    if api_key is None:
        return
    if not isinstance(api_key, str) or not api_key or not api_key.isascii() or not api_key.isprintable():
        raise OptionError("api_key", "…", "a key of printable ASCII characters")
