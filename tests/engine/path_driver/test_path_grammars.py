"""Grammars on rows that tell their best tokens alone: every text has its own log-probability, and what is proved is so."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import BeamSearchParams, Grammar
from selectrie.engine.engine import Engine
from selectrie.engine.requests.reasons import reason_tokens_unread, reason_too_close
from selectrie.errors import NothingFoundError, WholeRowsError
from selectrie.options import PromptParams, SearchParams
from selectrie.testing import HashModel, PathsOf, TableModel, make_vocabulary
from tests.engine.path_driver.test_path_engine import path_engine
from tests.support.gated_paths import NotedPaths, limits
from tests.support.n_examples import n_examples

GRAMMARS = {
    "words": Grammar.from_regex("( ?(a|at|cat|bat|car|rat|sat|us)){1,40}"),
    "letters": Grammar.from_regex("[abcrstu ]{1,30}"),
    "ended": Grammar.from_regex(r"[abcrstu]{1,30}\."),
}
MAX_TOKENS = 2
seeds = st.integers(0, 99)
grammars = st.sampled_from(sorted(GRAMMARS))
tops = st.integers(2, 26)


def search(**how):
    return SearchParams(max_tokens=MAX_TOKENS, **how)


def engines(seed, *, named_ids, top_ids, sharpness=3.0, hides_rest=True):
    """The engine whose rows tell few tokens, and the local one; a sharp model, whose best tokens hold much mass."""
    model = PathsOf(
        HashModel(seed, sharpness=sharpness), limits=limits(named_ids=named_ids, top_ids=top_ids), hides_rest=hides_rest
    )
    return path_engine(model), Engine(HashModel(seed, sharpness=sharpness))


def answer(function):
    """What a search finds; None for nothing."""
    try:
        return function()
    except NothingFoundError:
        return None


@given(seeds, grammars, st.sampled_from(["a", "a ", "ca"]), st.sampled_from(["joint", "token_mean"]))
@settings(max_examples=n_examples(12))
def test_where_all_tokens_can_be_named_nothing_differs(seed, name, prompt, rule):
    """The same texts with the same bits, proof, bounds and masses; and so with a beam."""
    remote, local = engines(seed, named_ids=26, top_ids=2)
    with remote, local:
        one, other = (
            llm.select(prompt, grammar=GRAMMARS[name], terminator="eog", search=search(k=3), rule=rule)
            for llm in (remote, local)
        )
        assert [choice.text for choice in one.choices][:3] == [choice.text for choice in other.choices][:3]
        assert one.choices.logp[:3].tolist() == other.choices.logp[:3].tolist()
        assert one.certificate.proved
        assert one.certificate.proved == other.certificate.proved
        assert one.log_heal == other.log_heal
        beam = BeamSearchParams(terminator="eog", width=3, n=2, max_tokens=MAX_TOKENS)
        first, second = (llm.beam_search(prompt, GRAMMARS[name], beam=beam) for llm in (remote, local))
        for field in (
            "hypotheses",
            "incomplete",
            "greedy",
            "agrees_with_greedy",
            "certificate",
            "close_steps",
            "stopped",
        ):
            assert getattr(first, field) == getattr(second, field), field


@given(seeds, grammars, tops, st.booleans())
@settings(max_examples=n_examples(30))
def test_what_is_proved_is_so(seed, name, top_ids, hides_rest):
    """Each text has its local log-probability, those proved to be the best are, and the open mass holds the rest."""
    remote, local = engines(seed, named_ids=3, top_ids=top_ids, hides_rest=hides_rest)
    with remote, local:
        grammar = GRAMMARS[name]
        every = local.select("a", grammar=grammar, terminator="eog", search=search(k=10**6, stop="all"))
        logp = {choice.text: choice.logp for choice in every.choices}
        found = answer(lambda: remote.select("a", grammar=grammar, terminator="eog", search=search(k=2)))
        if found is None:
            return
        for choice in found.choices:
            assert choice.logp == logp[choice.text]
            assert choice.probability_low <= every.choices[list(logp).index(choice.text)].probability + 1e-9
        if found.certificate.proved:
            best = sorted(logp.values(), reverse=True)[:2]
            assert [choice.logp for choice in found.choices][:2] == best
        else:
            assert found.certificate.reason == reason_tokens_unread()
        left = math.fsum(math.exp(value) for text, value in logp.items() if text not in {c.text for c in found.choices})
        assert left <= found.certificate.open_mass + 1e-6


@given(seeds, grammars, tops, st.sampled_from([False, True]))
@settings(max_examples=n_examples(24))
def test_a_beam_is_that_of_the_local_engine_where_it_says_so(seed, name, top_ids, is_canonical):
    """Without a close step it is the same; with a proof, its texts are the best; an exact search proves as `select`."""
    remote, local = engines(seed, named_ids=3, top_ids=top_ids)
    grammar = GRAMMARS[name]
    beam = BeamSearchParams(terminator="eog", width=3, n=2, max_tokens=MAX_TOKENS, canonical_only=is_canonical)
    exact = BeamSearchParams(terminator="eog", n=2, max_tokens=MAX_TOKENS, canonical_only=is_canonical, exact=True)
    with remote, local:
        expected, best = local.beam_search("a", grammar, beam=beam), local.beam_search("a", grammar, beam=exact)
        found = answer(lambda: remote.beam_search("a", grammar, beam=beam))
        if found is not None:
            if not found.close_steps:
                assert [one.text for one in found.hypotheses] == [one.text for one in expected.hypotheses]
                assert [one.logp for one in found.hypotheses] == [one.logp for one in expected.hypotheses]
            if found.certificate.proved:
                assert [one.logp_path for one in found.hypotheses] == [one.logp_path for one in best.hypotheses]
            if found.agrees_with_greedy and expected.greedy is not None:
                assert found.hypotheses[0].text == expected.greedy.text
        searched = answer(lambda: remote.beam_search("a", grammar, beam=exact))
        if searched is not None and searched.certificate.proved:
            assert [one.logp for one in searched.hypotheses] == [one.logp for one in best.hypotheses]
        elif searched is not None:
            assert (searched.certificate.reason == reason_tokens_unread()) == (searched.stopped == "done")


def test_few_tokens_are_enough_where_the_rest_cannot_win():
    """After "a", 99 % are on two texts; the two best tokens of a row prove the winner although 24 are not told."""
    table = {(): {"at": 0.9, "cat": 0.08}, ("at",): {"<eos>": 0.99}, ("cat",): {"<eos>": 0.99}}
    model = NotedPaths(TableModel(table, prompt=("<bos>", "a")), limits=limits(named_ids=2, top_ids=4), hides_rest=True)
    with path_engine(model) as llm:
        result = llm.select("a", grammar=GRAMMARS["words"], terminator="eog", search=search(), prompting=SPLIT)
    assert result.text == "at"
    assert result.certificate.proved
    assert 0.0 < result.certificate.open_mass < 0.12
    assert all(len(query.named) <= 2 for query in model.queries)


SPLIT = PromptParams(boundary="split")


def test_rows_that_tell_nothing_allowed_find_nothing():
    """The best tokens are none that the grammar allows: the error says so, and what to do."""
    model = PathsOf(
        TableModel({(): {".": 0.6, ":": 0.3}}, prompt=("<bos>", "a")), limits=limits(named_ids=2, top_ids=2)
    )
    with path_engine(model) as llm:
        for ask in (
            lambda: llm.select("a", grammar=GRAMMARS["words"], prompting=SPLIT),
            lambda: llm.beam_search("a", GRAMMARS["words"], prompting=SPLIT),
            lambda: llm.beam_search("a", GRAMMARS["words"], prompting=SPLIT, beam=BeamSearchParams(exact=True)),
        ):
            with pytest.raises(NothingFoundError, match="fewer tokens at a time, or load the model here") as error:
                ask()
            assert "dead end" not in str(error.value)


@pytest.mark.parametrize(
    ("after", "is_known"), [({".": 0.5, ":": 0.3, "<eos>": 0.1}, False), ({".": 0.5, "<eos>": 0.45}, True)]
)
def test_greedy_decoding_is_known_where_no_token_that_is_not_told_can_matter(after, is_known):
    """After "at", the best tokens are none that the grammar allows: one that is not told may beat the end, or not."""
    table = {(): {"at": 0.9}, ("at",): after}
    model = PathsOf(TableModel(table, prompt=("<bos>", "a")), limits=limits(named_ids=2, top_ids=2), hides_rest=True)
    with path_engine(model) as llm:
        how = {"terminator": "eog", "prompting": SPLIT}
        found = llm.select("a", grammar=GRAMMARS["words"], search=search(), **how)
        assert found.text == "at"
        assert found.greedy_index == (0 if is_known else None)
        beam = BeamSearchParams(terminator="eog", max_tokens=MAX_TOKENS)
        searched = llm.beam_search("a", GRAMMARS["words"], beam=beam, prompting=SPLIT)
        assert searched.best.text == "at"
        assert searched.agrees_with_greedy is (True if is_known else None)
        assert searched.n_dead_ends == 0
        assert searched.certificate.reason == ("" if is_known else reason_tokens_unread())


@pytest.mark.parametrize(("tolerance", "is_proved"), [(0.0, True), (0.01, True), (2.0, False)])
def test_what_the_tolerance_could_change_is_not_proved(tolerance, is_proved):
    """The model may answer differently when it is asked again: searches say where that could matter."""
    table = {(): {"at": 0.9, "cat": 0.05}, ("at",): {"<eos>": 0.9}, ("cat",): {"<eos>": 0.9}}
    model = PathsOf(TableModel(table, prompt=("<bos>", "a")), tolerance=tolerance)
    beam = BeamSearchParams(terminator="eog", max_tokens=MAX_TOKENS)
    with path_engine(model) as llm:
        certificates = [
            llm.select("a", grammar=GRAMMARS["words"], terminator="eog", search=search(), prompting=SPLIT).certificate,
            llm.beam_search("a", GRAMMARS["words"], beam=beam, prompting=SPLIT).certificate,
            llm.beam_search("a", GRAMMARS["words"], beam=replace(beam, exact=True), prompting=SPLIT).certificate,
        ]
    assert [one.proved for one in certificates] == [is_proved] * 3
    assert {one.reason for one in certificates} == {"" if is_proved else reason_too_close(tolerance)}


def test_every_token_that_ends_generation_is_read():
    """Also where fewer tokens can be named than there are of them: the end has the local log-probability."""
    vocabulary = replace(make_vocabulary(), eog=np.array([1, 4], dtype=np.int32))
    table = {(): {"at": 0.9, ".": 0.05, ":": 0.04}, ("at",): {".": 0.5, ":": 0.3, "\n": 0.1}}
    model = TableModel(table, vocabulary=vocabulary, prompt=("<bos>", "a"))
    remote = path_engine(PathsOf(model, limits=limits(named_ids=1, top_ids=2)))
    with remote, Engine(TableModel(table, vocabulary=vocabulary, prompt=("<bos>", "a"))) as local:
        how = {"terminator": "eog", "search": search(), "prompting": SPLIT}
        one, other = (llm.select("a", grammar=GRAMMARS["words"], **how) for llm in (remote, local))
        assert one.choices[0].logp_terminator == other.choices[0].logp_terminator
        remote.trim()
        beam = BeamSearchParams(terminator="eog", max_tokens=MAX_TOKENS)
        one, other = (llm.beam_search("a", GRAMMARS["words"], beam=beam, prompting=SPLIT) for llm in (remote, local))
        assert one.best.logp_end == other.best.logp_end


def test_a_callback_that_sees_whole_rows_is_refused():
    """Before anything is asked."""
    model = NotedPaths(HashModel(1))
    with path_engine(model) as llm, pytest.raises(WholeRowsError, match="`expand`"):
        llm.beam_search("a", GRAMMARS["words"], beam=BeamSearchParams(expand=lambda _path, shown: [shown[0].token]))
    assert model.requests == []


def test_a_search_with_a_budget_says_that_it_ended():
    """Where open paths, and not tokens that were not read, keep the proof away."""
    remote, local = engines(1, named_ids=26, top_ids=26, sharpness=0.5)
    with remote, local:
        how = {"grammar": GRAMMARS["letters"], "search": search(budget_nodes=5, k=2)}
        assert remote.select("a", **how).certificate.reason.startswith("the budget ended")


@pytest.mark.parametrize(("named_ids", "top_ids"), [(1, 1), (1, 2), (4, 1)])
@settings(max_examples=n_examples(10))
@given(seed=seeds)
def test_an_exact_search_names_the_end_whatever_few_tokens_a_query_may_name(named_ids, top_ids, seed):
    """Its log-probability is a part of a score, so it takes a further query rather than having bounds."""
    remote, local = engines(seed, named_ids=named_ids, top_ids=top_ids)
    beam = BeamSearchParams(exact=True, max_tokens=MAX_TOKENS, terminator="eog")
    with remote, local:
        try:
            found = remote.beam_search("a", Grammar.from_regex("[at]+"), beam=beam)
        except NothingFoundError:
            return
        expected = local.beam_search("a", Grammar.from_regex("[at]+"), beam=beam)
    assert found.best.logp <= expected.best.logp + found.heal_gap + 1e-6
