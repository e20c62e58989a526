"""Write a small GGUF with random weights and a real byte-level tokenizer: `python tools/make_model.py out.gguf`.

The same arguments give the same bytes. The weights know nothing; they are scaled so that the next-token distribution has
a spread of a few nats, like a trained model's.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

import architectures
import byte_bpe
import random_blocks
from architectures import SHAPES, Shape, Tensor

FILE_TYPES = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
    "q4_k_m": gguf.LlamaFileType.MOSTLY_Q4_K_M,
}
QUANTISATIONS = tuple(FILE_TYPES)


def make_model(
    path: Path | str,
    *,
    shape: str = "tiny",
    quantisation: str = "f32",
    seed: int = 1,
    tokenizer: Path | None = None,
) -> Path:
    """Write the model and return its path.

    tokenizer: a GGUF whose tokenizer the model gets instead of a made one. Raises
    ValueError for an unknown shape or quantisation, if rows do not fill whole blocks of
    the format, and for a tokenizer of another size than the shape's.
    """
    if shape not in SHAPES:
        raise ValueError(f"shape={shape!r}: expected one of {', '.join(SHAPES)}")
    if quantisation not in FILE_TYPES:
        raise ValueError(f"quantisation={quantisation!r}: expected one of {', '.join(FILE_TYPES)}")
    sizes = SHAPES[shape]
    if quantisation == "q4_k_m" and sizes.width % 256:
        raise ValueError(f"quantisation={quantisation!r}: needs rows of 256 weights, {shape!r} has {sizes.width}")
    writer = gguf.GGUFWriter(path, sizes.architecture)
    writer.add_name(f"random-{shape}-{quantisation}")
    writer.add_description("random weights: for tests and benchmarks, not for answers")
    writer.add_file_type(FILE_TYPES[quantisation])
    architectures.add_sizes(writer, sizes)
    if tokenizer is None:
        _add_tokenizer(writer, sizes)
    else:
        _copy_tokenizer(writer, sizes, tokenizer)
    _write_tensors(writer, sizes, quantisation, seed)
    writer.close()
    return Path(path)


def _add_tokenizer(writer: gguf.GGUFWriter, sizes: Shape) -> None:
    vocabulary = byte_bpe.build(sizes.vocabulary)
    kinds = np.full(sizes.vocabulary, gguf.TokenType.NORMAL, dtype=np.int32)
    kinds[vocabulary.n_real :] = gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(kinds.tolist())
    writer.add_token_merges(vocabulary.merges)
    writer.add_bos_token_id(vocabulary.id("<|begin|>"))
    writer.add_eos_token_id(vocabulary.id("<|endoftext|>"))
    writer.add_eot_token_id(vocabulary.id("<|im_end|>"))
    writer.add_add_bos_token(sizes.add_bos)
    writer.add_add_space_prefix(value=False)
    writer.add_chat_template(byte_bpe.CHAT_TEMPLATE)


def _copy_tokenizer(writer: gguf.GGUFWriter, sizes: Shape, source: Path) -> None:
    """Copy everything that the header of another file says about its tokenizer."""
    fields = {name: one for name, one in gguf.GGUFReader(source).fields.items() if name.startswith("tokenizer.")}
    n_tokens = len(fields["tokenizer.ggml.tokens"].data)
    if n_tokens != sizes.vocabulary:
        raise ValueError(f"tokenizer={str(source)!r}: has {n_tokens} tokens, the shape {sizes.vocabulary}")
    for name, one in fields.items():
        element = one.types[-1] if one.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, one.contents(), one.types[0], element)


def _format(tensor: Tensor, quantisation: str) -> gguf.GGMLQuantizationType:
    """Return the format of a tensor.

    q4_k_m mixes two formats as llama.cpp does: six bits for the output, and for values
    and `ffn_down` of half the layers.
    """
    if tensor.precise:
        return gguf.GGMLQuantizationType.F32
    if quantisation == "q4_k_m":
        return gguf.GGMLQuantizationType.Q6_K if tensor.fine else gguf.GGMLQuantizationType.Q4_K
    return gguf.GGMLQuantizationType[quantisation.upper()]


def _weights(tensor: Tensor, kind: gguf.GGMLQuantizationType, rng: np.random.Generator) -> NDArray[Any]:
    if tensor.precise:
        normal = rng.standard_normal(tensor.shape, dtype=np.float32)
        return np.float32(tensor.mean) + np.float32(tensor.deviation) * normal
    rows, columns = tensor.shape
    return random_blocks.FORMATS[kind.name](rng, rows, columns, tensor.deviation)


def _write_tensors(writer: gguf.GGUFWriter, sizes: Shape, quantisation: str, seed: int) -> None:
    """Write the header, then one tensor at a time, so that memory never holds more than
    one matrix.
    """
    tensors = [(tensor, _format(tensor, quantisation)) for tensor in architectures.tensors(sizes)]
    for tensor, kind in tensors:
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        n_bytes = int(np.prod(tensor.shape)) // block * block_bytes
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), n_bytes, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for i, (tensor, kind) in enumerate(tensors):
        writer.write_tensor_data(_weights(tensor, kind, np.random.default_rng([seed, i])))


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="file to write")
    parser.add_argument("--shape", default="tiny", choices=tuple(SHAPES))
    parser.add_argument("--quantisation", default="f32", choices=QUANTISATIONS)
    parser.add_argument("--seed", default=1, type=int)
    options = parser.parse_args()
    options.path.parent.mkdir(parents=True, exist_ok=True)
    make_model(options.path, shape=options.shape, quantisation=options.quantisation, seed=options.seed)
    print(f"{options.path}: {options.path.stat().st_size:,} bytes of random weights")


if __name__ == "__main__":
    main()
