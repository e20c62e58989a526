"""What is left open by a search: gaps, bounds and masses that can be checked by hand."""

from __future__ import annotations

from contextlib import closing
from math import log, log1p

import numpy as np
import pytest

from selectrie import BeamSearchParams, Grammar, SearchParams
from selectrie.core.types import SelfCheck
from selectrie.engine.connect import PathRuntime
from selectrie.engine.engine import Engine
from selectrie.engine.requests import near_ties
from selectrie.options import PromptParams
from selectrie.testing import PathsOf, TableModel, make_vocabulary
from selectrie.tokenization import healing
from tests.laws.test_engine_laws import EXACT, WIDE
from tests.support.hidden_rows import HidingModel

HEALS = make_vocabulary([b"c", b"ca", b"cat", b"cab", b"s"])
LETTERS = make_vocabulary([b"a", b"b", b"c"])
NEAR = SelfCheck(batch_multiple=1, moved=0.025, tolerance=0.1, n_rows=100)


def searched(model, prompt, choices, *, check=EXACT, k=1, budget=None, **options):
    search = SearchParams(method="best_first", width=1, k=k, budget_nodes=budget)
    with closing(Engine(model, check=check)) as engine:
        return engine.select(prompt, choices, search=search, **options)


@pytest.mark.parametrize("rule", ["token_mean", "char_mean", "byte_mean"])
def test_a_gap_holds_for_every_probability_of_the_healed_bytes(rule):
    """`ca` has 0.4 to 0.8: log 0.75 - half of log 0.25, or log 0.375 - half of log 0.125."""
    table = {(): {"cat": 0.3, "cab": 0.1, "c": 0.4, "s": 0.2}}
    found = searched(TableModel(table, vocabulary=HEALS), "ca", ["t", "bs"], budget=1, rule=rule)
    assert found.heal_gap == pytest.approx(log(2))
    assert found.choices[1].pruned
    assert found.certificate.bound_gap == pytest.approx(log(0.375) - log(0.125) / 2)
    assert found.margin == pytest.approx(found.certificate.bound_gap)


@pytest.mark.parametrize(("k", "kth"), [(1, 0.3), (2, 0.1), (3, 0.0)])
def test_a_gap_counts_from_the_choice_that_is_shown(k, kth):
    """`a` is at least 0.54 and at most 0.6, so it has no score: `b` is first, and nothing is third."""
    table = {(): {"a": 0.6, "b": 0.3, "c": 0.1}, ("a",): {"b": 0.1, "c": 0.9}}
    choices, model = ["a", "abb", "b", "c"], TableModel(table, vocabulary=LETTERS)
    found = searched(model, [0], choices, budget=2, k=k, terminator="unless-continued")
    assert [choice.pruned for choice in found.choices] == [True, True, False, False]
    assert found.certificate.bound_gap == pytest.approx(log(kth) - log(0.6) if kth else -np.inf)
    assert found.margin == pytest.approx(log(0.3) - log(0.6))


@pytest.mark.parametrize("budget", [3, 4])
def test_a_choice_is_open_although_a_token_before_the_cut_has_probability_0(budget):
    """Only `s` and the end are scored: 0.1 times an end that was not read, behind `cat`, which never comes."""
    table = {(): {"cat": 0.0, "cab": 1.0}, ("cat",): {"s": 0.1, "c": 0.9}, ("cab",): {"s": 0.9, "c": 0.1}}
    model = TableModel(table, vocabulary=HEALS)
    found = searched(
        model, "ca", ["ts", "bs"], budget=budget, terminator="eog", prompting=PromptParams(boundary="harness")
    )
    assert [choice.pruned for choice in found.choices] == [True, False]
    assert found.choices[0].logp_upper == pytest.approx(log(0.1) if budget == 4 else 0.0)
    assert found.certificate.proved == (budget == 4)


CONTINUED = {(): {"a": 0.6, "b": 0.15, "c": 0.15}, ("a",): {"b": 5e-5}}


@pytest.mark.parametrize("kind", ["local", "near", "served"])
def test_a_middle_is_no_value(kind):
    """`abb` is not read, so `a` is continued with 0 to 5e-5; others are scored again, or not."""
    model = TableModel(CONTINUED, vocabulary=LETTERS)
    asked = PathRuntime(PathsOf(model, hides_rest=True)) if kind == "served" else model
    check = NEAR if kind == "near" else EXACT
    found = searched(asked, [0], ["a", "abb", "b", "c"], budget=2, check=check, k=3, terminator="unless-continued")
    assert found.certificate.n_rescored == (0 if kind == "served" else 2)
    first = found.choices[0]
    assert not first.is_known
    assert log(0.6) - 6e-5 < first.logp_lower <= log(0.6) + log1p(-5e-5) + 1e-6
    assert log(0.6) - 1e-6 <= first.logp_upper < log(0.6) + 3e-6
    assert (found.choices.logp_lower[0], found.choices.logp_upper[0]) == (first.logp_lower, first.logp_upper)
    assert first.logp == (first.logp_lower if kind == "served" else pytest.approx(log(0.6) + log1p(-5e-5) / 2))
    written = found.to_dict()["choices"][0]
    assert written.get("logp_lower", written["logp"]) == first.logp_lower
    assert all(choice.is_known for choice in found.choices[2:])


def test_a_middle_is_no_value_where_other_rows_were_not_read_in_full():
    """What follows `b` is hidden, and what follows `a` is not: its lower end is shown, as of all bounds."""
    planted = {(0,): np.log([1e-9, 1e-9, 0.6, 0.3, 0.1]), (0, 2): np.log([0.4, 0.3, 0.29995, 2.5e-5, 2.5e-5])}
    model = HidingModel(1, shares=(0.0, 1.0), vocabulary=LETTERS, planted=planted, limits=WIDE)
    found = searched(model, [0], ["a", "abb", "acc", "b", "bb"], budget=3, k=2, terminator="unless-continued")
    first, *_, third, _ = found.choices
    assert third.logp < third.logp_upper - 0.1
    assert first.logp == first.logp_lower == pytest.approx(log(0.6) + log1p(-5e-5), abs=1e-6)
    assert first.logp_upper == pytest.approx(log(0.6), abs=1e-6)


def test_a_middle_is_no_value_where_the_first_tokens_do_not_count():
    """`ts` is 0.5, and goes on with 0 to 5e-5; the token before it has 0.1."""
    table = {
        (): {"cat": 0.1, "cab": 0.9},
        ("cat",): {"s": 0.5, "c": 0.5},
        ("cat", "s"): {"s": 5e-5, "c": 1 - 5e-5},
        ("cab",): {"s": 0.1, "c": 0.9},
    }
    found = searched(
        TableModel(table, vocabulary=HEALS),
        "ca",
        ["ts", "tsss", "bs"],
        budget=4,
        terminator="unless-continued",
        prompting=PromptParams(boundary="harness"),
    )
    first = found.choices[0]
    assert found.choices[1].pruned
    assert first.logp_lower == pytest.approx(log(0.5) + log1p(-5e-5), abs=1e-6)
    assert first.logp_upper == pytest.approx(log(0.5), abs=1e-6)


def test_what_is_scored_again_and_comes_out_lower_is_not_proved(monkeypatch):
    """The budget leaves `ca` at 0.35 at most, behind `a` with 0.5; in another layout, `a` and `b` have 0.3."""
    table = {(): {"a": 0.5, "b": 0.48, "c": 0.02}}
    proved = searched(
        TableModel(table, vocabulary=LETTERS), [0], ["a", "b", "ca"], check=NEAR, budget=1, terminator="none"
    )
    assert proved.certificate.proved
    monkeypatch.setattr(
        near_ties, "_score_paths", lambda memory, _, __, paths: (np.full((len(paths), 2), -5.0), memory.spent)
    )
    found = searched(
        TableModel(table, vocabulary=LETTERS), [0], ["a", "b", "ca"], check=NEAR, budget=1, terminator="none"
    )
    assert found.certificate.n_rescored == 2
    assert found.certificate.bound_gap == pytest.approx(-5.0 - log(0.02))
    assert not found.certificate.proved
    assert "scored again" in found.certificate.reason


PLANTED = {
    (0,): np.log([1e-9, 1e-9, 0.4, 0.1, 0.5]),
    (0, 2): np.log([0.2, 0.2, 0.1, 0.5, 1e-9]),
}
"""After nothing and after `a`; the rest of that row may be twice as probable as it is, or four times."""


def hiding(seed):
    return HidingModel(seed, shares=(1.0,), vocabulary=LETTERS, planted=PLANTED, limits=WIDE)


@pytest.mark.parametrize("seed", range(6))
def test_a_choice_is_at_most_as_probable_as_its_tokens(seed):
    """`a` goes on with `b` in 0.5, and with something else in up to 1, as far as is told; together it is 0.4."""
    found = searched(hiding(seed), [0], ["a", "abb", "c"], k=2, budget=2, terminator="unless-continued")
    assert found.certificate.nodes_evaluated == 2
    assert found.choices[0].pruned
    assert found.choices[0].logp_upper <= log(0.4) + 1e-6
    assert found.certificate.open_mass <= 0.4 + 0.4 * 0.5 + 1e-6
    assert found.coverage_high == pytest.approx(0.5 + found.certificate.open_mass, abs=1e-6)
    with closing(Engine(hiding(seed), check=EXACT)) as engine:
        whole = engine.select([0], ["a", "abb", "c"], terminator="unless-continued")
    assert (whole.choices.logp_upper <= np.log([0.4, 0.2, 0.5]) + 1e-6).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_coverage_is_at_most_that_of_all_upper_bounds(seed):
    """`ab` has 0.2 and `b` 0.1; `a` without `ab` has 0.2, and up to 0.4 as far as is told."""
    with closing(Engine(hiding(seed), check=EXACT)) as engine:
        found = engine.select([0], ["a", "ab", "b"], terminator="unless-continued")
    assert found.coverage_high == pytest.approx(np.exp(found.choices.logp_upper).sum(), abs=1e-9)
    assert found.coverage <= 0.5 <= found.coverage_high + 1e-6
    assert found.coverage_high <= 0.7 + 1e-5


@pytest.mark.parametrize("seed", range(6, 10))
@pytest.mark.parametrize(("terminator", "coverage"), [("none", 2.0), ("eog", 1.0)])
def test_a_coverage_counts_a_path_for_each_one_that_it_begins_with(seed, terminator, coverage):
    """`ca` always becomes `cats`: `t` and `ts` are both certain, unless the text ends behind one of them."""
    cat, s = (0, HEALS.texts.index("cat")), (HEALS.texts.index("s"),)

    def only(*tokens):
        return np.where(np.isin(np.arange(len(HEALS.pieces)), tokens), 0.0, -40.0)

    planted = {(0,): only(cat[1], *s), cat: only(*s), cat + s: only(1)}
    model = HidingModel(seed, shares=(1.0,), vocabulary=HEALS, planted=planted, limits=WIDE)
    with closing(Engine(model, check=EXACT)) as engine:
        found = engine.select("ca", ["t", "ts"], terminator=terminator)
    assert found.coverage <= coverage + 1e-6
    assert found.coverage_high == pytest.approx(coverage, abs=1e-5)


SEARCHES = {
    "best_first": lambda llm, grammar: llm.select(
        "ca", grammar=grammar, rule="token_mean", terminator="none", search=SearchParams(max_tokens=4, width=1)
    ),
    "beam": lambda llm, grammar: llm.beam_search(
        "ca", grammar, beam=BeamSearchParams(width=1, n=1, max_tokens=4, length_penalty=1.0, terminator="none")
    ),
}


@pytest.mark.parametrize("method", SEARCHES)
def test_a_gap_of_searched_texts_holds_for_every_probability_of_the_healed_bytes(method, monkeypatch):
    """`ca` has 0.4 to 0.8 as its second row is not read: log 0.75 - log(0.25)/4, or log 0.375 - log(0.125)/4."""
    monkeypatch.setattr(healing, "MAX_ROWS", 1)
    table = {(): {"cat": 0.3, "cab": 0.1, "c": 0.4, "s": 0.2}}
    with closing(Engine(TableModel(table, vocabulary=HEALS), check=EXACT)) as engine:
        found = SEARCHES[method](engine, Grammar.from_regex("t|bs+"))
    assert found.heal_gap == pytest.approx(log(2))
    assert -1 < found.certificate.bound_gap <= log(0.375) - log(0.125) / 4
    assert not found.certificate.proved
