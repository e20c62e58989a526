"""The text of tokens: the tokenizer reads the same tokens back from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie import Engine, PromptParams
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import PromptError, TokenRangeError
from selectrie.testing import HashModel, make_vocabulary
from selectrie.tokenization.encoding import spell_tokens
from tests.support.made_vocabularies import make_scored
from tests.support.vocabularies import vocabulary_of

PARTS = st.lists(st.sampled_from([" ", "a", "b", ".", "\n", "é", "<s>", "</s>"]), max_size=8)
WORDS = [
    ("\u2581", -1.0, 1),
    ("a", -2.0, 1),
    ("b", -2.0, 1),
    ("ab", -1.5, 1),
    ("\u2581a", -1.2, 1),
    ("\u2581ab", -1.1, 1),
]


def read(vocabulary: Vocabulary, text: str) -> list[int]:
    """The tokens of a text in which control tokens are recognised, by the vocabulary alone."""
    ids, rest = vocabulary.encode_spans([(text.encode(), True)])
    return [*ids.tolist(), *vocabulary.encode_run(rest, after=int(ids[-1]) if len(ids) else None)]


@pytest.fixture(scope="module", params=[True, False], ids=["space", "no space"])
def scored(request, tmp_path_factory) -> Vocabulary:
    """SentencePiece's rules, with a space before text that begins, also after a control token, or without."""
    path = tmp_path_factory.mktemp("scored") / "m.gguf"
    return vocabulary_of(make_scored(path, WORDS, space_prefix=request.param))


@given(parts=PARTS)
def test_tokens_are_read_back(scored, parts):
    """Whatever stands between control tokens, and whether or not a space is added before it."""
    tokens = read(scored, "".join(parts))
    text = spell_tokens(scored, np.asarray(tokens, dtype=np.int32))
    assert read(scored, text) == tokens
    assert "<s>" not in parts or "<s>" in text


def test_an_added_space_is_no_text(scored):
    """`ab` comes back as it was, at the beginning and after a control token."""
    for text in ("ab", "<s>ab", "</s>ab ab"):
        assert spell_tokens(scored, np.asarray(read(scored, text), dtype=np.int32)) == text


def test_broken_characters_are_replaced():
    """A token of half a character has U+FFFD in its place."""
    vocabulary = make_vocabulary()
    assert spell_tokens(vocabulary, np.array([0, 3, 23], dtype=np.int32)) == "<bos>a\ufffd"
    assert spell_tokens(vocabulary, np.empty(0, dtype=np.int32)) == ""


def test_an_engine_encodes_and_decodes():
    """As its other methods read prompts: with BOS, and control tokens only where they are wanted."""
    with Engine(HashModel(1)) as llm:
        assert llm.encode("a cat").tolist() == [0, 3, 19]
        assert llm.encode("a<eos>", prompting=PromptParams(parse_special=True)).tolist() == [0, 3, 1]
        assert llm.encode([3, 19]).tolist() == [0, 3, 19]
        chat = llm.encode([{"role": "user", "content": "a"}])
        assert llm.decode(chat) == "<bos>u:a<eos>\na:"
        assert llm.decode([]) == ""
        with pytest.raises(TokenRangeError):
            llm.decode([99])
        with pytest.raises(PromptError):
            llm.encode([{"role": "user"}])
        assert llm._model.calls == 0
