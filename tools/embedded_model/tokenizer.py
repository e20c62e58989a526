"""Train the tokenizer: byte-level BPE with GPT-2's word splitting, which llama.cpp knows as `gpt-2`.

`python -m embedded_model.tokenizer` in `tools/`. With `--start`, the tokenizer is that of a model, from which the last courses will
start, and only the tokens of these are written.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import gguf
import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from embedded_model import corpus
from embedded_model.config import BEGIN, END_OF_TEXT, SPECIAL, TURN_BEGIN, TURN_END, Config
from embedded_model.files import EARLIER, TOKENIZER, token_files
from embedded_model.forms import answers


def train(documents: list[str]) -> tokenizers.Tokenizer:
    """Return a tokenizer whose first entries are the special tokens and all 256 bytes."""
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=Config().n_vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=10,
        show_progress=False,
    )
    tokenizer.train_from_iterator((text.replace(TURN_BEGIN, "").replace(TURN_END, "") for text in documents), trainer)
    return tokenizer


def _byte_level(model: models.BPE) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def tokenizer_of(path: Path) -> tokenizers.Tokenizer:
    """Return the tokenizer of a GGUF that `export` wrote."""
    fields = gguf.GGUFReader(path).fields
    vocabulary = {token: i for i, token in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = _byte_level(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def encode(
    tokenizer: tokenizers.Tokenizer, documents: list[str]
) -> tuple[NDArray[np.uint16], NDArray[np.bool_], NDArray[np.int64]]:
    """Return tokens of all documents, each behind BEGIN and before END_OF_TEXT; which
    of them belong to answers; where each document
    begins (one more than documents).
    """
    begin, end = tokenizer.token_to_id(BEGIN), tokenizer.token_to_id(END_OF_TEXT)
    tokens: list[NDArray[np.uint16]] = []
    answered: list[NDArray[np.bool_]] = []
    for start in range(0, len(documents), 4096):
        batch = documents[start : start + 4096]
        for document, encoding in zip(batch, tokenizer.encode_batch(batch), strict=True):
            tokens.append(np.array([begin, *encoding.ids, end], dtype=np.uint16))
            marks = np.zeros(len(encoding.ids) + 2, dtype=np.bool_)
            last = np.array([stop for _, stop in encoding.offsets])
            for first, stop in answers(document):
                marks[1:-1] |= (last > first) & (last <= stop)
            answered.append(marks)
    starts = np.concatenate([[0], np.cumsum([len(piece) for piece in tokens])])
    return np.concatenate(tokens), np.concatenate(answered), starts


def main() -> None:
    """Run the script: read the corpus, write tokenizer and tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", type=Path, help="the model that the last courses start from")
    start = parser.parse_args().start
    courses = range(len(corpus.COURSES))
    if start is None:
        first = corpus.read(0)
        tokenizer = train(first[: len(first) // 3])
    else:
        tokenizer, courses = tokenizer_of(start), corpus.LAST
        shutil.copyfile(start, EARLIER)
    tokenizer.save(str(TOKENIZER))
    print(f"{TOKENIZER}: {tokenizer.get_vocab_size():,} entries")
    for course in courses:
        documents = corpus.read(course)
        tokens, answered, starts = encode(tokenizer, documents)
        for path, array in zip(token_files(course), (tokens, answered, starts), strict=True):
            np.save(path, array)
        n_characters = sum(map(len, documents))
        print(
            f"course {course}: {len(tokens):,} tokens, {n_characters / len(tokens):.2f} characters a token, "
            f"{answered.mean():.0%} in answers"
        )


if __name__ == "__main__":
    main()
