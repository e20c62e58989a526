"""Write a small GGUF with random weights and a real byte-level tokenizer: `python tools/make_model.py out.gguf`.

The same arguments give the same bytes. The weights know nothing; they are scaled so that the next-token distribution has
a spread of a few nats, like a trained model's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

import byte_bpe
import random_blocks

LOGIT_DEVIATION = 2.5
"""Of the raw logits, in nats: the best of 500 tokens then has a probability of about 0.15."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Llama. tied: the output matrix is the embedding. add_bos: `<|begin|>` goes before every prompt."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    context: int
    tied: bool
    add_bos: bool

    @property
    def kv_width(self) -> int:
        """Columns of the key and value matrices."""
        return self.width // self.heads * self.kv_heads


SHAPES = {
    "tiny": Shape(2, 64, 4, 2, 128, 512, 1024, tied=False, add_bos=True),
    "wide": Shape(2, 256, 4, 2, 512, 768, 1024, tied=False, add_bos=True),
    "0.5b": Shape(24, 896, 14, 2, 4864, 151_936, 32_768, tied=True, add_bos=False),
}
"""wide: rows are multiples of 256, as the K formats need. 0.5b: the sizes of Qwen2-0.5B."""

FILE_TYPES = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
    "q4_k_m": gguf.LlamaFileType.MOSTLY_Q4_K_M,
}
QUANTISATIONS = tuple(FILE_TYPES)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One matrix of random weights: its name, format, rows x columns and their standard deviation."""

    name: str
    format: str
    rows: int
    columns: int
    deviation: float


def make_model(path: Path | str, *, shape: str = "tiny", quantisation: str = "f32", seed: int = 1) -> Path:
    """Write the model and return its path.

    Raises ValueError for an unknown shape or quantisation, and where rows do not fill whole blocks of the format.
    """
    if shape not in SHAPES:
        raise ValueError(f"shape={shape!r}: expected one of {', '.join(SHAPES)}")
    if quantisation not in FILE_TYPES:
        raise ValueError(f"quantisation={quantisation!r}: expected one of {', '.join(FILE_TYPES)}")
    sizes = SHAPES[shape]
    if quantisation == "q4_k_m" and sizes.width % 256:
        raise ValueError(f"quantisation={quantisation!r}: needs rows of 256 weights, {shape!r} has {sizes.width}")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"random-{shape}-{quantisation}")
    writer.add_description("random weights: for tests and benchmarks, not for answers")
    writer.add_file_type(FILE_TYPES[quantisation])
    _add_sizes(writer, sizes)
    _add_tokenizer(writer, sizes)
    _write_tensors(writer, list(_matrices(sizes, quantisation)), sizes, seed)
    writer.close()
    return Path(path)


def _add_sizes(writer: gguf.GGUFWriter, sizes: Shape) -> None:
    writer.add_context_length(sizes.context)
    writer.add_embedding_length(sizes.width)
    writer.add_block_count(sizes.layers)
    writer.add_feed_forward_length(sizes.feed_forward)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(sizes.width // sizes.heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(sizes.vocabulary)


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


def _matrices(sizes: Shape, quantisation: str) -> Iterator[Tensor]:
    """The matrices in file order. Rows have unit gain, so that every layer adds about as much to the residual stream.

    q4_k_m mixes formats as llama.cpp does: six bits for the output, and for values and `ffn_down` of half the layers.
    """
    mixed = quantisation == "q4_k_m"
    base = "Q4_K" if mixed else quantisation.upper()
    fine = "Q6_K" if mixed else base
    width, ff = sizes.width, sizes.feed_forward
    embedding = LOGIT_DEVIATION / np.sqrt(width)
    yield Tensor("token_embd.weight", fine if sizes.tied else base, sizes.vocabulary, width, embedding)
    for layer in range(sizes.layers):
        better = fine if layer % 2 else base
        for name, rows, columns, kind in (
            ("attn_q", width, width, base),
            ("attn_k", sizes.kv_width, width, base),
            ("attn_v", sizes.kv_width, width, better),
            ("attn_output", width, width, base),
            ("ffn_gate", ff, width, base),
            ("ffn_up", ff, width, base),
            ("ffn_down", width, ff, better),
        ):
            yield Tensor(f"blk.{layer}.{name}.weight", kind, rows, columns, 1 / np.sqrt(columns))
    if not sizes.tied:
        yield Tensor("output.weight", fine, sizes.vocabulary, width, embedding)


def _write_tensors(writer: gguf.GGUFWriter, matrices: list[Tensor], sizes: Shape, seed: int) -> None:
    """Header, then one tensor at a time: never more than one matrix in memory."""
    norms = ["output_norm.weight"]
    norms += [f"blk.{layer}.{name}_norm.weight" for layer in range(sizes.layers) for name in ("attn", "ffn")]
    for tensor in matrices:
        kind = gguf.GGMLQuantizationType[tensor.format]
        block, n_bytes = gguf.GGML_QUANT_SIZES[kind]
        size = tensor.rows * tensor.columns // block * n_bytes
        writer.add_tensor_info(tensor.name, (tensor.rows, tensor.columns), np.dtype(np.float32), size, raw_dtype=kind)
    for name in norms:
        writer.add_tensor_info(name, (sizes.width,), np.dtype(np.float32), sizes.width * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for i, tensor in enumerate(matrices):
        fill = random_blocks.FORMATS[tensor.format]
        writer.write_tensor_data(fill(np.random.default_rng([seed, i]), tensor.rows, tensor.columns, tensor.deviation))
    for _ in norms:
        writer.write_tensor_data(np.ones(sizes.width, dtype=np.float32))


def main() -> None:
    """Entry point of the script."""
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
