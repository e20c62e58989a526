"""Selections among choices that a prior excludes or that the model finds impossible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.types import SelfCheck
from selectrie.engine.engine import Engine
from selectrie.engine.load import load
from selectrie.options import PromptParams, SearchParams
from selectrie.testing import FakeModel, HashModel
from tests.support.n_examples import n_examples

WORDS = ("cat", "cats", "bat", "car", "b", "a", "at", "s", "catbat", "bats")


def with_zeros(seed, least):
    """A model in which every token of a logit below `least` has probability 0, except the control tokens."""
    hashed = HashModel(seed)

    def row_of(path):
        row = hashed.row(path).copy()
        row[2:][row[2:] < least] = -np.inf
        return row

    return FakeModel(row_of, vocabulary=hashed.vocabulary, limits=hashed.limits, name="zeros")


@settings(max_examples=n_examples(150))
@given(
    weights=st.dictionaries(st.sampled_from(WORDS), st.sampled_from([0, 0, 0, 1.0, 2.0]), min_size=3).filter(
        lambda weights: any(weights.values())
    ),
    model=st.builds(with_zeros, st.integers(0, 10**6), st.sampled_from([-9.0, 2.0, 6.0])),
    how=st.fixed_dictionaries(
        {
            "rule": st.sampled_from(["joint", "token_mean", "char_mean"]),
            "terminator": st.sampled_from(["none", "eog", "unless-continued"]),
        }
    ),
    method=st.sampled_from(["exhaustive", "best_first"]),
    boundary=st.sampled_from(["heal", "split", "harness"]),
)
def test_the_winner_is_first_in_the_ranking(weights, model, how, method, boundary):
    """With zeros in the prior and in the model, in any method: the winner has a score, the best one, and comes first."""
    prompting, search = PromptParams(boundary=boundary), SearchParams(method=method)
    with Engine(model, check=SelfCheck(1, 0.0, 0.0)) as engine:
        found = engine.select("a", list(weights), prior=weights, search=search, prompting=prompting, **how)
    assert found.index == found.ranked[0].index == found.top(1)[0].index
    known = [one.score for one in found.choices if one.score is not None]
    assert found.score == max(known)
    assert found.is_tie == (known.count(found.score) > 1)


@pytest.mark.parametrize("method", ["exhaustive", "best_first"])
def test_a_pruned_choice_does_not_win(method):
    """The prior excludes `at` and `b`, and the model never says `cat`: the search, which follows greedy to `b`, has no score for `at`."""
    model = FakeModel(
        lambda path: _row(impossible="cat"),
        vocabulary=HashModel(0).vocabulary,
        limits=HashModel(0).limits,
        name="impossible",
    )
    search, prompting = SearchParams(method=method), PromptParams(boundary="split")
    with Engine(model, check=SelfCheck(1, 0.0, 0.0)) as engine:
        found = engine.select(
            "a", ["at", "b", "cat"], prior=[0, 0, 1], terminator="eog", search=search, prompting=prompting
        )
    assert found.score == -np.inf
    assert found.is_tie
    assert found.choices[0].pruned == (method == "best_first")
    assert found.index == found.ranked[0].index == (1 if method == "best_first" else 0)


def _row(impossible):
    vocabulary = HashModel(0).vocabulary
    row = np.zeros(vocabulary.n_tokens, dtype=np.float32)
    row[vocabulary.pieces.index(impossible.encode())] = -np.inf
    return row


def test_an_answer_to_a_chat_ends_with_its_turn(embedded):
    """As in `decide`: messages and a system message make "auto" the end of generation, unless another text follows."""
    chat, choices = [{"role": "user", "content": "Is it so? Answer yes or no."}], ["yes", "no"]
    with load(embedded, n_threads=1) as llm:
        one = llm.select(chat, choices)
        assert one.terminator == "eog"
        assert one.choices.logp.tolist() == llm.select(chat, choices, terminator="eog").choices.logp.tolist()
        assert llm.select("Is it so?", choices, prompting=PromptParams(system="Answer.")).terminator == "eog"
        assert llm.select(chat, choices, tokenizations="all").terminator == "eog"
        assert llm.select(chat, choices, following=".").terminator == "text"
        assert llm.select(chat, choices, terminator="none").terminator == "none"
        assert llm.select("Is it so?", choices).terminator == "none"
        assert {made.terminator for made in llm.select_many([(chat, choices), (chat, choices)])} == {"eog"}
