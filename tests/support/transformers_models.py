"""Tiny Transformers models with random weights, of many architectures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from selectrie.backends.transformers.model import TransformersModel, open_module
from selectrie.backends.transformers.options import TransformersOptions
from selectrie.core.model import chain
from selectrie.core.types import ROOT
from selectrie.testing import numbered_vocabulary
from selectrie.testing.oracles import extend_in_rounds

N_TOKENS, WIDTH, WINDOW = 151, 32, 7

_STANDARD: dict[str, Any] = {
    "vocab_size": N_TOKENS,
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_HEADS = {**_STANDARD, "num_key_value_heads": 4}
_WIDE = {**_STANDARD, "head_dim": 16}
_ALTERNATING = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
_GPT2 = {"vocab_size": N_TOKENS, "n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 512}
_LINEAR = {
    **_WIDE,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
_MAMBA = {"vocab_size": N_TOKENS, "hidden_size": WIDTH, "num_hidden_layers": 2, "state_size": 8}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": _STANDARD,
    "mistral": {**_STANDARD, "sliding_window": WINDOW},
    "qwen2": _STANDARD,
    "qwen2-window": {**_STANDARD, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    "qwen3": _WIDE,
    "gemma": _WIDE,
    "gemma2": {**_WIDE, **_ALTERNATING, "query_pre_attn_scalar": 16},
    "gemma3_text": {**_WIDE, **_ALTERNATING, "query_pre_attn_scalar": 16},
    "gpt2": _GPT2,
    "gpt_neox": _HEADS,
    "phi3": {**_STANDARD, "sliding_window": None},
    "phi3-window": {**_STANDARD, "sliding_window": WINDOW},
    "opt": {**_HEADS, "ffn_dim": 48, "word_embed_proj_dim": WIDTH, "pad_token_id": 1},
    "bloom": {"vocab_size": N_TOKENS, "hidden_size": WIDTH, "n_layer": 2, "n_head": 4},
    "mpt": {
        "vocab_size": N_TOKENS,
        "d_model": WIDTH,
        "n_layers": 2,
        "n_heads": 4,
        "max_seq_len": 512,
        "expansion_ratio": 2,
    },
    "falcon": {**_HEADS, "new_decoder_architecture": False},
    "gptj": {**_GPT2, "rotary_dim": 8},
    "gpt_oss": {**_WIDE, **_ALTERNATING, "num_local_experts": 4, "num_experts_per_tok": 2},
    "cohere2": {**_STANDARD, **_ALTERNATING},
    "mixtral": {**_STANDARD, "num_local_experts": 4},
    "deepseek_v3": {
        **_HEADS,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 16,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
    },
    "mamba": _MAMBA,
    "mamba2": {**_MAMBA, "num_heads": 8, "head_dim": 8, "n_groups": 1, "expand": 2, "chunk_size": 16},
    "rwkv": {"vocab_size": N_TOKENS, "hidden_size": WIDTH, "num_hidden_layers": 2, "attention_hidden_size": WIDTH},
    "jamba": {
        **_STANDARD,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "mamba_d_state": 8,
        "use_mamba_kernels": False,
    },
    "qwen3_5_text": _LINEAR,
    "lfm2": {**_STANDARD, "layer_types": ["conv", "full_attention"]},
    "falcon_h1": {
        **_WIDE,
        "mamba_d_ssm": 64,
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 8,
        "mamba_n_groups": 1,
        "mamba_chunk_size": 16,
    },
}
"""Arguments of the config, by name; what follows a hyphen tells variants apart."""


def make_module(name: str, *, seed: int = 0, **changes: Any) -> Any:
    """A model of this architecture in float32, whose matrices are random and of such a size that contexts matter."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    arguments = {**ARCHITECTURES[name], **changes}
    attention = arguments.pop("attn_implementation", None)
    config = AutoConfig.for_model(name.split("-", maxsplit=1)[0], **arguments)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        module = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
        for key, weight in module.named_parameters():
            if weight.dim() == 2 and "A_log" not in key:
                weight.normal_(0, weight.shape[-1] ** -0.5)
            elif weight.dim() > 2:
                weight.normal_(0, weight[0].numel() ** -0.5 if weight.shape[1] == 1 else weight.shape[-1] ** -0.5)
    return module


def opened(module: Any, *, name: str = "tiny", **options: Any) -> TransformersModel:
    """The module behind the port, with 96 nodes and calls of 32 rows where nothing else is said."""
    return open_module(
        module, numbered_vocabulary(N_TOKENS), TransformersOptions(**{"n_ctx": 96, "n_batch": 32, **options}), name=name
    )


def fail_next(model: TransformersModel) -> None:
    """Let the next forward fail in its last block."""
    block = model._prepared.blocks()[-1]

    def fail(*_args: Any) -> None:
        hook.remove()
        raise RuntimeError("told to fail")

    hook = block.register_forward_pre_hook(fail)


def interrupt_next(model: TransformersModel) -> None:
    """Let the next forward be interrupted in its first block."""
    block = model._prepared.blocks()[0]

    def interrupt(*_args: Any) -> None:
        hook.remove()
        model.interrupt()

    hook = block.register_forward_pre_hook(interrupt)


def plain_logp(module: Any, path: Sequence[int]) -> Any:
    """The log-probabilities after a path by the model's own forward, float64[V]."""
    import torch

    with torch.no_grad():
        logits = module(input_ids=torch.tensor([list(path)]), use_cache=False).logits[0, -1]
    return torch.log_softmax(logits.double(), -1).numpy()


def worst_of_random_tree(model: TransformersModel, module: Any, *, seed: int, n_calls: int = 5) -> float:
    """The largest difference of 10 nodes a call, below each other, the prompt and earlier nodes, to `plain_logp` of `module`."""
    rng = np.random.default_rng(seed)
    prompt = tuple(rng.integers(3, N_TOKENS, 20).tolist())
    every = np.ones(20, dtype=np.bool_)
    nodes, _ = extend_in_rounds(model, chain(ROOT, 20), np.array(prompt, dtype=np.int32), ~every, every)
    known = {prompt[: i + 1]: int(node) for i, node in enumerate(nodes)}
    worst = 0.0
    for _ in range(n_calls):
        parents: list[int] = []
        paths: list[tuple[int, ...]] = []
        for j in range(10):
            if j and rng.random() < 0.5:
                above = int(rng.integers(j))
                parents.append(~above)
                base = paths[above]
            else:
                base = list(known)[int(rng.integers(len(known)))]
                parents.append(known[base])
            paths.append((*base, int(rng.integers(3, N_TOKENS))))
        tokens = np.array([path[-1] for path in paths], dtype=np.int32)
        nodes, rows = extend_in_rounds(model, np.array(parents, dtype=np.int32), tokens, every[:10], every[:10])
        for i, (path, node) in enumerate(zip(paths, nodes, strict=True)):
            known[path] = int(node)
            logp = rows.logits(i).astype(np.float64) - rows.logsumexp(i)
            worst = max(worst, float(np.abs(logp - plain_logp(module, path)).max()))
    return worst
