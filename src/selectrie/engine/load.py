"""Loads an engine from a path, a hub source, an open model, or without a source.

A hub source is written `hf:owner/repo/file.gguf`, or `hf:owner/repo` for a checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from selectrie.core.files import cache_folder, read_object, write_object
from selectrie.core.model import DescribedModel, Model
from selectrie.core.types import Precision, SelfCheck
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import VERSION, is_plausible
from selectrie.engine.sources import find_source, is_server, resolve
from selectrie.errors import IncompatibleOptionsError, OptionError, UnknownArgumentError, UnknownOptionError
from selectrie.options import at_least, flag
from selectrie.traces.blocks import is_trace


def load(
    source: object = None,
    *,
    backend: str | None = None,
    max_waiting: int | None = None,
    untrusted: bool = False,
    **options: Any,
) -> Engine:
    """Load a model and return its engine, a context manager that closes it.

    The options are those of the back end that opens the source. llama.cpp has:

    - n_ctx: Tokens held at once. The default is the training context, or less
      where that is long or memory is short.
    - n_batch: Maximum rows in a call (512).
    - n_threads: The default is one per core, and one for models below 20 M weights.
    - n_gpu_layers: Layers on the GPU (0); -1 for all.
    - precision: "exact" (the default) or "fast".
    - verbose: Whether llama.cpp writes its log to stderr (False).

    Those of Transformers (extra `transformers`) are n_ctx, n_batch, n_threads,
    precision, verbose, and:

    - device: "cpu", "cuda", "cuda:1" … (a GPU if there is one).
    - dtype: "float32", "bfloat16" or "float16". The default is float32 for "exact", and
      the checkpoint's own for "fast".
    - tokenizer: A loaded fast tokenizer, or a folder with one; needed for an open
      model.
    - prefix: Keys and values that stand before every context, computed
      (`past_key_values`) or learned by prefix tuning. They are copied here. If they
      begin with BOS, prompts go on without another; if not, prompts begin with BOS as
      the tokenizer puts it. Not for recurrent and hybrid models.

    Those of XLA (extra `xla`), which is chosen by its name and compiles the same models
    for fixed shapes, are n_ctx, precision, verbose, tokenizer, and:

    - buckets: Rows of the programs that are compiled ((512, 64, 8, 1)).
    - device: "cpu", "tpu", "tpu:1" … (what JAX takes by itself).

    Args:
        source: A GGUF file; the folder of a Transformers checkpoint;
            `hf:owner/repo/file.gguf`, `hf:owner/repo:Q4_K_M` for the one file of that
            quantisation (also without `hf:`, if there is no such file here), or
            `hf:owner/repo` for a checkpoint (extra `hf`); an open `llama_cpp.Llama`,
            whose weights are shared; an open `AutoModelForCausalLM`, which is put back
            as it was by `close`; the address of a server, which is `connect` with its
            defaults; or a trace (`record`), which has one option, `tokenizer`: a GGUF
            file, the folder of a tokenizer, or an engine, for texts that were not
            recorded. None or "embedded" loads the small model that comes with
            selectrie.
        backend: Name of the back end: "llama.cpp", "transformers" or "xla". None takes
            the one that recognises the source by its content.
        max_waiting: Maximum number of tasks that wait to begin; a request beyond that
            is refused. None for no limit.
        untrusted: Whether a file that has not passed before is first opened in a child
            process, because llama.cpp ends the process on some damaged files whose
            header looks right. This guards against damage, not against malicious files.
            The model's chat template is rendered in another child, within 10 seconds a
            chat. The embedded model and an open `Llama` are never opened this way.
        options: Options of the back end.

    Raises:
        ModelFileError: If the file cannot be opened.
        UnsupportedModelError: If the model cannot be used.
        MissingExtraError: If the source needs an extra that is not installed.
        OptionError: If an option is invalid.
        UnknownOptionError: If the back end does not have an option.
    """
    at_least("max_waiting", max_waiting, 1)
    flag("untrusted", untrusted)
    for name in _SOURCE_NAMES & options.keys():
        raise UnknownArgumentError(name, "load", "give the model first, as in load('model.gguf')")
    source = find_source(source)
    if is_server(source):
        return _connect(source, backend, max_waiting, options)
    if isinstance(source, str | os.PathLike) and is_trace(Path(os.fspath(source))):
        return _load_trace(Path(os.fspath(source)), backend, max_waiting, options)
    resolved = resolve(source, backend, options)
    entry, opened = resolved.backend, resolved.opened
    checks = cache_folder() / "selfcheck.json"
    is_foreign = untrusted and source is not None and resolved.is_file
    if is_foreign:
        from selectrie.engine.trial import try_file  # imported on first use, as `replay` is

        try_file(opened, entry, resolved.options.precision, checks)
    model = entry.open_model(opened, resolved.options)
    try:
        key = f"{entry.check_key(model, opened, resolved.options)}|check {VERSION}"
        kept = SelfCheckFile(checks)
        engine = Engine(
            model,
            check=kept.get(key, model),
            on_check=lambda check: kept.put(key, check),
            max_waiting=max_waiting,
            stored_sampling=entry.stored_sampling(model, opened),
        )
        if is_foreign:
            _render_in_child(engine, model)
    except BaseException:
        model.close()
        raise
    return engine


_SOURCE_NAMES = frozenset({"model", "model_path", "model_name", "model_id", "path", "file", "filename", "repo_id"})
"""Names that other programs have for `source`."""


def _render_in_child(engine: Engine, model: Model) -> None:
    """Let a child process render the chats of the engine's model."""
    own = model.vocabulary
    if own.chat_template is not None:
        from selectrie.engine.chat_child import ChatChild

        rendering = replace(own, chat_template=ChatChild(own.chat_template))
        engine._observe(DescribedModel(rendering, model.limits, model.identity), None)


def _load_trace(path: Path, backend: str | None, max_waiting: int | None, options: Mapping[str, Any]) -> Engine:
    """Return an engine that answers from a trace."""
    if backend is not None:
        raise IncompatibleOptionsError("backend", "a trace", "leave it out: no model is opened")
    for name, value in options.items():
        if name != "tokenizer":
            raise UnknownOptionError(name, value, backend="trace", names=("tokenizer",))
    from selectrie.engine.tracing.replay import replay

    return replay(path, tokenizer=options.get("tokenizer"), max_waiting=max_waiting)


def _connect(url: str, backend: str | None, max_waiting: int | None, options: Mapping[str, Any]) -> Engine:
    """Return the engine of a server; raise an error for options of back ends."""
    given = {**options, **({} if backend is None else {"backend": backend})}
    if given.get("precision") == Precision.FAST.value:  # a server's rows are what they are
        del given["precision"]
    for name in given:
        raise IncompatibleOptionsError(name, "the address of a server", "give options of servers to `connect`")
    from selectrie.engine.connect import connect_engine

    return connect_engine(url, max_waiting=max_waiting)


_FIELD_TYPES = {"batch_multiple": int, "moved": float, "tolerance": float, "n_rows": int}
"""Types of the fields of a `SelfCheck`."""


class SelfCheckFile:
    """A file with earlier self-checks (`SelfCheck`) of models, by key.

    The key has the model, the build, the processor and the precision. The file can be
    deleted at any time.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: str, model: Model) -> SelfCheck | None:
        """Return the stored self-check of a model.

        None if there is none, or if a model like this could not have it.
        """
        entry = read_object(self._path).get(key)
        if not isinstance(entry, dict) or {name: type(value) for name, value in entry.items()} != _FIELD_TYPES:
            return None
        try:
            check = SelfCheck(**entry)
        except OptionError:
            return None
        return check if is_plausible(check, model.identity, model.limits) else None

    def put(self, key: str, check: SelfCheck) -> None:
        """Store a self-check; failing to write the file is not an error."""
        write_object(self._path, read_object(self._path) | {key: asdict(check)})
