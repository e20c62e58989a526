"""Requests to a model that does not say all of its rows: what stays certain, what does not, and what is refused."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie import Template
from selectrie.core.rows import DenseRows
from selectrie.core.types import NO_NODE
from selectrie.decoding.trie.best_first import BestFirst
from selectrie.engine.engine import Engine
from selectrie.errors import OptionError
from selectrie.options import SearchParams
from selectrie.results.drawing.choices import set_words
from selectrie.testing import HashModel, TableModel, make_vocabulary
from selectrie.tokenization import healing
from selectrie.tokenization.healing import HealedMass
from tests.laws.test_engine_laws import EXACT
from tests.support.hidden_rows import HiddenRows, HidingModel, served_engine

HIDDEN = (1.0,)
CHOICES = ["cat", "bat"]


def engine(model=None, *, shares=HIDDEN, tolerance=0.0, **how):
    """An engine on a model that hides these shares of its rows."""
    model = HidingModel(10, shares=shares, **how) if model is None else model
    is_served = model.identity.precision == "remote"
    return closing(served_engine(model, tolerance) if is_served else Engine(model, check=EXACT))


def whole():
    """The engine that says all of the same rows."""
    return closing(Engine(HashModel(10), check=EXACT))


def test_what_is_not_known_of_healed_bytes_leaves_the_winner_certain():
    """The lone space is healed, and no row says how probable it is: it moves all choices alike."""
    with engine() as llm, whole() as exact:
        found, expected = llm.select("a ", CHOICES), exact.select("a ", CHOICES)
    assert found.healed == b" "
    assert found.heal_gap > 0.1
    assert found.certificate.proved
    assert found.index == expected.index
    assert not found.is_tie
    np.testing.assert_allclose(found.choices.probability, expected.choices.probability, rtol=1e-10)
    assert found.margin == pytest.approx(expected.margin, abs=1e-9)
    assert found.margin <= expected.margin
    assert not any(choice.is_known for choice in found.choices)
    assert found.coverage < expected.coverage < found.coverage_high
    assert len(found.notes) == 1


def test_bounds_are_shown_wherever_the_number_is():
    """In repr, HTML and JSON; an exact result has none of it."""
    with engine() as llm, whole() as exact:
        found, expected, scored = llm.select("a ", CHOICES), exact.select("a ", CHOICES), llm.score("a ", "cat")
    best = found.choices[found.index]
    assert (best.logp, best.logp_upper) == (pytest.approx(-2.65229, abs=1e-5), pytest.approx(-0.57284, abs=1e-5))
    assert "logp -2.653 to -0.572" in repr(found)
    assert set_words(found, found.index) in found._repr_html_()
    assert "coverage 7.7 % to 62 %" in repr(found)
    assert "logp -4.975 to -2.894" in repr(scored)
    written = json.loads(json.dumps(found.to_dict()))
    assert written["coverage_high"] == found.coverage_high
    assert written["choices"][0]["logp_upper"] > written["choices"][0]["logp"]
    assert json.loads(json.dumps(scored.to_dict()))["logp_upper"] == scored.logp_upper
    assert "coverage_high" not in expected.to_dict()


@pytest.mark.parametrize("text", ["cat", "bat", "at"])
def test_a_scored_text_lies_between_its_bounds(text):
    """Its tokens are known to the last bit; the healed bytes are not."""
    with engine() as llm, whole() as exact:
        found, expected = llm.score("a ", text), exact.score("a ", text)
    assert found.logp < expected.logp < found.logp_upper
    assert found.tokens == expected.tokens
    assert found.is_greedy == expected.is_greedy


@pytest.mark.parametrize(
    ("text", "hidden", "is_greedy"),
    [("xy", (), True), ("xy", ("x",), None), ("xz", (), False), ("xz", ("x",), None), ("zx", ("z",), False)],
)
def test_whether_a_text_is_greedy_may_be_left_open(monkeypatch, text, hidden, is_greedy):
    """A row that does not tell its best token leaves it open, unless another token of the text is not the best."""
    model = TableModel({(): {"x": 0.6}, ("x",): {"y": 0.7}}, vocabulary=make_vocabulary([b"x", b"y", b"z"]))
    unsaid = [model.row((0, *model.vocabulary.tokenize(one.encode()))) for one in hidden]
    top = DenseRows.top

    def told(rows, i, k, allowed=None):
        if k == 1 and any(np.array_equal(rows.logits(i), row) for row in unsaid):
            return np.empty(0, dtype=np.int32), np.empty(0)
        return top(rows, i, k, allowed)

    monkeypatch.setattr(DenseRows, "top", told)
    with engine(model) as llm:
        found = llm.score([0], text)
    assert found.is_greedy is is_greedy
    assert found.to_dict()["is_greedy"] is is_greedy
    assert np.isfinite(found.logp)


def test_a_callable_rule_is_refused_where_scores_are_bounds():
    """A function of a lower bound is neither a score nor a bound."""
    with engine() as llm:
        with pytest.raises(OptionError, match="the name of a rule"):
            llm.select("a ", CHOICES, rule=lambda choice: choice.logp)
        assert llm.select("a", CHOICES, rule=lambda choice: choice.logp).certificate.proved  # nothing is healed


@pytest.mark.parametrize("rule", ["joint", "pmi", "char_mean", "token_mean"])
def test_known_numbers_of_a_model_that_hides_much_have_the_bits_of_the_whole(rule):
    """Nothing healed, and no choice continues another: no mass is read."""
    with engine() as llm, whole() as exact:
        found, expected = (one.select("a", CHOICES, rule=rule) for one in (llm, exact))
    assert found.choices == expected.choices
    assert replace(found, choices=expected.choices, signature=expected.signature, cost=expected.cost) == expected


def served(tolerance, margin):
    """The answer of a served model about two choices whose scores differ by `margin`."""
    weights = np.exp(np.array([0.0, -margin]))
    a, b = (0.5 * weights / weights.sum()).tolist()

    class Served(TableModel):
        @property
        def identity(self):
            return replace(super().identity, precision="remote")

    vocabulary = make_vocabulary([b"x", b"y", b"z"])
    model = Served({(): {"x": a, "y": b}}, vocabulary=vocabulary)
    with engine(model, tolerance=tolerance) as llm:
        return llm.select([0], ["y", "x"])


@pytest.mark.parametrize(("margin", "is_certain"), [(0.3, True), (0.15, False), (0.0, False)])
def test_a_served_model_has_a_tie_within_twice_its_tolerance(margin, is_certain):
    """Each score is read from one row and may move by 0.1 nats; near ties are not scored again."""
    found = served(0.1, margin)
    assert found.is_tie is not is_certain
    assert found.certificate.proved is is_certain
    assert found.certificate.rescored is is_certain
    assert ("closer than" in found.certificate.reason) is not is_certain
    assert found.coverage_high is None


def test_a_served_model_without_a_tolerance_decides_an_exact_tie_by_index():
    """As a model that runs here does."""
    found = served(0.0, 0.0)
    assert (found.index, found.is_tie, found.certificate.proved) == (0, True, True)


def test_rows_of_several_requests_are_decided_apart_where_one_has_bounds():
    """Two alike requests, of which only one is healed by rows that hide something."""
    with engine(shares=(0.0, 1.0)) as llm, whole() as exact:
        prompts = [("a ", CHOICES), ("bat ", CHOICES), ("c ", CHOICES), ("at ", CHOICES)]
        found, expected = llm.select_many(prompts), exact.select_many(prompts)
    known = [one.coverage_high is None for one in found]
    assert any(known)
    assert not all(known)
    for one, other, is_known in zip(found, expected, known, strict=True):
        assert one.index == other.index
        assert (one.choices == other.choices) == is_known


def test_a_batch_is_compared_with_means_of_which_the_common_part_is_left_out():
    """Rule `batch`: the mean over prompts has what each prompt's healed bytes add to all choices alike."""
    with engine() as llm, whole() as exact:
        prompts = [("a ", CHOICES), ("bat ", CHOICES)]
        found, expected = (one.select_many(prompts, rule="batch") for one in (llm, exact))
    for one, other in zip(found, expected, strict=True):
        assert one.index == other.index
        assert one.certificate.proved
        np.testing.assert_allclose(one.choices.probability, other.choices.probability, rtol=1e-9)


def test_hidden_rows_hide_and_bound():
    """The support itself: some sets are known to the last bit, others have bounds around their mass."""
    dense = HashModel(3).extend(np.array([0]), np.array([2]), np.array([True]), np.array([True])).rows
    hidden, ids = HiddenRows(dense, 0, (0.5,)), np.arange(2, 9)
    low, high = hidden.log_mass_bounds(0, ids)
    assert low < dense.log_mass(0, ids) < high
    known = [token for token in range(26) if len(set(hidden.log_mass_bounds(0, [token]))) == 1]
    assert 0 < len(known) < 26
    assert hidden.log_mass(0, known) == dense.log_mass(0, known)


def test_a_search_knows_by_how_much_a_baseline_may_move_two_scores(monkeypatch):
    """The bounds of the premise's scores are that far apart; of a premise that is known they are not."""
    noted = []

    class Noted(BestFirst):
        def __init__(self, *arguments, objective, **how):
            noted.append(objective.moves)
            super().__init__(*arguments, objective=objective, **how)

    monkeypatch.setattr("selectrie.engine.requests.select.BestFirst", Noted)
    how = {"rule": "pmi", "search": SearchParams(method="best_first")}
    with engine() as llm, whole() as exact:
        for one in (llm, exact):
            one.select("a", ["b", "bu", "but"], **how)
    assert noted[0] > 0.1
    assert noted[1] == 0.0


def test_a_joint_block_carries_the_bounds():
    """Each text has a lower and an upper bound; what its options hold together is known where they cancel."""
    template = Template("a <<#joint>><<select 'x' options=['ca', 'ba']>><<select 'y' options=['t', 'r']>><</joint>>")
    with engine() as llm, whole() as exact:
        found, expected = (one.render(template).selections["x"] for one in (llm, exact))
    assert found.text == expected.text
    for mine, other in zip(found.assignments, expected.assignments, strict=True):
        assert mine.logp < other.logp < mine.logp_upper
        assert mine.probability == pytest.approx(other.probability, rel=1e-9)
    assert found.coverage < expected.coverage < found.coverage_high
    assert "logp_upper" in found.assignments[0].to_dict()
    assert "logp_upper" not in expected.assignments[0].to_dict()


@given(
    seed=st.integers(0, 5000),
    shares=st.sampled_from([(0.0,), (0.0, 0.5), (1.0,)]),
    text=st.sampled_from([b" c", b" ca", b"ba"]),
)
def test_the_mass_of_healed_bytes_behind_a_search_has_bounds(seed, shares, text):
    """`HealedMass`: both intervals contain the probability, also if fewer rows are read where nothing is hidden."""
    whole_mass, found = (_healed_mass(seed, text, one) for one in ((0.0,), shares))
    assert whole_mass[0] <= found[0] + found[1] + 1e-12
    if found[1] < np.inf:  # else no token is known to cover the bytes
        assert found[0] <= whole_mass[0] + whole_mass[1] + 1e-12
    if shares == (0.0,):
        assert found == whole_mass


@given(seed=st.integers(0, 5000), text=st.text("abcu ", min_size=2, max_size=6), n_rows=st.integers(1, 4))
def test_bytes_that_few_rows_do_not_cover_are_followed_to_their_end(seed, text, n_rows):
    """`HealedMass`: with the fewest rows the interval is finite, and it holds the value that all rows give."""
    healed = text.encode()
    with patch.object(healing, "MAX_ROWS", 10_000), patch.object(healing, "ENOUGH", 1e-300):
        exact = _healed_mass(seed, healed, (0.0,))
    with patch.object(healing, "MAX_ROWS", n_rows):
        low, gap = _healed_mass(seed, healed, (0.0,))
    assert exact[1] == 0.0
    assert gap < np.inf
    assert low - 1e-9 <= exact[0] <= low + gap + 1e-9


def _healed_mass(seed, healed, shares):
    model = HashModel(seed)
    mass = HealedMass(model.vocabulary, healed)
    nodes, logps = {0: (2,)}, {0: 0.0}
    while mass.waiting != NO_NODE:
        node = mass.waiting
        rows = HiddenRows(DenseRows(model.row(nodes[node])[None, :]), seed, shares)
        following = mass.read(rows, 0, logps[node])
        if following is None:
            break
        parent, token, logp = following
        nodes[len(nodes)], logps[len(logps)] = (*nodes[parent], token), logps[parent] + logp
        mass.wait_for(len(nodes) - 1)
    found = mass.log_heal()
    return found.low, found.width
