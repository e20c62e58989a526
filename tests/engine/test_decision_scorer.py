"""Units of a table: the same bits whatever was decided before, and the answers of `decide`."""

from __future__ import annotations

import random
import threading
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selectrie
from selectrie import Choice, DecisionParams, Grammar
from selectrie.errors import ClosedError, DecodeError, OptionError, PromptTooLongError
from tests.support.deciding import QUESTIONS, fake
from tests.support.interrupts import Interrupter

LAYOUTS = ("state first", "options last", "questions first")
STATES = [f"Message {n}: {text}" for n, text in enumerate(["where is it?", "I want my money", "thanks!", "hello " * 9])]


def bits(decisions):
    """Every bit of some decisions' scores, and their values."""
    return [
        (name, one.signature, *((each.choices.logp.tobytes(), each.index) for each in one.selections))
        for decision in decisions
        for name, one in decision.items()
    ]


units = st.lists(st.lists(st.sampled_from(STATES), min_size=1, max_size=4), min_size=1, max_size=4)


@pytest.mark.short("options last")
@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=5)
@given(units)
def test_a_unit_is_decided_alike_after_any_other(layout, several):
    """On a model whose rows change with the cells that are in use, too: the counts of rows are equal."""
    params = DecisionParams(layout=layout)
    with fake() as llm:
        with llm.decision_scorer(QUESTIONS, params=params) as scorer:
            found = []
            for unit in several:
                found.append(scorer.decisions(unit))
                llm.select("in between", ["a", "b"])
        for unit, decisions in zip(several, found, strict=True):
            with llm.decision_scorer(QUESTIONS, params=params) as scorer:
                alone = scorer.decisions(unit)
            assert bits(alone) == bits(decisions)
            assert [one.usage.cost.rows for one in alone] == [one.usage.cost.rows for one in decisions]


@pytest.mark.short(
    "params0-*", "params1-questions first", "params2-options last", "params3-state first", "params4-state first"
)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "params", [{}, {"rule": "pmi"}, {"permutations": 2}, {"scoring": "letters"}, {"list_options": False}]
)
def test_a_row_has_the_answers_of_decide(params, layout):
    """To the last bit on a fake, whatever the options of the decision."""
    options = DecisionParams(layout=layout, **params)
    with fake() as llm, llm.decision_scorer(QUESTIONS, params=options) as scorer:
        assert bits(scorer.decisions(STATES)) == bits(llm.decide(state, QUESTIONS, params=options) for state in STATES)


def test_the_shared_beginning_is_evaluated_once():
    """With questions first, a second unit does not evaluate the question again."""
    question = {"intent": Choice("What is wanted? " * 20, ["lamp", "chair"])}
    with fake() as llm:
        with llm.decision_scorer(question, params=DecisionParams(layout="questions first")) as scorer:
            rows = [scorer.decisions(["a"])[0].usage.cost.rows, scorer.decisions(["b"])[0].usage.cost.rows]
        whole = llm.decide("a", question, params=DecisionParams(layout="questions first")).usage
    assert rows[0] == rows[1] < whole.cost.rows - 300
    assert whole.input_tokens > 300


@pytest.mark.parametrize("rule", ["pmi", "calibrated"])
def test_a_baseline_is_evaluated_once_for_all_units(rule):
    """The first unit bears its cost; the bits of a later one are those that it has alone."""
    params, question = DecisionParams(rule=rule, layout="state first"), {"intent": QUESTIONS["intent"]}
    with fake() as llm, llm.decision_scorer(question, params=params) as scorer:
        first, again = (scorer.decisions(STATES) for _ in range(2))
        with llm.decision_scorer(question, params=params) as other:
            other.decisions(["something else"])
            assert bits(other.decisions(STATES)) == bits(first) == bits(again)
        rows = [sum(one.usage.cost.rows for one in unit) for unit in (first, again)]
        with llm.decision_scorer(question, params=DecisionParams(layout="state first")) as plain:
            assert sum(one.usage.cost.rows for one in plain.decisions(STATES)) == rows[1] < rows[0] - 50
        assert bits(first) == bits(llm.decide(state, question, params=params) for state in STATES)


def test_texts_of_a_grammar_are_searched_in_the_memory_of_the_unit():
    """The most probable text is that of `decide`."""
    question = {"code": Choice("Which code?", Grammar.from_regex("[ab]{2}[0-9]"))}
    with fake() as llm, llm.decision_scorer(question) as scorer:
        found = scorer.decisions(STATES[:2])
        for state, decision in zip(STATES, found, strict=False):
            assert decision["code"].value == llm.decide(state, question)["code"].value


def test_a_state_that_cannot_be_asked_has_its_error():
    """The others are decided, and a later unit as well."""
    with fake(nodes=400) as llm, llm.decision_scorer({"intent": QUESTIONS["intent"]}) as scorer:
        first, blank, long, last = scorer.decisions(["a", " ", "x" * 500, "b"])
        assert isinstance(blank.error, OptionError)
        assert isinstance(long.error, PromptTooLongError)
        assert (first.error, last.error) == (None, None)
        assert bits(scorer.decisions(["b"])) == bits([llm.decide("b", {"intent": QUESTIONS["intent"]})])
        assert scorer.decisions([]) == []


def test_prompts_as_long_as_the_memory_are_decided_beside_what_is_held():
    """The shared beginning takes no room from a prompt that does not share it."""
    question = {"long": Choice("word " * 30, ["a", "b"]), "short": Choice("?", ["a", "b"])}
    params = DecisionParams(layout="questions first")
    with fake(nodes=420) as llm, llm.decision_scorer(question, params=params) as scorer:
        state = "y" * 100
        assert bits(scorer.decisions([state])) == bits([llm.decide(state, question, params=params)])


def test_a_failure_frees_the_memory_and_the_next_unit_gets_a_new_one(monkeypatch):
    """A failing decode ends the unit with its error."""
    with fake() as llm, llm.decision_scorer(QUESTIONS) as scorer:
        memories, new_context = [], llm._model.new_context
        monkeypatch.setattr(llm._model, "new_context", lambda *how: memories.append(new_context(*how)) or memories[-1])
        expected = bits(scorer.decisions(STATES))
        [model] = memories

        def failing(*_args, **_kwargs):
            raise DecodeError("made to fail")

        with monkeypatch.context() as patch:
            patch.setattr(model, "extend", failing)
            with pytest.raises(DecodeError, match="made to fail"):
                scorer.decisions(STATES)
        assert model._is_closed
        assert bits(scorer.decisions(STATES)) == expected
        assert len(memories) == 2


def test_ctrl_c_ends_a_unit_and_the_next_one_is_whole():
    """At instructions all over the engine's code: what comes after has the bits of a new scorer."""
    question = {"intent": QUESTIONS["intent"]}
    with fake() as llm, llm.decision_scorer(question) as scorer:
        expected, n = bits(scorer.decisions(STATES[:2])), 40
        while True:
            interrupter = Interrupter(n, lambda file: "selectrie/engine" in file)
            with suppress(KeyboardInterrupt), interrupter.at_work():
                scorer.decisions(STATES[:2])
            if not interrupter.has_raised:
                break
            n = n * 3 // 2
            assert bits(scorer.decisions(STATES[:2])) == expected
        assert n > 1_000


def test_threads_have_memories_of_their_own():
    """Units that are decided at once have the bits of each alone."""
    with fake() as llm, llm.decision_scorer(QUESTIONS) as scorer:
        expected = [bits(scorer.decisions([state])) for state in STATES]
        found = [None] * len(STATES)

        def decide(index):
            found[index] = bits(scorer.decisions([STATES[index]]))

        threads = [threading.Thread(target=decide, args=(index,)) for index in range(len(STATES))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == expected


def test_a_closed_scorer_says_so():
    """Closing twice is harmless, and so is closing after the engine."""
    with fake() as llm:
        scorer = llm.decision_scorer(QUESTIONS)
        scorer.decisions(STATES[:1])
        scorer.close()
        scorer.close()
        with pytest.raises(ClosedError):
            scorer.decisions(STATES)
        other = llm.decision_scorer(QUESTIONS)
        other.decisions(STATES[:1])
    other.close()
    with pytest.raises(ClosedError):
        other.decisions(STATES)


def test_real_units_have_the_same_bits_in_any_order():
    """On the embedded model; a row alone agrees within the tolerance."""
    states = [f"Where is my parcel {n}? It was sent {n} days ago." for n in range(9)]
    question = {"intent": QUESTIONS["intent"], "angry": QUESTIONS["angry"]}
    with selectrie.load(n_threads=1) as llm, llm.decision_scorer(question) as scorer:
        one, other = scorer.decisions(states[:6]), scorer.decisions(states[6:])
        llm.select("in between", ["a", "b"])
        assert bits(scorer.decisions(states[6:])) == bits(other)
        assert bits(scorer.decisions(states[:6])) == bits(one)
        alone = llm.decide(states[0], question)
        for name, answer in one[0].items():
            now = alone[name].selections[0]
            before = answer.selections[0]
            assert now.index == before.index
            assert abs(now.choices.logp - before.choices.logp).max() <= 2 * before.signature.tolerance * 8


WORDS = ("parcel", "late", "dog", "refund", "coat", "happy", "password", "login", "broken", "lamp", "please")
FULL = {
    "embedded": (None, {"n_ctx": 512, "n_batch": 256}, "state first", (12, 40)),
    "hybrid": ("random-hybrid-qwen35.gguf", {"n_ctx": 512, "n_batch": 256}, "questions first", (8, 10)),
}


@pytest.mark.parametrize("case", FULL)
def test_a_unit_that_fills_the_memory_leaves_nothing_behind(weights, case):
    """Which nodes are dropped to make room, and which states are held, does not depend on earlier units."""
    name, options, layout, (n_rows, n_words) = FULL[case]
    draw = random.Random(0)
    one, other = ([" ".join(draw.choices(WORDS, k=n_words)) for _ in range(n_rows)] for _ in range(2))
    params = DecisionParams(layout=layout)
    with selectrie.load(*([] if name is None else [weights(name)]), n_threads=1, **options) as llm:
        with llm.decision_scorer(QUESTIONS, params=params) as scorer:
            scorer.decisions(one)
            found = scorer.decisions(other)
        with llm.decision_scorer(QUESTIONS, params=params) as scorer:
            assert bits(scorer.decisions(other)) == bits(found)
