"""`Engine.beam_search`: grammars on fakes and on the embedded model, from prompt to result."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from datetime import date
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selectrie
from selectrie.core.types import Cost, Limits, ModelKind
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.requests import beam_search
from selectrie.errors import NothingFoundError, OptionError, PromptTooLongError
from selectrie.grammar import Grammar
from selectrie.options import BeamSearchParams, PromptParams, StopParams
from selectrie.testing import HashModel, TableModel, make_vocabulary, score_paths_alone
from tests.support.n_examples import n_examples

PETS = Grammar.from_gbnf('root ::= "cat" | "bat" | "rat" | "cat" "s"')
WORDS = Grammar.from_regex("(cat|bat|a)( (cat|bat|a))*")
SMALL = Limits(nodes=48, sequences=6, rows_per_call=5, kind=ModelKind.ATTENTION, max_idle_rows=4096)
NEAR = 1e-6
PROMPTS = ["a", "a cat", "a cat b", "b", "cat : a bat.\ncat u"]
SPLIT = PromptParams(boundary="split")


def engine_on(model) -> Engine:
    """An engine that measures nothing first."""
    return Engine(model, check=SelfCheck(8, 0.0, 0.0))


def found(prompt, grammar, *, model=None, prompting=None, **beam):
    """The result on a model of one's own."""
    with engine_on(model or HashModel(1)) as engine:
        return engine.beam_search(prompt, grammar, beam=BeamSearchParams(**beam), prompting=prompting or PromptParams())


@given(
    prompt=st.sampled_from(PROMPTS),
    seed=st.integers(0, 10**6),
    width=st.integers(1, 6),
    boundary=st.sampled_from(["heal", "split"]),
    canonical=st.booleans(),
)
@settings(max_examples=n_examples(25))
def test_every_text_is_accepted(prompt, seed, width, boundary, canonical):
    """Whatever the prompt and the boundary, each text given parses, and texts come once, best first."""
    how = {"prompting": PromptParams(boundary=boundary), "width": width, "n": 3, "max_tokens": 12}
    try:
        result = found(prompt, WORDS, model=HashModel(seed), canonical_only=canonical, **how)
    except NothingFoundError:  # every path of a narrow beam may turn out to be one that no tokenizer makes
        assert canonical
        return
    assert result.hypotheses or result.incomplete
    assert all(WORDS.accepts(text) for text in result.texts)
    assert all(WORDS.accepts(one.data).verdict in ("unfinished", "yes") for one in result.incomplete)
    assert len(set(result.texts)) == len(result)
    assert all(one.score >= other.score for one, other in pairwise(result))


@given(seed=st.integers(0, 10**6), canonical=st.booleans(), prompt=st.sampled_from(PROMPTS))
@settings(max_examples=n_examples(15))
def test_a_wide_beam_finds_what_the_exact_search_proves(seed, canonical, prompt):
    """The exact search and a beam wide enough give the same texts with the same joints, each text once, and both are proved."""
    common = {"n": 4, "max_tokens": 8, "canonical_only": canonical, "merge_equal_text": False}
    beam = found(prompt, PETS, model=HashModel(seed), width=256, **common)
    exact = found(prompt, PETS, model=HashModel(seed), exact=True, **common)
    assert beam.texts == exact.texts
    assert [one.logp for one in beam] == pytest.approx([one.logp for one in exact], abs=NEAR)
    assert beam.log_heal == pytest.approx(exact.log_heal, abs=NEAR)
    assert exact.certificate.proved
    assert beam.certificate.about == exact.certificate.about == ("strings" if canonical else "token paths")


@given(seed=st.integers(0, 10**6))
@settings(max_examples=n_examples(10))
def test_a_finite_grammar_is_a_set_of_choices(seed):
    """Behind a fixed prompt, canonical texts have the joints that `score` gives, and the first is the one `select` picks."""
    model = HashModel(seed)
    with engine_on(model) as engine:
        beam = BeamSearchParams(width=64, n=4, max_tokens=8, canonical_only=True, terminator="none")
        result = engine.beam_search("a ", PETS, beam=beam, prompting=SPLIT)
        for one in result:
            assert one.logp == pytest.approx(engine.score("a ", one.text, prompting=SPLIT).logp, abs=NEAR)
        picked = engine.select("a ", ["cat", "bat", "rat", "cats"], terminator="none", prompting=SPLIT)
    assert result.text == picked.text


def test_tokens_and_end_add_up():
    """The joint is the sum over tokens and the end, less the healed bytes, as evaluating the path alone gives it."""
    model = HashModel(5)
    result = found("a cat", PETS, model=model, n=4, max_tokens=8, merge_equal_text=False, width=64, terminator="eog")
    assert result.healed == b" cat"
    for one in result:
        path = [token.id for token in one.tokens]
        assert b"".join(token.piece for token in one.tokens) == result.healed + one.data
        [alone] = score_paths_alone(HashModel(5), [0, 3], [[*path, 1]])
        assert one.logp == pytest.approx(sum(alone) - result.log_heal, abs=NEAR)
        assert one.logp_end == pytest.approx(alone[-1], abs=NEAR)


def test_the_terminator_follows_from_the_grammar():
    """Nothing is added where no text continues another; else no continuation, or EOG behind a control token."""
    assert found("a ", Grammar.from_gbnf('root ::= "cat" | "bat"'), max_tokens=5).terminator == "none"
    assert found("a ", PETS, max_tokens=5).terminator == "unless-continued"
    assert found("a ", WORDS, max_tokens=5).terminator == "unless-continued"
    assert found([0, 1, 3], PETS, max_tokens=5).terminator == "eog"
    assert found([0, 3], PETS, max_tokens=5).terminator == "unless-continued"
    assert found("a ", Grammar.from_regex("(cat|bat)*s"), max_tokens=5).terminator == "none"
    assert found("a ", PETS, max_tokens=5, terminator="none").terminator == "none"


@given(
    prompts=st.lists(st.sampled_from(PROMPTS), min_size=2, max_size=4),
    kind=st.sampled_from([ModelKind.ATTENTION, ModelKind.RECURRENT]),
)
@settings(max_examples=4)
def test_together_is_alone(prompts, kind):
    """Searches and sequences of several threads on one small model are what each is alone, bit for bit."""
    beam = BeamSearchParams(width=3, n=2, max_tokens=10)
    results = {}
    with engine_on(HashModel(3, limits=replace(SMALL, kind=kind))) as engine:

        def work(place, prompt):
            results[place] = engine.beam_search(prompt, WORDS, beam=beam)

        threads = [threading.Thread(target=work, args=entry) for entry in enumerate(prompts)]
        for thread in threads:
            thread.start()
        engine.generate(prompts, seed=1, stopping=StopParams(max_tokens=8))
        for thread in threads:
            thread.join()
    for place, prompt in enumerate(prompts):
        alone = found(prompt, WORDS, model=HashModel(3), width=3, n=2, max_tokens=10)
        evaluated = alone.certificate.nodes_evaluated
        assert results[place].certificate.nodes_evaluated == evaluated
        assert results[place] == replace(alone, cost=Cost())


def test_it_can_be_awaited():
    """`abeam_search` is `beam_search`, to be awaited."""

    async def ask(engine):
        return await engine.abeam_search("a ", PETS, beam=BeamSearchParams(max_tokens=5))

    with engine_on(HashModel(1)) as engine:
        assert asyncio.run(ask(engine)) == engine.beam_search("a ", PETS, beam=BeamSearchParams(max_tokens=5))


def test_what_is_broken_off_stands_apart():
    """Nothing finished within `max_tokens`: the beginnings are given as such. Asked for, they come beside finished ones."""
    result = found("a ", Grammar.from_gbnf('root ::= "catcatcatcat"'), max_tokens=2, n=2)
    assert (result.texts, result.stopped) == ((), "length")
    assert not result.best.complete
    assert result.best.ended_by == "length"
    assert not result.certificate.proved
    both = found("a ", WORDS, max_tokens=2, n=2, incomplete=True, width=30)
    assert both.hypotheses
    assert both.incomplete
    assert not found("a ", WORDS, max_tokens=2, n=2, width=30).incomplete


@pytest.mark.parametrize("exact", [False, True], ids=["beam", "exact"])
@pytest.mark.parametrize("delimiter", ["", " "], ids=["none", "a space"])
def test_texts_are_told_as_they_are_finished(delimiter, exact):
    """Each is better than those before it, the last is the winner, and the result is that of a search nobody hears."""
    told, progress = [], []
    how = {"width": 4, "max_tokens": 12, "exact": exact, "prompting": PromptParams(delimiter=delimiter)}
    quiet = found("a", WORDS, **how)
    callbacks = {"on_found": lambda *one: told.append(one), "on_progress": lambda *one: progress.append(one)}
    heard = found("a", WORDS, **how, **callbacks)
    assert heard.to_dict() | {"cost": 0} == quiet.to_dict() | {"cost": 0}
    assert [logp for _, logp in told] == sorted(logp for _, logp in told)
    assert told[-1] == (quiet.text, pytest.approx(quiet.logp))
    assert all(WORDS.accepts(text) for text, _ in told)
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)
    assert {total for _, total in progress} == {0}
    assert progress[-1][0] == quiet.certificate.nodes_evaluated


def test_a_grammar_that_the_model_cannot_write():
    """No token spells what the grammar asks for: an error that says so, and not an empty answer."""
    with pytest.raises(NothingFoundError, match="no text of gbnf"):
        found("a ", Grammar.from_gbnf('root ::= "a" "xyz"'), max_tokens=5)


def test_the_delimiter_stands_before_the_text():
    """It is spelled by every path and scored, and is no part of the text."""
    result = found("a:", PETS, prompting=PromptParams(delimiter=" "), max_tokens=6, n=4, width=64)
    assert set(result.texts) <= {"cat", "bat", "rat", "cats"}
    assert b"".join(token.piece for token in result[0].tokens) == b": " + result[0].data


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"grammar": "root"}, "grammar='root'"),
        ({"beam": 2}, "beam="),
        ({"prompting": None}, "prompting is not given"),
        ({"prompting": PromptParams(boundary="harness")}, "boundary='harness'"),
        ({"beam": BeamSearchParams(max_tokens=4096)}, "lower `max_tokens`"),
    ],
)
def test_wrong_requests_are_refused_before_any_call(change, told):
    """Each names the value and what to do, and nothing is evaluated."""
    model = HashModel(1)
    request = {"grammar": PETS, "beam": BeamSearchParams(max_tokens=5), "prompting": PromptParams(), **change}
    with engine_on(model) as engine, pytest.raises((OptionError, PromptTooLongError), match=told):
        engine.beam_search("a ", **request)
    assert model.calls == 0


def test_a_path_that_no_text_has_takes_no_place():
    """`b` is likelier than `bat`, the only own token of the text: a beam of one does not take it."""
    model = TableModel({("a",): {"b": 0.6, "bat": 0.1}, ("a", "b"): {"at": 0.9}})
    grammar = Grammar.from_gbnf('root ::= "bat"')
    result = found("a", grammar, model=model, width=1, prompting=SPLIT)
    assert [token.piece for token in result.best.tokens] == [b"bat"]
    assert result.logp == pytest.approx(np.log(0.1), abs=NEAR)
    assert (result.certificate.about, result.certificate.proved, result.n_refused) == ("strings", True, 0)


LONG_WORD = make_vocabulary([b"b", b"c", b"b" * 8])
ALONE = {("b",) * n: {"b": 0.9, "b" * 8: 0.02, "c": 0.01} for n in range(9)}
"""A model that spells the text of eight b in eight tokens."""


@pytest.mark.parametrize("width", [1, 2, 3, 8])
def test_greedy_decoding_comes_back_from_a_path_that_leads_nowhere(width):
    """Seven b in tokens of one lead to no text: the token of eight is taken, whatever the width."""
    grammar = Grammar.from_gbnf('root ::= "bbbbbbbb" | "c" [bc]{11}')  # more texts than are listed
    model = TableModel(ALONE, vocabulary=LONG_WORD)
    result = found([0], grammar, model=model, width=width, prompting=SPLIT, max_tokens=12)
    assert [token.piece for token in result.greedy.tokens] == [b"b" * 8]
    assert (result.text, result.agrees_with_greedy) == ("b" * 8, True)


@pytest.mark.parametrize("width", [1, 2, 8, 12])
@pytest.mark.parametrize("start", [[0], [0, 2]])
def test_greedy_decoding_comes_back_to_the_last_of_many_tokens(width, start):
    """Eight letters lead to no text: the ninth best token is taken, whatever the width, behind any prompt."""
    letters = "bdefghjk"
    words = [letter * 8 for letter in letters]
    vocabulary = make_vocabulary([b"c", *(piece.encode() for piece in (*letters, *words))])
    before = ("c",) * (len(start) - 1)
    letter_p, word_p = (
        {one: p + i / 1000 for i, one in enumerate(ones)} for ones, p in ((letters, 0.1), (words, 0.01))
    )
    table = {before: {**letter_p, **word_p, "c": 0.001}}
    table |= {(*before, *letter * n): {letter: 0.9} for letter in letters for n in range(1, 9)}
    texts = " | ".join(f'"{word}"' for word in words)
    grammar = Grammar.from_gbnf(f'root ::= {texts} | "c" [bc]{{11}}')  # more texts than are listed
    model = TableModel(table, vocabulary=vocabulary)
    result = found(start, grammar, model=model, width=width, prompting=SPLIT, max_tokens=12)
    assert [token.piece for token in result.greedy.tokens] == [b"k" * 8]
    assert (result.text, result.agrees_with_greedy) == ("k" * 8, True)


def test_an_exact_search_ends_without_a_budget():
    """Given none, it takes its own: the best so far comes out and says that it is not proved."""
    grammar = Grammar.from_regex("([abcrtu ]{9})s")
    result = found("a", grammar, model=HashModel(1, sharpness=0.0), exact=True, max_tokens=12, prompting=SPLIT)
    assert (result.stopped, result.certificate.proved) == ("budget", False)
    assert grammar.accepts(result.text)


def test_a_budget_that_finds_nothing_is_named():
    """Nothing was finished within it: the error says so, and what to raise."""
    with pytest.raises(
        NothingFoundError, match="the budget ended after 3 rows; raise `budget_nodes`, search with a beam"
    ):
        found("a", Grammar.from_regex("([abcrtu ]{9})s"), exact=True, budget_nodes=3, max_tokens=12, prompting=SPLIT)


def test_what_a_callback_raises_is_raised_here():
    """An error of the caller's own comes out as it is, and the engine goes on working."""

    def expand(_path, _candidates):
        raise ZeroDivisionError

    with engine_on(HashModel(1)) as engine:
        with pytest.raises(ZeroDivisionError):
            engine.beam_search("a ", PETS, beam=BeamSearchParams(expand=expand, max_tokens=5))
        assert engine.beam_search("a ", PETS, beam=BeamSearchParams(max_tokens=5)).text


def test_a_callback_that_returns_nothing_is_told():
    """Forgetting to return is a mistake by name, no TypeError from inside."""
    expected = "that returned None.*expected a callable that returns token ids"
    with engine_on(HashModel(1)) as engine, pytest.raises(OptionError, match=expected):
        engine.beam_search("a ", PETS, beam=BeamSearchParams(expand=lambda _path, _candidates: None, max_tokens=5))


def test_the_result_is_ready_for_json():
    """Every number of the result is one that JSON has, and the kind is named."""
    result = found("a cat", PETS, n=3, max_tokens=6)
    fields = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert (fields["kind"], fields["grammar"]) == ("beam", "gbnf")
    assert [one["text"] for one in fields["hypotheses"]] == list(result.texts)
    assert "BeamResult(grammar='gbnf'" in repr(result)
    assert "more" not in repr(result)
    assert result[0] is result.best
    assert result[:2] == result.hypotheses[:2]


def test_the_tree_shows_greedy_decoding_too():
    """The paths given are one trie, the winner's marked, and greedy decoding's path beside them where it is another."""
    rows = {("a",): {"b": 0.5, "c": 0.4}, ("a", "b"): {"at": 0.3}, ("a", "c"): {"at": 0.9}}
    grammar = Grammar.from_gbnf('root ::= "bat" | "cat"')
    result = found("a", grammar, model=TableModel(rows), prompting=SPLIT, canonical_only=False)
    assert (result.text, result.agrees_with_greedy) == ("cat", False)
    view = result.trie()
    assert [piece for piece, on in zip(view.piece, view.on_winner, strict=True) if on] == [b"", b"c", b"at"]
    assert [piece for piece, on in zip(view.piece, view.on_greedy, strict=True) if on] == [b"", b"b", b"at"]
    assert np.isclose(result.greedy.logp, np.log(0.5 * 0.3))


def test_the_exact_search_of_any_tokens_scores_what_it_orders():
    """`cb` by one path of 0.3 stands before `cat` by two of 0.2: logp and score are those of the best path, coverage has all three."""
    rows = {("a",): {"cat": 0.2, "c": 0.5}, ("a", "c"): {"b": 0.6, "at": 0.4}}
    grammar = Grammar.from_gbnf('root ::= "cat" | "cb"')
    how = {"model": TableModel(rows), "prompting": SPLIT, "canonical_only": False, "terminator": "none"}
    result = found("a", grammar, exact=True, n=2, **how)
    assert (result.texts, [one.n_paths for one in result]) == (("cb", "cat"), [1, 2])
    assert result.n_merged == 1
    assert np.allclose(np.exp([one.logp for one in result]), [0.3, 0.2])
    assert all(one.logp == one.logp_path == one.score for one in result)
    assert result.certificate.proved
    assert np.isclose(result.coverage, 0.7)


def test_what_was_left_aside_is_not_called_impossible():
    """Where the beam dropped beginnings, the error says so and what finds them; only without any is nothing possible."""
    none = {"n_dead_ends": 0, "n_refused": 0, "unread": -np.inf}
    asked, outcome = SimpleNamespace(grammar=PETS, doubt=""), SimpleNamespace(lost=-1.0, **none)
    dropped = str(beam_search._nothing_error(asked, outcome))
    asked_in_doubt = SimpleNamespace(grammar=PETS, doubt="the prompt is one word")
    assert "the prompt is one word, beginnings were left aside" in str(
        beam_search._nothing_error(asked_in_doubt, outcome)
    )
    assert "canonical_only=False" in dropped
    assert "no token" not in dropped
    assert "no token that it allows is possible" in str(
        beam_search._nothing_error(asked, SimpleNamespace(lost=-np.inf, **none))
    )


# The embedded model


@pytest.fixture(scope="module")
def llm():
    """The model that comes with selectrie."""
    with selectrie.load(n_threads=1) as engine:
        yield engine


def test_json_of_the_embedded_model(llm):
    """Every text that it writes under the JSON grammar is JSON, with the healed bytes taken off."""
    grammar = Grammar.load("json")
    result = llm.beam_search("The answer as JSON: ", grammar, beam=BeamSearchParams(width=4, n=3, max_tokens=64))
    assert result.hypotheses
    for one in result:
        json.loads(one.text)
        assert grammar.accepts(one.text)


def test_dates_of_the_embedded_model(llm):
    """Dates of a pattern: each is one, and greedy decoding is never better."""
    grammar = Grammar.from_regex(" 20(0[1-9]|1[0-9])-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])")
    result = llm.beam_search("Today is", grammar, beam=BeamSearchParams(width=6, n=3, max_tokens=16))
    assert len(result) == 3
    for one in result:
        date.fromisoformat(one.text.strip())
    assert result.greedy is None or result.greedy.logp <= result.logp


def test_the_exact_search_proves_the_embedded_models_capital(llm):
    """Beam and exact search agree on a small grammar, which `select` decides the same way."""
    towns = [" Paris", " London", " Rome", " Oslo"]
    grammar = Grammar.from_gbnf("root ::= " + " | ".join(f'"{town}"' for town in towns))
    prompt = "The capital of France is"
    beam = llm.beam_search(prompt, grammar, beam=BeamSearchParams(canonical_only=True, max_tokens=8))
    exact = llm.beam_search(prompt, grammar, beam=BeamSearchParams(canonical_only=True, exact=True, max_tokens=8))
    assert beam.text == exact.text == llm.select(prompt, towns).text == " Paris"
    assert exact.certificate.proved
    assert beam.logp == pytest.approx(exact.logp, abs=(beam.signature.tolerance or 0) * 16 + NEAR)


@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize(
    ("gbnf", "lark"),
    [
        (r'root ::= [0-9]{4} "-" [01] [0-9] "-" [0-3] [0-9]', "start: /[0-9]{4}-[01][0-9]-[0-3][0-9]/"),
        (r'root ::= ("- " [a-z]+ "\n"){1,3}', r'start: ("- " /[a-z]+/ "\n"){1,3}'),
    ],
    ids=["date", "list"],
)
def test_both_recognisers_give_the_same_beams(llm, gbnf, lark, canonical):
    """The same language read by us and by llguidance: the same texts, in the same order, to the bit."""
    beam = BeamSearchParams(width=4, n=3, max_tokens=14, canonical_only=canonical, terminator="eog")
    ours, theirs = (
        llm.beam_search("Things:\n", grammar, beam=beam)
        for grammar in (Grammar.from_gbnf(gbnf), Grammar.from_llguidance(lark))
    )
    assert [(one.text, one.logp) for one in ours] == [(one.text, one.logp) for one in theirs]
    assert len(ours) == 3
