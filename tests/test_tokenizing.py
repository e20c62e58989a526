"""Tokenizers that do not write every text as it stands: no search proves anything about
texts that it cannot see."""

from __future__ import annotations

from pathlib import Path

import pytest

from made_vocabularies import make_byte_level
from selectrie import Beam, Engine, Grammar
from selectrie.boundary import PromptText, open_prompt
from selectrie.selfcheck import SelfCheck
from selectrie.testing.fakes import HashModel
from selectrie.types import Limits, ModelKind
from selectrie.vocabulary import TokenizerKind, Vocabulary
from vocabularies import start_of, vocabulary_of

LIMITS = Limits(nodes=4096, branches=256, rows_per_call=512, kind=ModelKind.ATTENTION, idle_rows=4096)


def engine_on(vocabulary: Vocabulary, seed: int = 5) -> Engine:
    """An engine that measures nothing first."""
    model = HashModel(seed, vocabulary=vocabulary, sharpness=0.5, limits=LIMITS)
    return Engine(model, check=SelfCheck(8, 0.0, 0.0))


# Merges that make no token


def with_a_merge_to_nothing(folder: Path) -> Vocabulary:
    """Bytes, `aa` and `bc`; `a` and `b` merge too, and what they make is no token."""
    path = make_byte_level(folder / "m.gguf", "gpt-2", ["aa", "bc"], ["a b", "a a", "b c"])
    return vocabulary_of(path)


def test_a_merge_to_no_token_leaves_the_law_of_merges_unknown(tmp_path):
    """Of such a file no pair of tokens is refused: `b` and `c` stand side by side in `abc`."""
    vocabulary = with_a_merge_to_nothing(tmp_path)
    assert vocabulary.kind is TokenizerKind.UNKNOWN
    a, b, c, aa = (vocabulary.texts.index(text) for text in ("a", "b", "c", "aa"))
    assert vocabulary.tokenize(b"abc") == [a, b, c]
    assert vocabulary.tokenize(b"aab") == [a, a, b]
    paths = open_prompt(vocabulary, PromptText(start_of(vocabulary), b"x")).paths
    assert paths.may_join(a, a)
    assert paths.may_join(b, c)
    assert vocabulary.tokenize(b"aac") == [aa, c]


@pytest.mark.parametrize("seed", range(4))
def test_texts_behind_a_merge_to_no_token_are_found(seed, tmp_path):
    """A search finds all texts of the grammar, as the list scores them, and proves it."""
    texts = ["ab", "bb", "cb", "bc"]
    with engine_on(with_a_merge_to_nothing(tmp_path), seed) as engine:
        listed = {one.text: one.logp for one in engine.select("x a", texts, terminator="none").choices}
        beam = Beam(exact=True, n=4, terminator="none", budget_nodes=5_000)
        found = engine.beam_search("x a", Grammar.from_choices(texts), beam=beam)
    assert found.certificate.proved
    assert list(found.texts) == sorted(texts, key=lambda text: -listed[text])
    best = found[0].text
    for one in found:
        assert one.logp - found[0].logp == pytest.approx(listed[one.text] - listed[best], abs=1e-9)


def test_a_file_that_is_gone_leaves_the_law_of_merges_unknown(tmp_path):
    """The merges are read from the file when they are first needed; without them nothing is refused."""
    path = make_byte_level(tmp_path / "m.gguf", "gpt-2", ["ab"], ["a b"])
    vocabulary = vocabulary_of(path)
    path.unlink()
    assert vocabulary.kind is TokenizerKind.UNKNOWN


def test_a_shared_model_with_another_pre_tokenizer_is_unknown():
    """What a `Llama` says of the tokenizer beside its file stands in no metadata."""
    import llama_cpp

    from selectrie.backends.llama_cpp.weights import LlamaOptions, open_weights
    from selectrie.embedded import embedded_file

    kinds = []
    for pre in (None, "llama-bpe"):
        overrides = None if pre is None else {"tokenizer.ggml.pre": pre}
        llama = llama_cpp.Llama(str(embedded_file()), n_ctx=32, verbose=False, kv_overrides=overrides)
        weights = open_weights(llama, LlamaOptions())
        kinds.append(weights.vocabulary.kind)
        weights.release()
        llama.close()
    assert kinds == [TokenizerKind.MERGES, TokenizerKind.UNKNOWN]
