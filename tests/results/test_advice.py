"""Advice: every result has it, every shell prints it, and Python warns of each code once."""

from __future__ import annotations

import asyncio
import json
import math
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import selectrie
from selectrie import AdviceWarning, BeamSearchParams, Choice, Grammar, Predicate, Template
from selectrie.cli.report.results import beam_facts
from selectrie.cli.report.summaries import selection_facts, slot_facts, text_score_facts
from selectrie.results import Page, Remedy, TokenScore, advice
from selectrie.results.drawing.sentences import margin_words
from tests.support.answers import PROVED, answer, armour, text_score, unlikely
from tests.support.deciding import fake

SPACE = (TokenScore(5, b" the", math.log(0.9)),)


@pytest.fixture
def llm():
    """An engine on a fake chat model, which expects none of the options."""
    with closing(fake()) as made:
        yield made


def test_a_missing_space_is_said_with_its_remedy():
    """`delimiter` is named as data: Python words it as an argument, the command as a flag."""
    one = answer(("lea|ther", 0.005, 0.8), ("chain", 0.001), top_tokens=SPACE)
    (found,) = one.warnings
    assert (found.code, found.remedy) == ("coverage", Remedy("delimiter", " "))
    assert str(found).endswith("Try delimiter=' '.")
    assert dict(selection_facts(one))["! coverage"].endswith("Try --delimiter ' '.")
    assert one.to_dict()["warnings"] == [found.to_dict()]
    assert json.loads(json.dumps(found.to_dict()))["remedy"] == {"option": "delimiter", "value": " "}
    assert found.text in one._repr_html_().replace("&#x27;", "'")


def test_a_space_too_many_is_said_and_no_space_is_missed_where_there_is_one():
    """After an open bracket a model expects letters; where it expects a space, the choices' space is no cause."""
    letters = tuple(TokenScore(i, letter.encode(), math.log(0.2)) for i, letter in enumerate("ABC"))
    for tokens, cause in (
        (letters, "begin with a space"),
        (SPACE, "asks for something else"),
        (letters[:2], "asks for"),
    ):
        (found,) = answer((" zebra", 0.002), (" horse", 0.001), top_tokens=tokens).warnings
        assert (cause in found.text, "without" in found.text, found.remedy) == (True, False, None)


@pytest.mark.parametrize(
    ("healed", "paths", "cause"),
    [
        (b":", (":|Positive", ":N|egative"), "last character"),
        (b" back", (" back|refund", " back|track"), "last character"),
        (b" back", (" back| refund", " back| track"), "Usual causes"),
        (b"(", ("(|A", "(|B"), "Usual causes"),
    ],
)
def test_a_missing_space_is_said_where_the_end_of_the_prompt_was_healed(healed, paths, cause):
    """Tokens are named, and judged, only if most of them begin with the healed bytes and go on."""
    first, second = paths
    one = answer((first, 0.003, 0.4), (second, 0.003, 0.2), healed=healed, top_tokens=SPACE)
    (found,) = one.warnings
    assert cause in found.text
    assert found.remedy == (Remedy("delimiter", " ") if cause == "last character" else None)
    assert "It expects" not in found.text
    (inside,) = answer(("  a", 0.003), healed=b" ", log_heal=math.log(0.9), top_tokens=SPACE).warnings
    assert "It expects ' the' 90 %" in inside.text
    lines = (TokenScore(6, b".\n", math.log(0.9)),)
    (inside,) = answer((".|Yes", 0.9, 0.003), healed=b".", top_tokens=lines).warnings
    assert (inside.remedy, "It expects '.\\n' 90 %" in inside.text) == (None, True)


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, []),
        ({"is_tie": True}, ["tie"]),
        ({"notes": ("a note",)}, ["note"]),
        ({"certificate": replace(PROVED, proved=False, bound_gap=-0.5, reason="the budget ended")}, ["not_proved"]),
    ],
)
def test_the_report_of_a_selection_knows_what_the_selection_says(changes, codes):
    """The warnings of the report are those of the result, on a page too."""
    one = armour(**changes)
    assert [found.code for found in one.warnings] == codes
    assert [found.code for found in unlikely(**changes).warnings] == [*codes, "coverage"]
    for facts in (selection_facts(one), slot_facts(one)):
        assert [name for name, _ in facts if name.startswith("!")] == [f"! {code.replace('_', ' ')}" for code in codes]
    assert ("warnings" in one.to_dict()) == bool(codes)
    assert ("proved=False" in repr(one)) == ("not_proved" in codes)


SENTENCES = (("It| is| red", 0.4, 0.1, 0.01), ("He| is| blue", 0.2, 0.05, 0.01))


@pytest.mark.parametrize(
    ("one", "is_told"),
    [
        (answer(*SENTENCES), False),
        (answer(SENTENCES[0]), False),
        (answer(*SENTENCES, log_heal=math.log(100.0)), True),
        (answer(("it| is", 0.9, 0.004), ("it| was", 0.9, 0.003)), False),
        (answer(("it| is", 0.9, 0.004), ("it| was", 0.9, 0.003), healed=b"it"), True),
        (answer(("it| is", 0.9, 0.004), ("it| was", 0.9, 0.003), healed=b"i"), False),
        (answer((":|Positive", 0.9, 0.004), (":N|egative", 0.003, 0.4), healed=b":"), True),
        (answer((":|Positive", 0.9, 0.004), (":N|egative", 0.3, 0.001), healed=b":"), False),
        (answer(("it| is", 0.002, 0.9), ("it| was", 0.002, 0.1)), True),
        (answer(("it| is", 0.002, 0.9), ("it| was", 0.002, 0.1), log_heal=math.log(0.01)), False),
        (unlikely(coverage_high=0.5), False),
        (unlikely(certificate=replace(PROVED, open_mass=0.5)), False),
    ],
)
def test_a_low_coverage_alone_says_nothing(one, is_told):
    """Long texts have one; the model must expect another first token, after the healed bytes."""
    assert one.coverage < 0.01
    assert [found.code for found in one.warnings] == ["coverage"] * is_told


def test_an_end_that_the_model_does_not_expect_is_said():
    """Where the winner goes on: its beginning is what the model expects, its terminator is not."""
    one = answer(*SENTENCES)
    late = replace(one, choices=replace(one.choices, logp_terminator=np.full(2, math.log(0.001))))
    assert [found.code for found in late.warnings] == ["coverage"]


def test_bounds_are_not_printed_as_values():
    """A margin that an open choice bounds is "at least", one that is not above 0 "unknown", a wide p an interval."""
    for margin, words in ((0.25, "at least 0.250 nats"), (-1.5, "unknown")):
        open_ = armour(margin=margin)
        assert margin_words(open_) == words
        assert f"margin {words}" in repr(open_)
    assert margin_words(armour()) == "0.470 nats"
    assert "not certainly ahead" in dict(selection_facts(armour(margin=-1.5)))["winner"]


def test_a_text_score_a_beam_and_a_page_carry_theirs(llm):
    """Notes, an unfinished beam, and the slots of a page, each with the slot's name."""
    assert [one.code for one in text_score(notes=("cut",)).warnings] == ["note"]
    assert ("! note", "cut") in text_score_facts(text_score(notes=("cut",)))
    beam = llm.beam_search("a", Grammar.from_regex("[a-z]{9}"), beam=BeamSearchParams(max_tokens=2))
    (found,) = beam.warnings
    assert (found.code, found.remedy) == ("incomplete", Remedy("max_tokens"))
    assert dict(beam_facts(beam))["! incomplete"].endswith("See --max-tokens.")
    page = llm.render(Template("It is <<select 'colour' options=['red', 'blue']>>."))
    assert isinstance(page, Page)
    assert {one.where for one in page.warnings} == {"colour"}
    assert page.to_dict()["warnings"] == [one.to_dict() for one in page.warnings]
    assert "<div>! colour: the model expects something else" in page._repr_html_()


def test_a_list_in_one_choice_is_noted(llm):
    """`-c a,b` is one choice; two choices with commas are none."""
    assert "one by one" in llm.select("It is", ["red,blue"]).notes[-1]
    assert llm.select("It is", ["red,blue", "green"]).notes == ()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("It is {{ colour }}. ", "Jinja"),
        ("{% if x %}", "Jinja"),
        ("It is {colour}. ", "an f-string"),
        ("'It is [ANSWER]' where len(ANSWER) < 3", "LMQL"),
        ('{"colour": 1} ${x} {} {0} [INST] f(x){return} \\{x}', None),
    ],
)
def test_markup_of_other_languages_is_noted(llm, text, language):
    """Beside a slot it stays on the page, which says so."""
    page = llm.render(Template(text + "<<select 'x' options=['b', 'c']>>"))
    assert page.text.startswith(text)
    assert [str(language) in note for note in page.notes] == ([True] if language else [])
    assert [one.text for one in page.warnings if one.code == "note"][: len(page.notes)] == list(page.notes)


def test_a_decision_says_where_a_label_mass_is_low(llm):
    """Of a chat below 1 %, by the name of the question; a base model's label mass says nothing."""
    questions = {"team": Choice("Which team?", ["sales", "repairs"]), "angry": Predicate("They are angry.")}
    decision = llm.decide("It is broken.", questions)
    low = [name for name, answer in decision.items() if answer.label_mass < 0.01]
    assert low
    assert [(one.code, one.where) for one in decision.warnings] == [("label_mass", name) for name in low]
    assert decision[low[0]].to_dict()["warnings"]
    with closing(fake(chat=False)) as base:
        assert base.decide("It is broken.", questions).warnings == ()


def test_python_is_warned_of_each_code_once(llm, monkeypatch):
    """The first answer warns, the second does not; no advice, no warning."""
    monkeypatch.setattr(advice, "_warned", set())
    with pytest.warns(AdviceWarning, match="the model expects something else") as caught:
        first = llm.select("It is", ["red", "blue"])
    assert {one.code for one in first.warnings} == {"coverage"}
    assert [one.filename for one in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        llm.select("It was", ["red", "blue"])
        advice.warn_of_advice([armour()] * 2)


def test_python_is_warned_of_each_question_once(llm, monkeypatch):
    """Another question of the same process is not silent, and a hundred pieces of advice are enough."""
    monkeypatch.setattr(advice, "_warned", set())
    for question in (Choice("Which?", ["a", "b"]), Choice("Which?", ["a", "c"])):
        with pytest.warns(AdviceWarning, match="the options hold"):
            llm.decide("It is broken.", question)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            llm.decide("It is late.", question)
    with pytest.warns(AdviceWarning) as caught:
        llm.decide("It is broken.", {f"q{n}": Choice(f"Which {n}?", ["a", "b"]) for n in range(110)})
    assert len(caught) == 98
    assert len(advice._warned) == 100


def test_collected_warnings_are_not_pythons(llm, monkeypatch):
    """Those of questions are collected, here and in the threads of awaitable calls; results have their advice anyway."""
    monkeypatch.setattr(advice, "_warned", set())
    with warnings.catch_warnings(), advice.collected_warnings() as found:
        warnings.simplefilter("error")
        question = Choice("q", ["a", "b"], examples=[("s", "a")])
        with advice.collected_warnings() as inner:
            Choice("q", ["a", "c"], examples=[("s", "a")])
        decision = asyncio.run(llm.adecide("s", {"q": question}))
    assert {one.code for one in decision.warnings} == {"label_mass"}
    assert found == ["no example has the answer 'b'; give each option some"]
    assert inner == ["no example has the answer 'c'; give each option some"]
    assert advice._warned == set()


def test_one_function_warns():
    """So that no text of a client is in a warning of Python, wherever it comes from."""
    package = Path(selectrie.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "warnings.warn(" in path.read_text("utf-8")
    }
    assert found == {"results/advice.py"}


def test_python_is_warned_of_a_note_once_whatever_its_numbers(monkeypatch):
    """Every request has other numbers, and the same note."""
    monkeypatch.setattr(advice, "_warned", set())
    with pytest.warns(AdviceWarning) as caught:
        advice.warn_of_advice([armour(notes=(f"known to {nats} nats only",)) for nats in (1.3, 0.82)])
    assert [str(one.message) for one in caught] == ["known to 1.3 nats only"]
