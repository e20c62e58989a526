"""Load an engine from a path, a hub source, a `llama_cpp.Llama`, or nothing at all.

A hub source is written `hf:owner/repo/file.gguf`.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selectrie.core.types import Limits, Precision, SelfCheck
from selectrie.engine.bundled_model import embedded_file
from selectrie.engine.cache_dir import cache_folder, read_object, write_object
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import VERSION, is_plausible
from selectrie.engine.trial import Marks, try_file
from selectrie.errors import MissingExtraError, ModelFileError, OptionError
from selectrie.options import at_least, flag, one_of

if TYPE_CHECKING:
    import llama_cpp

HUB_PREFIX = "hf:"
_ANSWER_S = 5.0
"""Seconds after which a hub that has not begun to answer counts as unreachable."""


def load(  # noqa: PLR0913 - what a model is opened with
    source: str | os.PathLike[str] | llama_cpp.Llama | None = None,
    *,
    n_ctx: int | None = None,
    n_batch: int = 512,
    n_threads: int | None = None,
    n_gpu_layers: int = 0,
    precision: str = "exact",
    max_waiting: int | None = None,
    untrusted: bool | None = None,
    verbose: bool = False,
) -> Engine:
    """Load a model and return its engine, a context manager that closes it.

    Args:
        source: A GGUF file, `hf:owner/repo/file.gguf` (extra `hf`), or an open
            `llama_cpp.Llama`, whose weights are shared. None loads the small model that
            comes with selectrie; its self-check is made here, so that the first answer
            is quick.
        n_ctx: Tokens held at once. The default is the training context, at most 8192,
            and less if memory is short.
        n_batch: Maximum rows in a call.
        n_threads: The default is one per core, and one for models below 20 M weights.
        n_gpu_layers: Layers on the GPU; -1 for all.
        precision: "exact" or "fast".
        max_waiting: Maximum number of tasks that wait to begin; a request beyond that
            is refused. None for no limit.
        untrusted: Whether a file is opened in a child process first, because llama.cpp
            ends the process on some damaged files. None does so for a file that has not
            passed before, True always, False never. The embedded model and an open
            `Llama` are never opened this way. It guards against damage, not against
            malicious files.
        verbose: Whether llama.cpp writes its log to stderr.

    Raises:
        ModelFileError: If the file cannot be opened.
        UnsupportedModelError: If the model cannot be used.
        MissingExtraError: If the source needs an extra that is not installed.
        OptionError: If an option is invalid.
    """
    from selectrie.backends.llama_cpp import LlamaOptions, open_model

    one_of("precision", precision, tuple(p.value for p in Precision))
    at_least("max_waiting", max_waiting, 1)
    options = LlamaOptions(n_ctx, n_batch, n_threads, n_gpu_layers, Precision(precision), verbose)
    if untrusted is not None:
        flag("untrusted", untrusted)
    checks = cache_folder() / "selfcheck.json"
    is_file = source is None or isinstance(source, str | os.PathLike)
    opened: Any = local_file(source) if is_file else source
    if source is not None and is_file and untrusted is not False:
        try_file(opened, options.precision, Marks(checks), always=untrusted is True)
    model = open_model(opened, options)
    try:
        # A check depends on the model, on where layers run and on the rows of a call.
        layers = n_gpu_layers if is_file else opened.model_params.n_gpu_layers
        identity = model.identity
        key = f"{identity.digest}|{identity.build}|{identity.processor}|{identity.precision}"
        key += f"|{layers} layers on a GPU|{model.limits.rows_per_call} rows|check {VERSION}"
        kept = SelfCheckFile(checks)
        engine = Engine(
            model,
            check=kept.get(key, model.limits),
            on_check=lambda check: kept.put(key, check),
            max_waiting=max_waiting,
        )
    except BaseException:
        model.close()
        raise
    try:
        if source is None:
            _ = engine.tolerance
    except BaseException:
        engine.close()
        raise
    return engine


def local_file(source: str | os.PathLike[str] | None) -> Path:
    """Return the local file of a source.

    The source is None for the embedded model, one of the hub
    (`hf:owner/repo/file.gguf`, downloaded), or a path.
    """
    if source is None:
        return embedded_file()
    if isinstance(source, str) and source.startswith(HUB_PREFIX):
        return download(source)
    return Path(source)


def download(source: str) -> Path:
    """Return the local file of `hf:owner/repo/file.gguf`.

    It is downloaded through huggingface_hub and its cache.
    """
    parts = source.removeprefix(HUB_PREFIX).split("/", 2)
    if len(parts) < 3 or not all(parts):
        raise OptionError("model", source, "hf:owner/repo/file.gguf")
    try:
        import huggingface_hub
    except ModuleNotFoundError as error:
        raise MissingExtraError(source, "hf") from error
    file = "/".join(parts[:2]), parts[2]
    unreachable = _unreachable(huggingface_hub, *file)
    try:
        if unreachable is not None:
            return Path(huggingface_hub.hf_hub_download(*file, local_files_only=True))
        return Path(huggingface_hub.hf_hub_download(*file))
    except (OSError, ValueError) as error:  # hub errors derive from these: offline, not found, gated, bad name
        message = str(unreachable or error).strip()
        reason = message.splitlines()[0] if message else type(unreachable or error).__name__
        raise ModelFileError(
            source,
            f"cannot be downloaded and is not in the cache ({reason}); "
            "check the name and the network, or pass a local file",
        ) from error


def _unreachable(hub: Any, repository: str, name: str) -> Exception | None:
    """Return why the hub does not answer, or None if it does, whatever the answer is.

    The hub is asked once and briefly, because a download retries for 23 s and logs each
    time.
    """
    try:
        hub.get_hf_file_metadata(hub.hf_hub_url(repository, name), timeout=_ANSWER_S)
    except (hub.errors.HfHubHTTPError, hub.errors.FileMetadataError, ValueError):
        return None
    except Exception as error:  # noqa: BLE001 - from the HTTP library of the hub's client, which varies
        return error
    return None


_KINDS = {"batch_multiple": int, "moved": float, "tolerance": float, "n_rows": int}
"""Types of the fields of a `SelfCheck`."""


class SelfCheckFile:
    """Self-checks already made, by model, build, processor and precision.

    The file can be deleted at any time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: str, limits: Limits) -> SelfCheck | None:
        """Return the check of a model with these limits.

        Returns None if there is none, or if `self_check` could not have made it.
        """
        entry = read_object(self._path).get(key)
        if not isinstance(entry, dict) or {name: type(value) for name, value in entry.items()} != _KINDS:
            return None
        check = SelfCheck(**entry)
        return check if is_plausible(check, limits) else None

    def put(self, key: str, check: SelfCheck) -> None:
        """Add a check; a cache that cannot be written is not an error."""
        write_object(self._path, read_object(self._path) | {key: asdict(check)})
