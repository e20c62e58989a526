"""Opens Transformers models, and estimates the memory that they take."""

from __future__ import annotations

import json
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from selectrie.backends.transformers import checkpoint
from selectrie.backends.transformers.cells import bytes_of, cells_for, length_of, states_for
from selectrie.backends.transformers.checkpoint import CONFIG, Checkpoint
from selectrie.backends.transformers.model import TransformersModel, nodes_and_rows, open_module
from selectrie.backends.transformers.module import cache_in, max_positions_of, may_have_cells, threads
from selectrie.backends.transformers.options import TransformersOptions
from selectrie.backends.transformers.vocabulary import open_tokenizer, read_vocabulary
from selectrie.core.types import Precision
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import (
    ModelError,
    ModelFileError,
    OptionError,
    SelectrieError,
    UnsupportedModelError,
    clip,
    remedies,
    words,
)

logger = logging.getLogger(__name__)

_MAX_NAMES = 3
_SAMPLES = 1024
"""Minimum number of elements that a digest covers of a larger tensor."""
_NUMBER = re.compile(r"\.(\d+)(?=\.)", re.ASCII)
"""Matches the number of a layer, or of an expert, in the name of a tensor."""
_WHOLE_NUMBERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class OpenedModule:
    """A module with its weights and its vocabulary.

    Attributes:
        module: The module.
        vocabulary: The vocabulary of its token ids.
        name: Name of the model, for messages and signatures.
        digest: Digest of its weights.
    """

    module: Any
    vocabulary: Vocabulary
    name: str
    digest: str


def open_model(source: Any, options: TransformersOptions | None = None) -> TransformersModel:
    """Open a checkpoint, or a loaded module, as a model.

    Args:
        source: The `Path` of a folder, or an `AutoModelForCausalLM`. A module is used
            as it is until `close`, see `open_module`; the option `tokenizer` is then
            required.
        options: See `TransformersOptions`.

    Raises:
        OptionError: An option is invalid or does not fit the model.
        ModelError: As for `open_source`, or there is no memory for the contexts.
    """
    options = options or TransformersOptions()
    with quiet(options.verbose), threads(options.n_threads):
        opened = open_source(source, options)
        return open_module(opened.module, opened.vocabulary, options, name=opened.name, digest=opened.digest)


def open_source(source: Any, options: TransformersOptions) -> OpenedModule:
    """Load a checkpoint with its vocabulary, or find the vocabulary of a module.

    Nothing is downloaded, no code of a folder is run, and only safetensors are read.

    Args:
        source: As for `open_model`.
        options: As for `open_model`.

    Raises:
        ModelFileError: A file is missing, damaged, truncated or cannot be read.
        UnsupportedModelError: The model or its tokenizer is of a kind that is not
            supported.
        OptionError: An option is invalid or does not fit the model.
        ModelError: There is no memory for the weights.
    """
    return _open_folder(source, options) if isinstance(source, Path) else _open_module(source, options)


def _open_folder(folder: Path, options: TransformersOptions) -> OpenedModule:
    """Load a checkpoint; raises as `open_source` does."""
    device = find_device(options.device)
    found = checkpoint.read_checkpoint(folder)
    config = read_config(found)
    tokenizer = _tokenizer(options, folder)
    digest = checkpoint.digest(folder)
    module = _load(found, config, options, device)
    name = name_of_folder(folder)
    vocabulary = read_vocabulary(
        tokenizer, n_tokens=_n_logits(module, name), eos_token_ids=_end_tokens(module), name=str(folder)
    )
    return OpenedModule(module, vocabulary, name, digest)


def name_of_folder(folder: Path) -> str:
    """Return the name of a checkpoint: its folder's, or its repository's in the hub.

    The hub keeps a revision in `models--OWNER--NAME/snapshots/HASH`.
    """
    revision = folder.absolute()
    kept = revision.parent.parent.name
    is_of_hub = revision.parent.name == "snapshots" and kept.startswith("models--")
    return kept.rsplit("--", 1)[-1] if is_of_hub else revision.name


def _open_module(module: Any, options: TransformersOptions) -> OpenedModule:
    """Find the vocabulary of a loaded module; raises as `open_source` does."""
    name = type(module).__name__
    config = getattr(module, "config", None)
    if not isinstance(module, nn.Module) or not hasattr(config, "get_text_config"):
        raise UnsupportedModelError(name, "is no model of Transformers; pass an AutoModelForCausalLM")
    if options.tokenizer is None:
        raise OptionError("tokenizer", None, "the tokenizer of the model that is passed: load(model, tokenizer=…)")
    name = Path(str(getattr(config, "name_or_path", "") or name)).name
    tokenizer = _tokenizer(options, None)
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(name, "has an encoder; a decoder-only language model is needed")
    vocabulary = read_vocabulary(
        tokenizer, n_tokens=_n_logits(module, name), eos_token_ids=_end_tokens(module), name=name
    )
    return OpenedModule(module, vocabulary, name, _module_digest(module))


def read_config(found: Checkpoint) -> Any:
    """Return the configuration of a checkpoint as Transformers reads it.

    Raises:
        ModelFileError: If it is damaged.
        UnsupportedModelError: If Transformers has no such model. Code that is part of
            the checkpoint is never run.
    """
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    path, kind = found.folder / CONFIG, found.config.get("model_type")
    if not isinstance(kind, str):
        raise ModelFileError(str(path), "has no model_type; get the file again")
    if kind not in CONFIG_MAPPING:
        remote = "auto_map" in found.config
        reason = (
            f"model_type {clip(repr(kind), 60)} needs code that comes with the model (auto_map), which is never run; "
            "take a model that Transformers itself knows"
            if remote
            else f"Transformers does not know model_type {clip(repr(kind), 60)}; update transformers if it is new"
        )
        raise UnsupportedModelError(str(found.folder), reason)
    try:
        config = AutoConfig.from_pretrained(str(found.folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise ModelFileError(str(path), f"cannot be used: {_describe_error(error)}; get the file again") from error
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(str(found.folder), "has an encoder; a decoder-only language model is needed")
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise UnsupportedModelError(
            str(found.folder), f"Transformers has no causal language model of the kind {kind!r}; pass one that has"
        )
    _require_known_quantisation(found, config)
    config._attn_implementation = None  # the one in the file may not be installed
    return config


def quantisation_of(config: Any) -> str | None:
    """Return the name of the method by which a checkpoint is quantised, or None."""
    given = getattr(config, "quantization_config", None)
    if given is None:
        return None
    method = given.get("quant_method") if isinstance(given, dict) else getattr(given, "quant_method", None)
    return str(getattr(method, "value", method))


def _require_known_quantisation(found: Checkpoint, config: Any) -> None:
    """Raise `UnsupportedModelError` if Transformers does not know the quantisation.

    Transformers would load such weights as if they were not quantised.
    """
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

    method = quantisation_of(config)
    names = (method, f"{method}_4bit", f"{method}_8bit")
    if method is not None and not any(name in AUTO_QUANTIZER_MAPPING for name in names):
        reason = f"is quantised by {clip(repr(method), 60)}, which Transformers does not know"
        raise UnsupportedModelError(str(found.folder), f"{reason}; update transformers if it is new")


def find_device(name: str | int | None) -> torch.device:
    """Return the device with a name. None means a GPU if there is one.

    Raises `OptionError` if there is no such device.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    there = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        there.append("mps")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise OptionError("device", name, f"a device that is here: {', '.join(there)}") from error
    shown = str(device) if device.index is not None or device.type != "cuda" else "cuda:0"
    if shown not in there:
        raise OptionError("device", name, f"a device that is here: {', '.join(there)}")
    return device


def dtype_for(options: TransformersOptions) -> str:
    """Return the name of the type that weights are loaded in.

    "auto" means the checkpoint's own type.
    """
    if options.dtype is not None:
        return options.dtype
    return "float32" if options.precision is Precision.EXACT else "auto"


def make_skeleton(found: Checkpoint, config: Any) -> Any:
    """Make the module of a checkpoint on torch's `meta` device, without its weights.

    Raises `ModelFileError` if the files hold fewer weights than the configuration
    describes.
    """
    from transformers import AutoModelForCausalLM

    path = found.folder / CONFIG
    n_layers = getattr(config.get_text_config(), "num_hidden_layers", None)
    if isinstance(n_layers, int) and n_layers > len(found.tensors):
        reason = f"says {n_layers} layers, the weights are {len(found.tensors)} tensors"
        raise ModelFileError(str(path), f"{reason}; get the files again, both of one model")
    try:
        with torch.device("meta"):
            module = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:
        raise ModelFileError(str(path), f"Transformers cannot make this model: {_describe_error(error)}") from error
    if getattr(config, "quantization_config", None) is None:
        n_expected, n_there = sum(p.numel() for p in module.parameters()), _n_numbers(found)
        if n_expected > n_there:
            reason = f"describes {n_expected} weights, the files hold {n_there}"
            raise ModelFileError(str(path), f"{reason}; get the files again, all of one model")
    return module


def _n_numbers(found: Checkpoint) -> int:
    return sum(entry.n_numbers for entry in found.tensors.values())


def _load(found: Checkpoint, config: Any, options: TransformersOptions, device: torch.device) -> Any:
    """Load the module of a checkpoint with its weights; raises as `open_source`."""
    from transformers import AutoModelForCausalLM

    make_skeleton(found, config)
    folder = str(found.folder)
    try:
        module, report = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype_for(options),
            device_map={"": device} if getattr(config, "quantization_config", None) is not None else None,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # mismatches are then reported, and refused below
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (torch.OutOfMemoryError, MemoryError) as error:
        remedy = remedies(operator="free memory, or load it by `precision='fast'`")
        raise ModelError(words("{}: no memory for the weights; {}", folder, remedy)) from error
    except SelectrieError:
        raise
    except ImportError as error:
        method = quantisation_of(config)
        by = "" if method is None else f"is quantised by {method!r} and "
        raise UnsupportedModelError(
            folder, f"{by}needs a package that is not installed: {_describe_error(error)}"
        ) from error
    except Exception as error:
        method = quantisation_of(config)
        if method is not None:
            reason = f"is quantised by {method!r}, which Transformers cannot load here: {_describe_error(error)}"
            raise UnsupportedModelError(folder, f"{reason}; take a version that is not quantised") from error
        raise ModelFileError(
            folder, f"Transformers cannot load it: {_describe_error(error)}; get the files again"
        ) from error
    _require_all_layers(found, module, report.get("unexpected_keys", ()))
    missing = sorted({*report.get("missing_keys", ()), *(one[0] for one in report.get("mismatched_keys", ()))})
    if missing:
        reason = f"its weights lack tensors of the model, or have them in another shape: {_list_names(missing)}"
        raise ModelFileError(folder, f"{reason}; get the files again")
    try:
        return module if getattr(module, "hf_quantizer", None) is not None else module.to(device)
    except (torch.OutOfMemoryError, RuntimeError) as error:
        raise ModelError(f"{folder}: no memory for the weights on {device}: {_describe_error(error)}") from error


def _require_all_layers(found: Checkpoint, module: Any, unused: Iterable[str]) -> None:
    """Raise `ModelFileError` if the files have layers that the module does not have.

    Transformers ignores the tensors of such layers with a warning. A model that has
    layers to predict further tokens (`num_nextn_predict_layers`) is not checked: these
    are numbered after the others, and are not used.
    """
    if getattr(module.config.get_text_config(), "num_nextn_predict_layers", None):
        return
    base = f"{module.base_model_prefix}."
    lists = {name: len(part) for name, part in module.named_modules() if isinstance(part, nn.ModuleList)}
    lists |= {name.removeprefix(base): n for name, n in lists.items()}  # names in files of a model without a head
    more = sorted(
        name
        for name in unused
        for number in _NUMBER.finditer(name)
        if int(number[1]) >= lists.get(name[: number.start()], math.inf)
    )
    if more:
        reason = f"describes fewer layers than the files hold: {_list_names(more)} would not be used"
        raise ModelFileError(str(found.folder / CONFIG), f"{reason}; get the files again, all of one model")


def _list_names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def _tokenizer(options: TransformersOptions, folder: Path | None) -> Any:
    """Return the tokenizer of the options, or that of the checkpoint's folder."""
    given = options.tokenizer
    if given is None and folder is not None:
        return open_tokenizer(folder)
    if isinstance(given, str | Path):
        if not Path(given).is_dir():
            raise OptionError("tokenizer", str(given), "a loaded tokenizer, or the path of a folder with one")
        return open_tokenizer(Path(given))
    return given


def _n_logits(module: Any, name: str) -> int:
    """Return the number of logits of a row, from the shape of the head."""
    head = module.get_output_embeddings()
    if head is None or getattr(head, "weight", None) is None:
        raise UnsupportedModelError(name, "has no language model head; load it by AutoModelForCausalLM")
    return int(getattr(head, "out_features", None) or head.weight.shape[0])


def _end_tokens(module: Any) -> Any:
    """Return the `eos_token_id` of a module's generation configuration, or None."""
    generation = getattr(module, "generation_config", None)
    return getattr(generation, "eos_token_id", None)


def _module_digest(module: Any) -> str:
    """Return the digest of a module.

    It covers the configuration and, for each tensor, some of its elements and the sum
    of all, both read as integers.
    """
    state = blake2b(json.dumps(module.config.to_dict(), sort_keys=True, default=str).encode(), digest_size=16)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            state.update(f"{name}|{tuple(tensor.shape)}|{tensor.dtype}|".encode())
            if not isinstance(tensor, torch.Tensor) or tensor.device.type == "meta":
                continue
            numbers = tensor.reshape(-1)
            numbers = numbers.view(_WHOLE_NUMBERS[numbers.element_size()])
            step = max(1, numbers.numel() // _SAMPLES)
            state.update(numbers[::step].contiguous().cpu().numpy().tobytes())
            # A sum of integers does not depend on their order.
            state.update(str(int(numbers.sum(dtype=torch.int64))).encode())
    return f"blake2b-sampled:{state.hexdigest()}"


def _describe_error(error: Exception) -> str:
    """Return the type and message of another package's error, in one line."""
    text = " ".join(str(error).split())
    return clip(f"{type(error).__name__}: {text}", 300)


@contextmanager
def quiet(verbose: bool) -> Iterator[None]:  # noqa: FBT001 - one option
    """Suppress warnings and progress bars in the `with` block, unless `verbose`."""
    if verbose:
        yield
        return
    from transformers.utils import logging as transformers_logging

    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(transformers_logging.CRITICAL)
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


_UNPACKED = ("fp8", "mxfp4")
"""Quantisations whose weights stay packed on a GPU, and are unpacked elsewhere."""
_TYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """The memory that a model takes, in bytes.

    Attributes:
        weights: The weights, in the type that they are loaded in.
        contexts: The cells, those of a prefix included, and the bits that say which
            cells each row sees; or as many states as are kept at most.
        n_cells: Number of cells (not bytes); 0 if contexts are states.
        call: The logits of the largest call, twice: the model's own and a copy.
    """

    weights: int
    contexts: int
    n_cells: int
    call: int

    @property
    def total(self) -> int:
        """Return the sum of weights, contexts and call."""
        return self.weights + self.contexts + self.call


def memory_needed(folder: Path, options: TransformersOptions) -> int:
    """Return an upper bound on the bytes of a checkpoint's weights and contexts.

    In `exact` precision cells count twice, because a second context is kept, in which
    scores that are too close to call are evaluated again. See `memory_needs`.
    """
    needs = memory_needs(folder, options)
    has_second = options.precision is Precision.EXACT and needs.n_cells
    return needs.total + (needs.contexts if has_second else 0)


def memory_needs(
    folder: Path,
    options: TransformersOptions,
    *,
    rows: int | None = None,
    cells_of: Callable[[int, int], int] = cells_for,
) -> MemoryNeeds:
    """Return the bytes that a checkpoint takes when it is opened with these options.

    The headers of its files are read, and the model is called with a few tokens on
    torch's `meta` device, where tensors have shapes but no data. The size of a cell or
    a state follows from the cache that it returns. Not included are one layer's
    activations.

    Args:
        folder: The folder of the checkpoint.
        options: The options.
        rows: Maximum number of rows of a call; None to compute it from the options.
        cells_of: Returns the number of cells of a model, from its maximum numbers of
            nodes and of rows of a call.

    Raises:
        ModelFileError: A file is missing, damaged, truncated or cannot be read.
        UnsupportedModelError: The model is of a kind that does not work.
        OptionError: The device is not there.
    """
    with quiet(options.verbose):
        device = find_device(options.device)
        found = checkpoint.read_checkpoint(folder)
        config = read_config(found)
        module = make_skeleton(found, config)
        dtype = _dtype(found, config, options)
        weights = _weight_bytes(found, config, module, dtype, device)
        text = config.get_text_config()
        shapes = _cache_shapes(module, dtype)
        n_vocabulary = shapes.n_vocabulary or int(getattr(text, "vocab_size", 0)) or 1
        nodes, usual_rows = nodes_and_rows(options, text, n_vocabulary, max_positions_of(text))
        rows = rows or usual_rows
        n_cells = cells_of(nodes, rows) if shapes.is_cells else 0
        if shapes.is_cells:
            n_prefix = 0 if options.prefix is None else length_of(options.prefix)  # those of `nodes` are copies
            contexts = (n_cells + n_prefix) * shapes.cell_bytes + (n_cells + 1) * (n_cells // 8)
        else:
            state = shapes.state_bytes + shapes.cell_bytes * nodes
            contexts = state * states_for(state, device)
        return MemoryNeeds(weights, contexts, n_cells, 8 * rows * n_vocabulary)


@dataclass(frozen=True, slots=True)
class _CacheShapes:
    """The size of a model's cache.

    Attributes:
        is_cells: Whether contexts are kept in cells; otherwise they are states.
        cell_bytes: Bytes that the cache grows by with each token.
        state_bytes: Bytes of a context's cache that do not depend on its length.
        n_vocabulary: Number of logits of a row; 0 if it is not known.
    """

    is_cells: bool
    cell_bytes: int
    state_bytes: int
    n_vocabulary: int


def _cache_shapes(module: Any, dtype: torch.dtype) -> _CacheShapes:
    """Return the size of a module's cache, from calls on the meta device.

    The caches of two and of four tokens are compared. If the module cannot be called
    there, the size is that of the keys and values of all heads.
    """
    for experts in (part for part in module.modules() if hasattr(part, "_is_expert_parallel")):
        experts.forward = _return_hidden  # without data it is not known which rows an expert gets
    module = module.eval().to(dtype)
    try:
        with torch.no_grad():
            sizes, cache, n_vocabulary = [], None, 0
            for n_tokens in (2, 4):
                ids = torch.zeros((1, n_tokens), dtype=torch.long, device="meta")
                result = module(input_ids=ids, use_cache=True)
                cache = cache_in(result)
                sizes.append(bytes_of(cache))
                n_vocabulary = int(result.logits.shape[-1])
    except Exception:  # noqa: BLE001 - a model's own code may raise anything without data
        text = module.config.get_text_config()
        cell = 2 * dtype.itemsize * int(text.num_hidden_layers) * int(text.hidden_size)
        return _CacheShapes(is_cells=True, cell_bytes=cell, state_bytes=0, n_vocabulary=0)
    cell = (sizes[1] - sizes[0]) // 2
    return _CacheShapes(may_have_cells(module, cache), cell, sizes[0] - 2 * cell, n_vocabulary)


def _return_hidden(hidden: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
    return hidden


def _dtype(found: Checkpoint, config: Any, options: TransformersOptions) -> torch.dtype:
    """Return the type that weights are loaded in, with "auto" resolved."""
    name = dtype_for(options)
    if name == "auto":
        own = getattr(config, "dtype", None)
        types = [_TYPES[entry.dtype] for entry in found.tensors.values() if entry.dtype in _TYPES]
        name = str(own).removeprefix("torch.") if own is not None else next(iter(types), "float32")
    dtype: torch.dtype = getattr(torch, name, torch.float32)
    return dtype


def _weight_bytes(found: Checkpoint, config: Any, module: Any, dtype: torch.dtype, device: torch.device) -> int:
    """Return the bytes of the weights; for quantised weights, the size of the files.

    Weights that are unpacked when they are loaded count as if they were not quantised.
    """
    method = quantisation_of(config)
    if method is not None and (method not in _UNPACKED or device.type == "cuda"):
        return sum(path.stat().st_size for path in found.files)
    parameters: int = sum(p.numel() for p in module.parameters()) * dtype.itemsize
    buffers: int = sum(b.numel() * b.element_size() for b in module.buffers())
    return parameters + buffers
