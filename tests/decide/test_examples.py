"""Examples and cues of questions: what the prompt shows, what is refused, and that nobody is told the answer to its own text."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import selectrie
from selectrie import Choice, DecisionParams, Option, Predicate, Score, Template
from selectrie.decide.question_data import data_of_questions, questions_of_data
from selectrie.decide.questions import balanced
from selectrie.errors import IncompatibleOptionsError, OptionError
from selectrie.grammar import Grammar

LABELS = ["positive", "negative"]
SHOWN = [("Great film.", "positive"), ("Awful.", "negative")]
CUED = Choice("", LABELS, cue="Sentiment:", examples=SHOWN)

BASE = """Text: Great film.
Sentiment: positive

Text: Awful.
Sentiment: negative

Text: I like it.
Sentiment: """
CHAT = [
    ("user", "Is it good?\nAnswer with one of: positive, negative.\n\nText: Great film."),
    ("assistant", "positive"),
    ("user", "Text: Awful."),
    ("assistant", "negative"),
    ("user", "Text: I like it."),
]


@pytest.fixture(scope="module")
def llm():
    with selectrie.load(n_threads=1) as engine:
        yield engine


def prompt_of(llm, question, state="I like it.", **params):
    """The page, or the turns of the chat, of a question."""
    asked = llm.decision_prompts(state, {"q": question}, params=DecisionParams(**params))["q"][0]
    return asked.prompt if isinstance(asked.prompt, str) else [(one["role"], one["content"]) for one in asked.prompt]


def test_a_page_shows_the_examples_before_the_text(llm):
    """With a cue there is no question and no list, unless an option is described or it is asked for."""
    assert prompt_of(llm, CUED, template="base") == BASE
    assert prompt_of(llm, Choice("", LABELS, cue="Sentiment: "), template="base") == BASE.rpartition("\n\n")[2]
    asked = prompt_of(llm, Choice("Is it good?", LABELS, examples=SHOWN), template="base")
    assert asked == "Question: Is it good?\n\n" + BASE.replace("Sentiment:", "Answer:")
    listed = prompt_of(llm, CUED, template="base", list_options=True)
    assert listed == "Choose from: positive, negative\n\n" + BASE
    described = Choice("", [Option("positive", description="it is good"), "negative"], examples=SHOWN)
    assert prompt_of(llm, described, template="base").startswith("Choose from:\n- positive: it is good\n- negative\n\n")


def test_a_chat_shows_each_example_as_a_turn_with_its_answer(llm):
    """The question comes once, and every text but the first shares all that was shown."""
    assert prompt_of(llm, Choice("Is it good?", LABELS, examples=SHOWN)) == CHAT
    cued = prompt_of(llm, CUED)
    assert cued[0] == ("user", "Answer with one of: positive, negative.\n\nText: Great film.\nSentiment:")
    assert [text for role, text in cued if role == "user"][1:] == [
        "Text: Awful.\nSentiment:",
        "Text: I like it.\nSentiment:",
    ]
    stated = Predicate("It is good.", examples=[("Wow.", True), ("Bad.", "no")])
    assert [text for role, text in prompt_of(llm, stated) if role == "assistant"] == ["yes", "no"]
    scored = Score("How good?", ["bad", "fine"], examples=[("Wow.", 1), ("Bad.", "bad")])
    assert [text for role, text in prompt_of(llm, scored) if role == "assistant"] == ["fine", "bad"]
    lettered = prompt_of(llm, Choice("Is it good?", LABELS, examples=SHOWN), scoring="letters")
    assert [text for role, text in lettered if role == "assistant"] == ["A", "B"]


@pytest.mark.parametrize("template", ["chat", "base"])
def test_a_text_is_never_its_own_example(llm, template):
    """Alone and among others, at whatever place; the others keep what they had."""
    states = ["I like it.", "Awful.", "So so.", "Great film.", "Awful.", " Awful.\n"]
    params = DecisionParams(template=template)
    asked = {"q": CUED}
    together = llm.decide_many(states, asked, params=params)
    for state, one in zip(states, together, strict=True):
        alone = llm.decide(state, CUED, params=params)
        assert alone.probabilities == pytest.approx(one["q"].probabilities, abs=1e-4)
        written = str(prompt_of(llm, CUED, state, template=template))
        assert written.count(state.strip()) == 1
    with pytest.warns(UserWarning, match="'negative'"):
        less = Choice("", LABELS, cue="Sentiment:", examples=SHOWN[:1])
    assert prompt_of(llm, CUED, "Awful.", template=template) == prompt_of(llm, less, "Awful.", template=template)


def test_examples_have_the_layout_in_which_they_are_shared(llm):
    """Also beside other questions; another one that is stated is refused."""
    asked = llm.decision_prompts("I like it.", {"a": CUED, "b": Choice("Long?", ["yes", "no"])})
    assert asked["a"][0].prompt == llm.decision_prompts("I like it.", {"a": CUED})["a"][0].prompt
    for layout in ("state first", "options last"):
        with pytest.raises(IncompatibleOptionsError, match="examples"):
            llm.decide("I like it.", CUED, params=DecisionParams(layout=layout))
    for words, name in (("", "examples"), ("<<#each examples as one>><<one.state>><</each>> rescue", "cue")):
        page = Template(f"{words}<<state>>\n<<select 'answer' options=answers>>\n")
        with pytest.raises(OptionError, match=f"expected a template that writes `{name}`"):
            llm.decide("I like it.", CUED, params=DecisionParams(template=page))


@pytest.mark.parametrize(
    ("examples", "told"),
    [
        ("text", "examples"),
        ([("a", "b", "c")], r"examples\[0\]"),
        ([("a", "positive"), ("b", "fair")], r"examples\[1\]\[1\]"),
        ([(" ", "positive")], r"examples\[0\]\[0\]"),
        ([(3, "positive")], r"examples\[0\]\[0\]"),
        ([("a", np.array([1, 2]))], r"examples\[0\]\[1\]"),
    ],
)
def test_what_is_no_example_is_named(examples, told):
    """With its place."""
    with pytest.raises(OptionError, match=told):
        Choice("Is it good?", LABELS, examples=examples)


def test_an_answer_names_one_option():
    """Its value or its text; True is not 1, and what is the value of one and the text of another is refused."""
    both = [Option("b", text="a"), Option("a", text="c")]
    with pytest.raises(OptionError, match="names one option"):
        Choice("", both, examples=[("x", "a")])
    with pytest.raises(OptionError, match="value or the text"):
        Choice("", [Option(1, text="one"), Option(0, text="none")], examples=[("x", True)])
    assert Score("", ["low", "high"], examples=[("x", 1.0), ("y", 0)]).examples == (("x", "high"), ("y", "low"))


def test_a_text_that_is_the_only_example_is_asked_as_others_are(llm):
    """Without words, no question comes back where its own example is left out."""
    with pytest.warns(UserWarning, match="negative"):
        bare = Choice("", LABELS, examples=SHOWN[:1])
    assert prompt_of(llm, bare, "Great film.", template="base") == "Text: Great film.\nAnswer: "


def test_cues_and_examples_go_with_listed_options():
    """A cue stands in place of a question; grammars have neither; an option without an example is warned about."""
    for made in (
        lambda: Choice("Is it good?", LABELS, cue="Sentiment:"),
        lambda: Score("Is it good?", LABELS, cue="Sentiment:"),
        lambda: Choice("", Grammar.from_regex("[a-z]+"), cue="Sentiment:"),
        lambda: Choice("", Grammar.from_regex("[a-z]+"), examples=SHOWN),
    ):
        with pytest.raises(IncompatibleOptionsError, match=r"cue|examples"):
            made()
    with pytest.raises(OptionError, match="cue"):
        Choice("", LABELS, cue=" ")
    with pytest.warns(UserWarning, match="no example has the answer 'negative'"):
        Choice("", LABELS, examples=SHOWN[:1])


def test_questions_as_data_keep_them():
    """There and back; what a file has wrong is named by its path."""
    questions = {
        "a": CUED,
        "b": Predicate("Good.", examples=[("x", True), ("y", False)]),
        "c": Score("", ["l", "m"], cue="How:"),
    }
    data = json.loads(json.dumps(data_of_questions(questions)))
    assert data["a"]["examples"][0] == {"state": "Great film.", "answer": "positive"}
    assert questions_of_data(data) == questions
    for wrong, told in (
        ({"examples": {}}, "q.examples"),
        ({"examples": [["a", "b"]]}, r"q.examples\[0\]"),
        ({"examples": [{"state": "a", "label": "b"}]}, r"q.examples\[0\].label"),
        ({"cue": 3}, "q.cue"),
    ):
        with pytest.raises(OptionError, match=told):
            questions_of_data({"questions": {"q": {"type": "choice", "choices": LABELS, **wrong}}})


pairs = st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), st.sampled_from("xyz")), max_size=20)


@given(pairs, st.integers(1, 4), st.integers(0, 9), st.randoms())
def test_a_balanced_draw_by_brute_force(given_pairs, n_each, seed, shuffle):
    """As many of each answer as there are, up to the number; in no order but the seed's."""
    found = balanced(given_pairs, n_each, seed=seed)
    assert len(set(found)) == len(found)
    assert set(found) <= set(given_pairs)
    for answer in "xyz":
        n = len({text for text, own in given_pairs if own == answer})
        assert sum(own == answer for _, own in found) == min(n, n_each)
    other = list(given_pairs)
    shuffle.shuffle(other)
    assert set(balanced(other, n_each, seed=seed)) == set(found)


def test_a_draw_does_not_depend_on_the_hashes_of_python():
    """Also where a text has two answers."""
    code = "from selectrie.decide.questions import balanced; print(balanced([('t', 'x'), ('t', 'y'), ('u', 'z')], 2))"
    drawn = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(drawn) == 1


def test_another_seed_draws_others():
    """Out of a hundred texts for each answer."""
    given_pairs = [(f"{answer}{i}", answer) for answer in "xy" for i in range(100)]
    assert balanced(given_pairs, 3) != balanced(given_pairs, 3, seed=1)
    random.Random(0).shuffle(given_pairs)
    assert [answer for _, answer in balanced(given_pairs, 2)][:2] in (["x", "y"], ["y", "x"])
