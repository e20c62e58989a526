"""Means of lengths that differ, where the probability of the healed bytes is known within bounds only.

A token that spells a part of the healed bytes, and is on no path, may or may not lead to the rest of them. All rows are
read in full here, so every joint is known but for a number that all joints share: a mean divides it by its own length.
"""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from selectrie.core.types import SelfCheck
from selectrie.engine.engine import Engine
from selectrie.errors import RequestError
from selectrie.options import ScoringRule, SearchParams
from selectrie.testing import HashModel, TableModel, make_vocabulary
from tests.laws.test_engine_laws import EXACT, WIDE, requests
from tests.support.n_examples import n_examples

MEANS = [ScoringRule(name) for name in ("token_mean", "char_mean", "byte_mean")]
ALL_CLOSE = SelfCheck(batch_multiple=1, moved=25.0, tolerance=100.0, n_rows=100)


PIECES = ["".join(letters) for n in (1, 2, 3) for letters in itertools.product("abc", repeat=n)]
VOCABULARY = make_vocabulary([piece.encode() for piece in PIECES])
"""The end of a prompt whose length is no multiple of 3 is healed; its first letter alone is an open token."""
ABC = str.maketrans("rt ", "abc")


def spelled(request, rule):
    """A request in the letters of this vocabulary."""
    texts = tuple(text.translate(ABC) for text in request.choices)
    return replace(
        request,
        prompt=request.prompt.translate(ABC),
        choices=texts,
        following=request.following.translate(ABC).replace(".", "c"),
        prior=None,
        rule=rule,
        boundary="heal",
    )


def answer(request, method, check=EXACT):
    model = HashModel(request.seed, vocabulary=VOCABULARY, sharpness=request.sharpness, limits=WIDE)
    with closing(Engine(model, check=check)) as engine:
        return request.answer_of(engine, replace(request.search, method=method))


def lengths_of(request, table):
    """What each choice's score is divided by; the tokens of a path are those of the trie."""
    trie = table.trie
    return {
        "token_mean": trie.depth[trie.path_node[trie.path_of]],
        "char_mean": np.array([len(text) for text in table.texts]),
        "byte_mean": np.array([len(text.encode()) for text in table.texts]),
    }[request.rule.name].astype(float)


def possible_scores(request, full):
    """The scores of an exhaustive answer for several values that the healed bytes' probability may have."""
    table = full.choices
    for share in (0.0, 0.3, 1.0):
        with np.errstate(invalid="ignore"):
            moved = table.score - share * full.heal_gap / lengths_of(request, table)
        yield np.where(np.isneginf(table.score), -np.inf, moved)


@pytest.mark.parametrize(("method", "check"), [("exhaustive", ALL_CLOSE), ("best_first", EXACT)])
@settings(max_examples=n_examples(25))
@given(request=requests(), rule=st.sampled_from(MEANS))
def test_what_is_proved_holds_for_every_value_that_the_healed_bytes_may_have(method, check, request, rule):
    """The first k, their order, the margin and the bounds of every probability."""
    request = spelled(request, rule)
    try:
        full = answer(request, "exhaustive")
    except RequestError:
        reject()
    if not full.heal_gap or np.isinf(full.heal_gap):
        reject()
    found = answer(request, method, check)
    table, path_of = found.choices, found.choices.trie.path_of
    k = len(path_of) if request.search.stop == "all" else request.search.k
    first = [one.index for one in found.top(k, distinct=True) if one.score not in (None, -np.inf)]
    for scores in possible_scores(request, full):
        best = np.full(path_of.max() + 1, -np.inf)
        np.maximum.at(best, path_of, scores)
        if found.certificate.proved:
            ranked = best[path_of[first]]
            others = np.delete(best, path_of[first])
            assert (np.diff(ranked) <= 1e-6).all()
            assert not len(ranked) or len(first) < k or others.max(initial=-np.inf) <= ranked[-1] + 1e-6
        rivals = np.delete(best, path_of[found.index])
        if found.margin > -np.inf and best[path_of[found.index]] > -np.inf:
            assert found.margin <= best[path_of[found.index]] - rivals.max(initial=-np.inf) + 1.1e-4
        if np.isinf(best).all():
            continue
        weights = np.exp(best - best.max())
        p = (weights / weights.sum())[path_of]
        assert (table.probability_low <= p + 1.1e-4).all()
        assert (table.probability_high >= p - 1.1e-4).all()


def heals(p_s, p_cat=0.1, p_cab=0.1, p_open=0.2):
    """`ca` is healed: `cat` and `cab` cover it with probability 0.2, and `c` alone, with 0.2, may or may not lead there."""
    vocabulary = make_vocabulary([b"c", b"ca", b"cat", b"cab", b"s"])
    first = {"cat": p_cat, "cab": p_cab, "c": p_open, "ca": 0.0, "s": 1 - p_cat - p_cab - p_open}
    return TableModel({(): first, ("cab",): {"s": p_s}}, vocabulary=vocabulary)


@pytest.mark.parametrize("rule", ["token_mean", "char_mean", "byte_mean"])
@pytest.mark.parametrize("method", ["exhaustive", "best_first"])
def test_what_the_open_tokens_may_change_is_not_proved(rule, method):
    """For `t` it is log 0.5 … log 0.25, for `bs` half of log 0.15 … log 0.075: the order depends on it."""
    with closing(Engine(heals(0.3), check=EXACT)) as engine:
        found = engine.select("ca", ["t", "bs"], rule=rule, search=SearchParams(method=method))
        joint = engine.select("ca", ["t", "bs"])
    np.testing.assert_allclose([found.log_heal, found.heal_gap], [np.log(0.2), np.log(2)], atol=1e-6)
    np.testing.assert_allclose(found.choices.score, [np.log(0.5), np.log(0.15) / 2], atol=1e-6)
    assert not found.certificate.proved
    assert found.certificate.reason == "the probability of the healed bytes is known to 0.69 nats only"
    assert found.is_tie
    assert found.margin < 0
    p = 1 / (1 + np.exp(np.log(0.075) / 2 - np.log(0.25)))  # the score of `bs` minus that of `t`, at the other end
    assert found.choices.probability_low[0] <= p < 0.5 < found.choices.probability[0]
    assert found.choices.probability.sum() == pytest.approx(1.0)
    assert joint.certificate.proved
    assert joint.choices.probability_low[0] == joint.choices.probability_high[0]


@pytest.mark.parametrize("check", [EXACT, ALL_CLOSE])
@pytest.mark.parametrize("method", ["exhaustive", "best_first"])
def test_what_they_cannot_change_is_proved(method, check):
    """Half of log 0.45 … log 0.225 against log 0.5 … log 0.25: what is not known only adds to the distance."""
    with closing(Engine(heals(0.9), check=check)) as engine:
        found = engine.select("ca", ["t", "bs"], rule="char_mean", search=SearchParams(method=method))
    assert found.certificate.proved
    assert not found.is_tie
    np.testing.assert_allclose(found.margin, np.log(0.45) / 2 - np.log(0.5), atol=1e-6)


def test_a_search_reads_what_the_healed_bytes_may_bring_to_the_top():
    """`bs` is at most half of log 0.25, below log 0.75 for `t`; but of log 0.25/3, above log 0.75/3."""
    with closing(Engine(heals(0.1, 0.15, 0.05, 0.4), check=EXACT)) as engine:
        found = engine.select("ca", ["t", "bs"], rule="char_mean", search=SearchParams(method="best_first", width=1))
    assert found.certificate.proved
    assert found.choices.finished.all()


def test_equal_lengths_are_moved_alike():
    """Nothing but the common number is unknown, so nothing has bounds."""
    with closing(Engine(heals(0.3), check=EXACT)) as engine:
        found = engine.select("ca", ["t", "b"], rule="char_mean")
    assert found.heal_gap > 0.5
    assert found.certificate.proved
    np.testing.assert_array_equal(found.choices.probability_low, found.choices.probability_high)


def test_a_callable_rule_does_not_say_what_the_healed_bytes_change():
    """It may read anything of a choice, so nothing is proved unless their probability is known."""
    with closing(Engine(heals(0.9), check=EXACT)) as engine:
        found = engine.select("ca", ["t", "bs"], rule=lambda choice: choice.logp / choice.n_bytes)
        known = engine.select([0], ["ca", "cat"], rule=lambda choice: choice.logp)
    assert not found.certificate.proved
    assert "healed bytes" in found.certificate.reason
    assert known.certificate.proved


def test_requests_that_are_decided_together_are_decided_as_alone():
    """Where the common number matters, each request has its own bounds."""
    with closing(Engine(heals(0.3), check=EXACT)) as engine:
        alone = engine.select("ca", ["t", "bs"], rule="char_mean")
        several = engine.select_many([("ca", ["t", "bs"])] * 3, rule="char_mean")
    for one in several:
        assert (one.certificate.proved, one.is_tie, one.margin) == (False, True, alone.margin)
