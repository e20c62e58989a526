"""Sizes and weights of small models, one architecture for each way a model remembers.

llama: attention. gemma3: attention with a sliding window. mamba: a recurrent state. lfm2: both (short convolutions, whose
state is recurrent, and attention in every third layer). Names and shapes of tensors: `src/models/*.cpp` of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import gguf
import numpy as np

LOGIT_DEVIATION = 2.5
"""Standard deviation of the raw logits, in nats: the best of 500 tokens then has a
probability of about 0.15.
"""
EPSILON = 1e-6
CONVOLUTION = 4
STATE = 16
WINDOW = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model. tied: whether the output matrix is the embedding. add_bos:
    whether `<|begin|>` goes before every prompt.
    """

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    context: int
    tied: bool = False
    add_bos: bool = True

    @property
    def head(self) -> int:
        """Return the width of a head."""
        return self.width // self.heads

    def has_attention(self, layer: int) -> bool:
        """Tell whether a layer has attention: every third layer of a hybrid, no layer
        of a recurrent model, every layer of the others.
        """
        return self.architecture != "mamba" and (self.architecture != "lfm2" or layer % 3 == 2)


SHAPES = {
    "tiny": Shape("llama", 2, 64, 4, 2, 128, 512, 1024),
    "wide": Shape("llama", 2, 256, 4, 2, 512, 768, 1024),
    "0.5b": Shape("llama", 24, 896, 14, 2, 4864, 151_936, 32_768, tied=True, add_bos=False),
    "sliding-window": Shape("gemma3", 6, 64, 4, 2, 128, 512, 1024),
    "recurrent": Shape("mamba", 3, 64, 0, 0, 0, 512, 1024),
    "hybrid": Shape("lfm2", 6, 64, 4, 2, 128, 512, 1024),
}
"""wide has rows that are multiples of 256, as the K formats need. 0.5b has the sizes of
Qwen2-0.5B.
"""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of random weights, normal or in blocks.

    precise: whether they are kept at float32 whatever the quantisation. mean: the mean
    of float32 weights. fine: whether they are in the part that q4_k_m gives six bits.
    """

    name: str
    shape: tuple[int, ...]
    deviation: float
    mean: float = 0.0
    precise: bool = False
    fine: bool = False


def _ones(name: str, n: int) -> Tensor:
    return Tensor(name, (n,), 0.0, 1.0, precise=True)


def _matrix(name: str, rows: int, columns: int, *, fine: bool = False) -> Tensor:
    """Return a matrix of unit gain, so that every layer adds about as much to the
    residual stream.
    """
    return Tensor(name, (rows, columns), 1 / np.sqrt(columns), fine=fine)


def tensors(sizes: Shape) -> Iterator[Tensor]:
    """Yield every tensor of a model, in file order."""
    deviation = LOGIT_DEVIATION / np.sqrt(sizes.width)
    yield Tensor("token_embd.weight", (sizes.vocabulary, sizes.width), deviation, fine=sizes.tied)
    for layer in range(sizes.layers):
        for tensor in _layer(sizes, layer):
            yield Tensor(f"blk.{layer}.{tensor.name}", *_fields(tensor))
    yield _ones("token_embd_norm.weight" if sizes.architecture == "lfm2" else "output_norm.weight", sizes.width)
    if not sizes.tied:
        yield Tensor("output.weight", (sizes.vocabulary, sizes.width), deviation, fine=True)


def _fields(tensor: Tensor) -> tuple[tuple[int, ...], float, float, bool, bool]:
    return tensor.shape, tensor.deviation, tensor.mean, tensor.precise, tensor.fine


def _layer(sizes: Shape, layer: int) -> Iterator[Tensor]:
    yield _ones("attn_norm.weight", sizes.width)
    if sizes.architecture == "mamba":
        yield from _mamba(sizes)
        return
    better = layer % 2 == 1
    yield from _attention(sizes, fine=better) if sizes.has_attention(layer) else _convolution(sizes)
    if sizes.architecture == "gemma3":
        yield _ones("post_attention_norm.weight", sizes.width)
        yield _ones("post_ffw_norm.weight", sizes.width)
    yield _ones("ffn_norm.weight", sizes.width)
    yield _matrix("ffn_gate.weight", sizes.feed_forward, sizes.width)
    yield _matrix("ffn_up.weight", sizes.feed_forward, sizes.width)
    yield _matrix("ffn_down.weight", sizes.width, sizes.feed_forward, fine=better)


def _attention(sizes: Shape, *, fine: bool) -> Iterator[Tensor]:
    kv_width = sizes.head * sizes.kv_heads
    yield _matrix("attn_q.weight", sizes.width, sizes.width)
    yield _matrix("attn_k.weight", kv_width, sizes.width)
    yield _matrix("attn_v.weight", kv_width, sizes.width, fine=fine)
    yield _matrix("attn_output.weight", sizes.width, sizes.width)
    if sizes.architecture in ("gemma3", "lfm2"):
        yield _ones("attn_q_norm.weight", sizes.head)
        yield _ones("attn_k_norm.weight", sizes.head)


def _convolution(sizes: Shape) -> Iterator[Tensor]:
    deviation = 1 / np.sqrt(CONVOLUTION)
    yield Tensor("shortconv.conv.weight", (sizes.width, CONVOLUTION), deviation, precise=True)
    yield _matrix("shortconv.in_proj.weight", 3 * sizes.width, sizes.width)
    yield _matrix("shortconv.out_proj.weight", sizes.width, sizes.width)


def _mamba(sizes: Shape) -> Iterator[Tensor]:
    """Yield the tensors of a Mamba block.

    Step sizes are about softplus(-1) = 0.3 and decay rates about -1, so the state
    forgets within a few tokens.
    """
    inner, rank = 2 * sizes.width, sizes.width // 16
    yield _matrix("ssm_in.weight", 2 * inner, sizes.width)
    yield Tensor("ssm_conv1d.weight", (inner, CONVOLUTION), 1 / np.sqrt(CONVOLUTION), precise=True)
    yield Tensor("ssm_conv1d.bias", (inner,), 0.0, precise=True)
    yield _matrix("ssm_x.weight", rank + 2 * STATE, inner)
    yield Tensor("ssm_dt.weight", (inner, rank), 1 / np.sqrt(rank), precise=True)
    yield Tensor("ssm_dt.bias", (inner,), 0.5, -1.0, precise=True)
    yield Tensor("ssm_a", (inner, STATE), 0.1, -1.0, precise=True)
    yield _ones("ssm_d", inner)
    yield _matrix("ssm_out.weight", sizes.width, inner)


def add_sizes(writer: gguf.GGUFWriter, sizes: Shape) -> None:
    """Write the sizes as llama.cpp reads them for the architecture."""
    writer.add_context_length(sizes.context)
    writer.add_embedding_length(sizes.width)
    writer.add_block_count(sizes.layers)
    writer.add_feed_forward_length(sizes.feed_forward)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_vocab_size(sizes.vocabulary)
    writer.add_head_count(sizes.heads)
    if sizes.architecture == "mamba":
        writer.add_ssm_conv_kernel(CONVOLUTION)
        writer.add_ssm_inner_size(2 * sizes.width)
        writer.add_ssm_state_size(STATE)
        writer.add_ssm_time_step_rank(sizes.width // 16)
        return
    writer.add_rope_dimension_count(sizes.head)
    writer.add_rope_freq_base(10_000.0)
    if sizes.architecture == "lfm2":
        writer.add_head_count_kv([sizes.kv_heads * sizes.has_attention(layer) for layer in range(sizes.layers)])
        writer.add_shortconv_l_cache(CONVOLUTION)
        return
    writer.add_head_count_kv(sizes.kv_heads)
    if sizes.architecture == "gemma3":
        writer.add_key_length(sizes.head)
        writer.add_value_length(sizes.head)
        writer.add_sliding_window(WINDOW)
