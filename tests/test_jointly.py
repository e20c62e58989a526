"""Joint blocks: the assignment whose whole text is most probable, whatever the order of options and the way of searching."""

from __future__ import annotations

from contextlib import closing
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.engine import Engine
from selectrie.errand import errand
from selectrie.errors import OptionError, TextError
from selectrie.filling import Place
from selectrie.jointly import JointRequest, JointSlot, decide_jointly
from selectrie.options import DEFAULT_PROMPTING, Search
from selectrie.prompts import read_prompt
from selectrie.selfcheck import SelfCheck
from selectrie.template.values import Option
from selectrie.testing import HashModel

EXACT = SelfCheck(granule=1, moved=0.0, tolerance=0.0)
"""A fake's rows are the same bits in every layout."""


def slot(name, *options):
    """A slot of texts, or of (text, value) pairs."""
    pairs = [(option, option) if isinstance(option, str) else option for option in options]
    return JointSlot(name, tuple(Option(*pair) for pair in pairs))


def decide(model, request, prompt, *, following="", ends_turn=False):
    """The answer of a fresh engine over a fake."""
    with closing(Engine(model, check=EXACT)) as engine, errand(engine._owner) as begun:
        read = read_prompt(model.vocabulary, prompt, DEFAULT_PROMPTING)
        return decide_jointly(begun, model, 0.0, request, Place(read, following, ends_turn))


def spelled(request):
    """Every assignment's option texts with the block's text."""
    return {
        tuple(option.text for option in options): "".join(
            part if isinstance(part, str) else next(rest) for part in request.parts
        )
        for options in product(*(one.options for one in request.slots))
        for rest in [iter([option.text for option in options])]
    }


def brute_force(model, request, prompt, *, following="", terminator="auto"):
    """Assignments with their log-probabilities, best first: every text scored as a choice; ties by bytes."""
    texts = spelled(request)
    with closing(Engine(model, check=EXACT)) as engine:
        choices = sorted(set(texts.values()))
        found = engine.select(
            prompt, choices, following=following, terminator=terminator, search=Search(method="exhaustive")
        )
    logp = {choice.text: choice.logp for choice in found.choices}
    ranked = sorted(texts, key=lambda options: (-logp[texts[options]], texts[options].encode(), options))
    return [(options, logp[texts[options]]) for options in ranked]


OPTIONS = st.lists(st.text("abct ", min_size=0, max_size=3), min_size=1, max_size=4, unique=True)


@st.composite
def blocks(draw):
    """Up to three slots over a few letters: options that continue each other, slots side by side."""
    parts = [draw(st.sampled_from(["", "a", " c"]))]
    for name in "xyz"[: draw(st.integers(1, 3))]:
        parts += [slot(name, *draw(OPTIONS)), draw(st.sampled_from(["", "", "t", " a", ". "]))]
    return tuple(part for part in parts if part != "")


REQUESTS = st.builds(
    JointRequest,
    blocks(),
    k=st.integers(1, 3),
    method=st.sampled_from(["auto", "exhaustive", "best_first"]),
    width=st.integers(1, 9),
)
SEARCHED = st.builds(JointRequest, blocks(), k=st.integers(1, 3), width=st.integers(1, 9), most_listed=st.just(1))


@settings(max_examples=60)
@given(
    request=REQUESTS,
    seed=st.integers(0, 2**20),
    prompt=st.text("abct ", min_size=1, max_size=5),
    following=st.sampled_from(["", ".", "t", " ca"]),
)
def test_a_block_is_brute_force_over_the_product(request, seed, prompt, following):
    """The ranked assignments are those of scoring every text of the product as a choice."""
    if not any(spelled(request).values()):
        return  # nothing but the empty text
    found = decide(HashModel(seed), request, prompt, following=following)
    expected = brute_force(HashModel(seed), request, prompt, following=following)
    assert len(found.assignments) >= min(max(2, request.k), len(expected))
    expected = expected[: len(found.assignments)]
    assert [one.texts for one in found.assignments] == [options for options, _ in expected]
    assert [one.logp for one in found.assignments] == pytest.approx([logp for _, logp in expected], abs=1.1e-4)
    assert found.certificate.proved


@settings(max_examples=100)
@given(
    request=SEARCHED,
    seed=st.integers(0, 2**20),
    prompt=st.text("abct ", min_size=1, max_size=5),
    following=st.sampled_from([".", "t", " ca", "a. b"]),
)
def test_a_searched_block_is_brute_force_over_the_product(request, seed, prompt, following):
    """What is said of a product that is not listed is what scoring each of its texts says."""
    found = decide(HashModel(seed), request, prompt, following=following)
    expected = brute_force(HashModel(seed), request, prompt, following=following)
    assert found.certificate.proved
    assert len(found.assignments) >= min(max(2, request.k), len(expected))
    expected = expected[: len(found.assignments)]
    assert [one.texts for one in found.assignments] == [options for options, _ in expected]
    assert [one.logp for one in found.assignments] == pytest.approx([logp for _, logp in expected], abs=1e-5)


def test_values_keep_their_type():
    """What a slot stores is the option's value, not its text."""
    request = JointRequest((slot("x", ("a", 1), ("b", None)), " ", slot("y", ("cat", (2, 3)))))
    found = decide(HashModel(1), request, "a")
    assert found.value("x") == {"a": 1, "b": None}[found.option("x")]
    assert found.value("y") == (2, 3)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: slot("x"), OptionError, "at least one option"),
        (lambda: slot("x", "a", "b", "a"), OptionError, "options 0 and 2 are equal"),
        (lambda: slot("x", "\ud800"), TextError, "option 0 of 'x'"),
        (lambda: JointRequest(("a",)), OptionError, "at least one slot"),
        (lambda: JointRequest((slot("x", "a"),), budget=0), OptionError, "budget"),
        (lambda: JointRequest((slot("x", "a"),), k=0), OptionError, "k=0"),
        (lambda: JointRequest((slot("x", "a"), slot("x", "b"))), OptionError, "each name once"),
    ],
)
def test_wrong_requests_are_refused(make, error, message):
    """Each with the value and what was expected."""
    with pytest.raises(error, match=message):
        make()
