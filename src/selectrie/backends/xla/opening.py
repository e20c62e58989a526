"""Opens models: compiles the programs of a module, times them, and checks their rows.

The seconds that programs take decide how calls are split, and so the last bits of
results. They are measured once for a model on a machine, and kept in the folder of
`selectrie.core.files`.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import torch
from torch import nn

from selectrie.backends.transformers.checkpoint import read_checkpoint
from selectrie.backends.transformers.model import nodes_and_rows
from selectrie.backends.transformers.module import (
    PreparedModule,
    Route,
    copy_sharing_weights,
    full_precision,
    prepare_module,
)
from selectrie.backends.transformers.options import TransformersOptions
from selectrie.backends.transformers.probe import probe, probe_model
from selectrie.backends.transformers.weights import memory_needs, open_source, quiet, read_config
from selectrie.backends.xla.model import PoolLengths, SharedModule, XlaModel
from selectrie.backends.xla.options import XlaOptions
from selectrie.backends.xla.programs import N_RUNS, Compiling, Programs
from selectrie.core.files import cache_folder, read_object, write_object
from selectrie.core.output import is_terminal, visible, write
from selectrie.core.types import BatchSizes, Precision
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import DecodeError, MessageText, OptionError, UnsupportedModelError, remedies, words

logger = logging.getLogger(__name__)

_OTHER = remedies(operator="use `backend='transformers'`")


def open_model(source: Any, options: XlaOptions | None = None) -> XlaModel:
    """Open a checkpoint, or a loaded module, as a compiled model.

    Args:
        source: The `Path` of a folder, or an `AutoModelForCausalLM`; the option
            `tokenizer` is then required. The model gets its own copy of the weights,
            which must not be changed until this returns.
        options: See `XlaOptions`.

    Raises:
        ModelFileError: A file is missing, damaged, truncated or cannot be read.
        UnsupportedModelError: The model or its tokenizer is of a kind that does not
            work.
        OptionError: An option is invalid or does not fit the model.
        ModelError: There is no memory for the model.
    """
    options = options or XlaOptions()
    with quiet(options.verbose):
        opened = open_source(source, for_transformers(options))
        return open_module(opened.module, opened.vocabulary, options, name=opened.name, digest=opened.digest)


def for_transformers(options: XlaOptions) -> TransformersOptions:
    """Return the options with which the module is loaded into the host's memory."""
    return TransformersOptions(
        n_ctx=options.n_ctx,
        precision=options.precision,
        device="cpu",
        dtype="bfloat16" if options.precision is Precision.FAST else None,
        tokenizer=options.tokenizer,
        verbose=options.verbose,
    )


def open_module(
    module: Any, vocabulary: Vocabulary, options: XlaOptions | None = None, *, name: str, digest: str = "unknown:"
) -> XlaModel:
    """Make a compiled model of a Transformers module with a language model head.

    Args:
        module: An `AutoModelForCausalLM` on the CPU. The model gets its own copy of
            the weights, which must not be changed until this returns.
        vocabulary: The vocabulary of its token ids.
        options: See `XlaOptions`.
        name: Name of the model, for messages and signatures.
        digest: Digest of its weights, for signatures.

    Raises:
        UnsupportedModelError: The model is of a kind that does not work.
        OptionError: An option is invalid or does not fit the module.
        ModelError: There is no memory for the model.
    """
    options = options or XlaOptions()
    device = find_device(options.device)
    # Programs are recorded with a copy, in which weights are replaced by other tensors.
    recorded = copy_sharing_weights(module) if isinstance(module, nn.Module) else module
    prepared = prepare_module(recorded, name, probe)
    try:
        _require_supported(prepared, vocabulary, options)
        nodes, _ = nodes_and_rows(
            for_transformers(options), prepared.config, prepared.n_vocabulary, prepared.max_positions
        )
        rows = max(options.buckets)
        lengths = PoolLengths.of(nodes, rows)
        programs = Programs(
            prepared, n_hidden=2 * rows, device=device, compiling=_make_reporter(verbose=options.verbose)
        )
        untimed = BatchSizes.fixed(dict.fromkeys(options.buckets, 1.0))
        source = SharedModule(
            prepared, programs, vocabulary, options, digest, device, lengths, untimed, untimed, threading.Event()
        )
        model = XlaModel(source, nodes=nodes, rows=rows, n_cells=lengths.long)
        try:
            _time_programs(source, model)
            with full_precision():
                probe_model(prepared, model)
        except DecodeError as error:
            model.close()
            raise UnsupportedModelError(name, words("cannot be run by XLA: {}; {}", error, _OTHER)) from error
        except BaseException:
            model.close()
            raise
        _drop_weights(prepared.module)
        return model
    finally:
        prepared.release()


def memory_needed(folder: Path, options: XlaOptions) -> int:
    """Return an estimate of the bytes of a checkpoint's weights and contexts.

    Not included are the weights in the host's memory while the model is opened, and the
    short pool that exists while scores that are too close to call are evaluated again.

    It is the `memory_needs` of the back end on Transformers, with the cells of the
    opened model's pool and the rows of the largest program, and two matrices of
    attention scores, which are in memory at once in the largest program.

    Raises:
        ModelFileError: A file is missing, damaged, truncated or cannot be read.
        UnsupportedModelError: The model is of a kind that does not work.
    """
    rows = max(options.buckets)
    needs = memory_needs(
        folder, for_transformers(options), rows=rows, cells_of=lambda nodes, rows: PoolLengths.of(nodes, rows).long
    )
    heads = int(getattr(read_config(read_checkpoint(folder)).get_text_config(), "num_attention_heads", None) or 1)
    return needs.total + 2 * 4 * heads * rows * needs.n_cells


def find_device(name: str | None) -> Any:
    """Return the device of JAX with a name such as "tpu:1"; None for JAX's default.

    Raises `OptionError` if there is no such device.
    """
    if name is None:
        return jax.devices()[0]
    platform, _, number = name.partition(":")
    try:
        found = jax.devices(platform)
        return found[int(number or 0)]
    except (RuntimeError, ValueError, IndexError) as error:
        there = ", ".join(f"{one.platform}:{one.id}" for one in jax.devices())
        raise OptionError("device", name, f"a device that JAX has here: {there}") from error


def _require_supported(prepared: PreparedModule, vocabulary: Vocabulary, options: XlaOptions) -> None:
    """Raise an error for a module that cannot be compiled with these options."""
    name, other = prepared.name, _OTHER
    if prepared.n_vocabulary != vocabulary.n_tokens:
        raise UnsupportedModelError(
            name, f"predicts {prepared.n_vocabulary} tokens, its vocabulary has {vocabulary.n_tokens}"
        )
    if prepared.route is Route.STATES:
        raise UnsupportedModelError(
            name, MessageText("keeps states, for which there are no programs of fixed shapes; ", other)
        )
    if prepared.is_quantised:
        raise UnsupportedModelError(name, MessageText("has quantised weights, which are not compiled; ", other))
    if prepared.device.type != "cpu":
        raise UnsupportedModelError(name, f"is on {prepared.device}; move it to the CPU, from where XLA takes it")
    if options.precision is Precision.EXACT and prepared.dtype != torch.float32:
        dtype = str(prepared.dtype).removeprefix("torch.")
        raise OptionError("precision", "exact", f"fast, as the weights are {dtype}; or convert them by model.float()")


def _drop_weights(module: nn.Module) -> None:
    """Replace the weights of a module by tensors on the `meta` device, without data.

    Programs have a copy on their device, and recording further programs needs shapes
    only. A weight that two parts share stays shared.
    """
    empty = {
        id(one): nn.Parameter(torch.empty_like(one, device="meta"), requires_grad=False) for one in module.parameters()
    }
    for part in module.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                part._parameters[name] = empty[id(weight)]


# How long programs take


def _time_programs(source: SharedModule, model: XlaModel) -> None:
    """Compile the programs for the pool of the opened model, and time them.

    Sets `source.bodies` (the layers) and `source.heads` (the logits) to the seconds of
    each batch size. They are measured, or read from the file of an earlier measurement.
    """
    path = cache_folder() / "xla_seconds.json"
    identity, buckets = source.identity, source.options.buckets
    flags = os.environ.get("XLA_FLAGS", "")
    parts = (identity.digest, identity.build, identity.processor, identity.precision, buckets, source.lengths, flags)
    key = "|".join(map(str, parts))
    # Without a digest, nothing says which model it was.
    is_known = not identity.digest.startswith("unknown:")
    kept = read_object(path).get(key) if is_known else None
    bodies, heads = _read_seconds(kept, "bodies", buckets), _read_seconds(kept, "heads", buckets)
    n_runs = 0 if bodies and heads else N_RUNS  # 0 only compiles
    measured_bodies = {size: model.seconds_of_body(size, n_runs) for size in buckets}
    measured_heads = {size: source.programs.seconds_of_head(size, n_runs) for size in buckets}
    if bodies is None or heads is None:
        bodies, heads = measured_bodies, measured_heads
        entry = {"bodies": _seconds_to_json(bodies), "heads": _seconds_to_json(heads)}
        if is_known:
            write_object(path, read_object(path) | {key: entry})
    source.bodies, source.heads = BatchSizes.fixed(bodies), BatchSizes.fixed(heads)
    logger.debug("%s: seconds of bodies %s, of heads %s", identity.name, bodies, heads)


def _seconds_to_json(seconds: Mapping[int, float]) -> dict[str, float]:
    return {str(size): value for size, value in seconds.items()}


def _read_seconds(kept: object, kind: str, buckets: tuple[int, ...]) -> dict[int, float] | None:
    """Return the stored seconds by size, or None if not all are stored.

    `kept` is the entry of the file, and `kind` is "bodies" or "heads".
    """
    values = kept.get(kind) if isinstance(kept, dict) else None
    if not isinstance(values, dict) or set(values) != {str(size) for size in buckets}:
        return None
    if not all(isinstance(one, float) and 0 < one < math.inf for one in values.values()):
        return None
    return {size: values[str(size)] for size in buckets}


# What a user sees while programs are compiled


def _make_reporter(*, verbose: bool) -> Compiling:
    """Return the context manager that reports the compilation of a named program.

    It shows a spinner on a terminal, and with `verbose` writes a line to stderr.
    """

    @contextmanager
    def report(name: str) -> Iterator[None]:
        begin = time.perf_counter()
        with _status(f"compiling the {name}", is_shown=is_terminal(sys.stderr)):
            yield
        line = f"compiled the {name} in {time.perf_counter() - begin:.1f} s"
        logger.info("%s", line)
        if verbose:
            write(line, sys.stderr)

    return report


@contextmanager
def _status(line: str, *, is_shown: bool) -> Iterator[None]:
    """Show a line with a spinner in the `with` block, if `is_shown`."""
    if not is_shown:
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(visible(line))):
        yield
