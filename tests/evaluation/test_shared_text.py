"""Text that many items share is encoded once: the tokens are those of encoding every item whole."""

from __future__ import annotations

import numpy as np
import pytest

from selectrie.engine.load import load
from selectrie.evaluation.metrics import Item
from selectrie.evaluation.work_units import TaskItems, _Encoder, plan

SHOTS = "Answer with a letter.\n\nQ: Is 1234 even?\nA. yes\nB. no\nAnswer: A\n\nQ: Où est l'été?\nA. ici\nB. là\nAnswer: B\n\n"
CONTEXTS = ("Q: What is 12 + 30?\nA. 42\nB. 7\nAnswer:", "  two spaces before", "\n", "été", "1234567 and on")


def task():
    """Items of one shared text and contexts that begin in different ways, one of them white space alone."""
    items = tuple(Item(context, ("A", " B", "yes, it is"), (0,), shared=SHOTS * 3) for context in CONTEXTS)
    free = tuple(Item(c, ("A", "B"), (0,), shared=SHOTS, content_free=("N/A",)) for c in CONTEXTS[:2])
    return [TaskItems("letters", items, ("acc",)), TaskItems("free", free, ("calibrated",))]


@pytest.mark.parametrize("name", ["stories260K", "embedded"])
def test_shared_text_changes_no_token(name, weights, embedded, monkeypatch):
    """A vocabulary that puts a space before text, and one that does not."""
    path = embedded if name == "embedded" else weights(f"{name}.gguf")
    with load(path, n_threads=1, n_ctx=2048) as llm:
        found = plan(llm.vocabulary, llm.limits, task())
        prompt = _Encoder._prompt
        monkeypatch.setattr(_Encoder, "_prompt", lambda self, text, _shared="": prompt(self, text))
        expected = plan(llm.vocabulary, llm.limits, task())
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one.sequences.tokens, other.sequences.tokens)
        assert np.array_equal(one.sequences.offsets, other.sequences.offsets)
        assert np.array_equal(one.sequences.first_scored, other.sequences.first_scored)


def test_shared_text_is_encoded_once(embedded):
    """Long texts reach the tokenizer for the first item alone."""
    with load(embedded, n_threads=1, n_ctx=2048) as llm:
        vocabulary, seen = llm.vocabulary, []
        encoder = _Encoder(vocabulary, llm.limits, task()[0])
        tokenize = vocabulary.tokenize

        class Counting:
            """The vocabulary, noting the texts it encodes."""

            def __getattr__(self, name):
                return getattr(vocabulary, name)

            def tokenize(self, text):
                seen.append(len(text))
                return tokenize(text)

        encoder._vocabulary = Counting()
        encoder.encode(0, task()[0].items[0])
        assert max(seen) >= len(SHOTS.encode())
        seen.clear()
        encoder.encode(1, task()[0].items[1])
    assert max(seen) < len(SHOTS.encode())
