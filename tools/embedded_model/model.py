"""The embedded model in PyTorch: a Llama whose tensors carry the names and layouts that llama.cpp reads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from embedded_model.config import Config


class Attention(nn.Module):
    """Causal self-attention with rotary positions over neighbouring pairs, as llama.cpp's Llama has them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.query = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.key = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.value = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.output = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """Return the output of the layer. x: [rows, length, n_embd]."""
        q, k, v = (self._heads(project(x)) for project in (self.query, self.key, self.value))
        q, k = rotate(q, rotation), rotate(k, rotation)
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output(y.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_head, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.n_embd, config.n_ff, bias=False)
        self.up = nn.Linear(config.n_embd, config.n_ff, bias=False)
        self.down = nn.Linear(config.n_ff, config.n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer. x: [rows, length, n_embd]."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """A layer: attention and feed-forward, each behind a norm and added to the stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.n_embd, eps=config.norm_epsilon)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.n_embd, eps=config.norm_epsilon)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """Return the output of the layer. x: [rows, length, n_embd]."""
        x = x + self.attention(self.attention_norm(x), rotation, mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(nn.Module):
    """The whole model; `forward` gives the hidden states, `loss` the mean cross-entropy in nats a token."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.n_vocab, config.n_embd)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.RMSNorm(config.n_embd, eps=config.norm_epsilon)
        cosine, sine = rotations(config)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)
        self.apply(self._initialise)
        scale = (2 * config.n_layer) ** -0.5  # the residual stream keeps its size at any depth (GPT-2)
        for block in self.blocks:
            block.attention.output.weight.data *= scale
            block.feed_forward.down.weight.data *= scale

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the hidden states [rows, length, n_embd] of tokens, int64 [rows,
        length].

        mask: which positions attend to which, as `causal` returns it.
        """
        rotation = self.cosine[: tokens.shape[1]], self.sine[: tokens.shape[1]]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, rotation, mask)
        return self.norm(x)

    def loss(self, tokens: Tensor, targets: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
        """Return the mean cross-entropy of targets [rows, length] in nats a token.

        weights: float32 [rows, length].
        """
        hidden = self(tokens, mask)
        logits = functional.linear(hidden.flatten(0, 1), self.embedding.weight)
        nats = functional.cross_entropy(logits.float(), targets.flatten(), reduction="none")
        return (nats * weights.flatten()).sum() / weights.sum()


def rotations(config: Config) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotary angles, each [n_ctx, head / 2]."""
    half = config.n_embd // config.n_head // 2
    frequencies = config.rope_base ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.outer(torch.arange(config.n_ctx, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the pairs (0, 1), (2, 3), … of each head by the angle of its position. x: [rows, heads, length, head]."""
    cosine, sine = rotation
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2).type_as(x)


def causal(tokens: Tensor, begin: int) -> Tensor:
    """Return a bool mask [rows, 1, length, length]: each position attends to itself and
    to those before it in the same document.

    begin: the token that begins a document.
    """
    length = tokens.shape[1]
    before = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
    document = (tokens == begin).cumsum(1)
    return before & (document[:, None, :, None] == document[:, None, None, :])
