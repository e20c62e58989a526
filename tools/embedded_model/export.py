"""Write the trained model as GGUF: weights, tokenizer, special tokens, chat template, what it is.

`python -m embedded_model.export PATH --format f16` in `tools/`. The same checkpoint gives the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from byte_bpe import CHAT_TEMPLATE
from embedded_model.config import BEGIN, END_OF_TEXT, SPECIAL, TURN_END, Config
from embedded_model.corpus import LAST
from embedded_model.files import EARLIER, EMBEDDED, LAST_CHECKPOINT, TOKENIZER, inputs_digest

NAME = "selectrie-embedded"
VERSION = "1"
FORMATS = {"f16": gguf.LlamaFileType.MOSTLY_F16, "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
BLOCK_TENSORS = {
    "attention_norm": "attn_norm",
    "attention.query": "attn_q",
    "attention.key": "attn_k",
    "attention.value": "attn_v",
    "attention.output": "attn_output",
    "feed_forward_norm": "ffn_norm",
    "feed_forward.gate": "ffn_gate",
    "feed_forward.up": "ffn_up",
    "feed_forward.down": "ffn_down",
}


def export(path: Path, weights: dict[str, NDArray[np.float32]], config: Config, tokenizer: Path, kind: str) -> None:
    """Write the GGUF. weights: by PyTorch's names; kind: of the matrices, one of FORMATS (norms stay float32)."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(NAME)
    writer.add_version(VERSION)
    writer.add_description("answers short questions about everyday facts; trained from scratch on generated text")
    writer.add_license("apache-2.0")
    writer.add_file_type(FORMATS[kind])
    writer.add_vocab_size(config.n_vocab)
    writer.add_context_length(config.n_ctx)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(config.n_ff)
    writer.add_head_count(config.n_head)
    writer.add_head_count_kv(config.n_head)
    writer.add_rope_dimension_count(config.n_embd // config.n_head)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_layer_norm_rms_eps(config.norm_epsilon)
    _add_tokenizer(writer, tokenizer)
    for ours, name in _names(config):
        tensor = weights[ours]
        matrix = gguf.GGMLQuantizationType[kind.upper()] if tensor.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(tensor, matrix), raw_dtype=matrix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def weights_of(path: Path, config: Config) -> dict[str, NDArray[np.float32]]:
    """Return the weights of a file that `export` wrote, by PyTorch's names."""
    tensors = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(path).tensors
    }
    return {ours: np.array(tensors[theirs], dtype=np.float32) for ours, theirs in _names(config)}


def _add_tokenizer(writer: gguf.GGUFWriter, path: Path) -> None:
    model = json.loads(path.read_text(encoding="utf-8"))["model"]
    ids: dict[str, int] = model["vocab"]
    tokens = sorted(ids, key=lambda token: ids[token])
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(ids[BEGIN])
    writer.add_eos_token_id(ids[END_OF_TEXT])
    writer.add_eot_token_id(ids[TURN_END])
    writer.add_add_bos_token(value=True)
    writer.add_add_space_prefix(value=False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _names(config: Config) -> list[tuple[str, str]]:
    """Return PyTorch's and llama.cpp's name of each tensor, without the output matrix,
    which is the embedding.
    """
    names = [("embedding.weight", "token_embd.weight"), ("norm.weight", "output_norm.weight")]
    for i in range(config.n_layer):
        names += [(f"blocks.{i}.{ours}.weight", f"blk.{i}.{theirs}.weight") for ours, theirs in BLOCK_TENSORS.items()]
    return names


def main() -> None:
    """Run the script."""
    import torch  # of the group `train`; `export` itself does without

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, nargs="?", default=EMBEDDED, help="file to write")
    parser.add_argument("--format", choices=tuple(FORMATS), default="f16")
    options = parser.parse_args()
    state = torch.load(LAST_CHECKPOINT)
    if state["inputs"] != inputs_digest(LAST, EARLIER):
        raise ValueError(
            f"{LAST_CHECKPOINT}: was trained on other tokens or another tokenizer; delete it and train again"
        )
    weights = {name: tensor.float().numpy() for name, tensor in state["model"].items()}
    options.path.parent.mkdir(parents=True, exist_ok=True)
    part = options.path.with_suffix(".part")  # another process may have the old file mapped
    export(part, weights, Config(), TOKENIZER, options.format)
    part.replace(options.path)
    content = options.path.read_bytes()
    print(f"{options.path}: {len(content):,} bytes, sha256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
