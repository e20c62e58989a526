"""Engines on models that servers evaluate; their rows are queried by token path."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from selectrie.core.model import DescribedModel, ModelDescription
from selectrie.core.path_model import REMOTE, PathModel, RowStarter, SupportsCompletion
from selectrie.core.types import Limits, ModelKind, SelfCheck
from selectrie.decoding.search_state import FILL_ROWS
from selectrie.engine.engine import Engine
from selectrie.engine.path_driver.path_scheduler import PathThread
from selectrie.engine.path_driver.query_reader import ROW_CACHE_BYTES, QueryReader
from selectrie.engine.requests import served_generate
from selectrie.engine.requests.generate import GenerateRequest, Prompts
from selectrie.engine.requests.served_generate import ServedTask
from selectrie.engine.requests.session import Prepared, Session
from selectrie.engine.runtimes import Runtime
from selectrie.engine.scheduler.job import Job
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.engine.sources import download_tokenizer, is_hub_source
from selectrie.errors import MissingExtraError, OptionError, WholeRowsError, remedies
from selectrie.options import at_least, number
from selectrie.options.arguments import named_arguments
from selectrie.results import Generation

_ACTIVE_EACH = 2
"""Active tasks for each query that may be in flight, so that there are always some."""
_UNLIMITED = 1 << 30
"""Number of branches of a model that holds none here, so that it has no limit."""


class PathRuntime(Runtime):
    """The runtime of a model whose rows are queried by token path, as on a server.

    Rows are cached by their path, and the queries of all tasks share requests. Text is
    drawn by the server itself, if it can do that. Requests that read whole rows are
    refused.

    Args:
        model: The model; it is closed with the thread.
        cache_bytes: Approximate size of the rows that are cached, in bytes.
        max_waiting: Maximum number of tasks that wait to begin; None for no limit.
    """

    has_whole_rows = False

    def __init__(self, model: PathModel, *, cache_bytes: int = ROW_CACHE_BYTES, max_waiting: int | None = None) -> None:
        limits = model.limits
        n_together = max(1, limits.requests_in_flight) * max(1, limits.queries_per_request)
        self._n_together, self._max_named = min(FILL_ROWS, n_together), limits.named_ids
        # The last one that is told may be as probable as one that is not.
        is_whole = limits.top_ids >= len(model.vocabulary.pieces)
        self._max_top = None if is_whole else max(0, limits.top_ids - 1)
        described = Limits(
            nodes=limits.path_tokens,
            sequences=_UNLIMITED,
            rows_per_call=n_together,
            kind=ModelKind.ATTENTION,
            max_idle_rows=None,
            larger_context=remedies(operator="ask a server whose context is longer"),
        )
        self.model = DescribedModel(model.vocabulary, described, replace(model.identity, precision=REMOTE))
        self._completer = model if isinstance(model, SupportsCompletion) else None
        self.check = SelfCheck(0, model.tolerance, model.tolerance)
        reader = QueryReader(model, cache_bytes=cache_bytes)

        def reader_of(job: Job) -> RowStarter:  # holds no runtime, which would keep an abandoned engine alive
            return job.task if isinstance(job.task, ServedTask) else reader

        self.thread: PathThread = PathThread(
            reader, described, max_active=_ACTIVE_EACH * n_together, max_waiting=max_waiting, reader_of=reader_of
        )

    def session(self, group: TaskGroup, model: ModelDescription) -> Session:
        """Return the `Session` of a task group; `model` describes the model to it."""
        return Session(
            group, model, self.check, n_together=self._n_together, max_named=self._max_named, max_top=self._max_top
        )

    def prepare_generate(
        self, model: ModelDescription, prompts: Prompts, request: GenerateRequest
    ) -> Prepared[Generation]:
        """Prepare a request for text that the server draws itself.

        Raises `WholeRowsError` if the server cannot.
        """
        if self._completer is None:
            raise WholeRowsError("`generate`")
        return served_generate.prepare_served(self._completer, model, prompts, request)

    def require_whole_rows(self, what: str, *, instead: str = "") -> None:
        """Raise `WholeRowsError`, because a server does not show whole rows.

        Args:
            what: Begins a sentence about the request that reads whole rows.
            instead: A method to suggest if the server draws text itself, or "".
        """
        if instead and self._completer is not None:
            raise WholeRowsError(what, f"use {instead}")
        raise WholeRowsError(what)


MAX_CONCURRENCY = 1024


@named_arguments
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
    return connect_engine(
        url, model=model, tokenizer=tokenizer, api_key=api_key, concurrency=concurrency, timeout_s=timeout_s
    )


def connect_engine(
    url: str,
    *,
    model: str | None = None,
    tokenizer: str | Path | None = None,
    api_key: str | None = None,
    concurrency: int = 8,
    timeout_s: float = 60.0,
    max_waiting: int | None = None,
) -> Engine:
    """Return the engine of `connect`, with at most `max_waiting` waiting tasks."""
    if not isinstance(url, str):
        raise OptionError("url", url, "the address of a server, as in http://host:8000")
    if model is not None and not isinstance(model, str):
        raise OptionError("model", model, "the name of a model that the server has")
    _check_key(api_key)
    at_least("concurrency", concurrency, 1, max_value=MAX_CONCURRENCY, optional=False)
    number("timeout_s", timeout_s, min_value=0.001, remedy="a number of seconds above 0")
    if find_spec("httpx2") is None:
        raise MissingExtraError("a model of a server", "remote")
    from selectrie.backends.remote.opening import open_server
    from selectrie.backends.remote.transport import Server, base_url
    from selectrie.backends.remote.vocabulary import read_tokenizer

    server = Server(base_url(url), api_key, concurrency, float(timeout_s))
    path = None if tokenizer is None else _local_tokenizer(tokenizer)
    opened = open_server(
        server, model=model, read_tokenizer=None if path is None else lambda n_tokens: read_tokenizer(path, n_tokens)
    )
    try:
        return Engine(PathRuntime(opened, max_waiting=max_waiting))
    except BaseException:
        opened.close()
        raise


def _local_tokenizer(tokenizer: object) -> Path:
    """Return the local path of a tokenizer; files of the hub are downloaded."""
    if is_hub_source(tokenizer):
        return download_tokenizer(tokenizer)
    if isinstance(tokenizer, str | os.PathLike) and isinstance(os.fspath(tokenizer), str) and os.fspath(tokenizer):
        return Path(tokenizer)
    raise OptionError("tokenizer", tokenizer, "a folder with a tokenizer, `hf:owner/repo`, or a GGUF file")


def _check_key(api_key: object) -> None:
    """Raise `OptionError`, without the key, for a key that no header can have."""
    if api_key is None:
        return
    if not isinstance(api_key, str) or not api_key or not api_key.isascii() or not api_key.isprintable():
        raise OptionError("api_key", "…", "a key of printable ASCII characters")
