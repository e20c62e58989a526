"""Train the tokenizer: byte-level BPE with GPT-2's word splitting, which llama.cpp knows as `gpt-2`."""

from __future__ import annotations

import argparse

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from tiny_model import corpus
from tiny_model.config import BEGIN, END_OF_TEXT, SPECIAL, TURN_BEGIN, TURN_END, Config
from tiny_model.files import TOKENIZER, TOKENS


def train(documents: list[str]) -> tokenizers.Tokenizer:
    """A tokenizer whose first entries are the special tokens and all 256 bytes."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=Config().n_vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=10,
        show_progress=False,
    )
    tokenizer.train_from_iterator((text.replace(TURN_BEGIN, "").replace(TURN_END, "") for text in documents), trainer)
    return tokenizer


def encode(tokenizer: tokenizers.Tokenizer, documents: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of all documents (uint16), each behind BEGIN and before END_OF_TEXT, and where each begins (int64, one more
    than documents).
    """
    begin, end = tokenizer.token_to_id(BEGIN), tokenizer.token_to_id(END_OF_TEXT)
    pieces: list[np.ndarray] = []
    for start in range(0, len(documents), 4096):
        batch = tokenizer.encode_batch_fast(documents[start : start + 4096])
        pieces.extend(np.array([begin, *encoding.ids, end], dtype=np.uint16) for encoding in batch)
    starts = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])])
    return np.concatenate(pieces), starts


def main() -> None:
    """Entry point of the script: reads the corpus, writes tokenizer and tokens."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    documents = corpus.read()
    tokenizer = train(documents)
    tokenizer.save(str(TOKENIZER))
    tokens, starts = encode(tokenizer, documents)
    np.save(TOKENS, tokens)
    np.save(TOKENS.with_suffix(".starts.npy"), starts)
    n_characters = sum(map(len, documents))
    print(
        f"{TOKENIZER}: {tokenizer.get_vocab_size():,} entries; {len(tokens):,} tokens, {n_characters / len(tokens):.2f} characters a token"
    )


if __name__ == "__main__":
    main()
