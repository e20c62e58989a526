"""`select(..., tokenizations="all")`: the choice whose spellings together are the most probable."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import Grammar, ScoringRule
from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.types import SelfCheck
from selectrie.engine.connect import PathRuntime
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import MIN_MOVE, STANDARD_ERRORS
from selectrie.engine.sources import embedded_file
from selectrie.errors import ChoiceError, IncompatibleOptionsError, OptionError, RequestError
from selectrie.options import PromptParams, SearchParams
from selectrie.testing import FakeModel, HashModel, PathsOf, TableModel, make_vocabulary, naive_spelled
from selectrie.testing.fakes import WIDE
from tests.support.gated_paths import limits
from tests.support.n_examples import n_examples

CHECK = SelfCheck(8, 0.0, 0.0)
TEXTS = ("at", "cat", "cats", " cat", "s", "b a", "bat", "a", "é")


@settings(max_examples=n_examples(48))
@given(
    st.integers(0, 999),
    st.sampled_from(["a", "a c", "a "]),
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4),
    st.data(),
)
def test_a_proved_winner_is_that_of_enumeration(seed, prompt, texts, data):
    """With priors, healed bytes, equal texts and texts that continue others; bounds contain the enumerated values."""
    terminator = data.draw(st.sampled_from(["none", "eog"]))
    budget = data.draw(st.sampled_from([None, 4]))
    prior = {text: data.draw(st.sampled_from([0.0, 0.1, 1.0, 3.0])) for text in texts}
    prior[texts[0]] = 1.0
    weights = np.array([prior[text] for text in texts])
    model = HashModel(seed, sharpness=data.draw(st.sampled_from([0.5, 2.0])))
    with Engine(model, check=CHECK) as engine:
        search = SearchParams(budget_nodes=budget)
        found = engine.select(prompt, texts, terminator=terminator, prior=prior, search=search, tokenizations="all")
        plan = engine.tokens(prompt, texts, terminator=terminator)
    context = [token for token, _ in plan.context]
    given_bytes = naive_spelled(model, context, plan.healed, ends=False)
    ends = terminator == "eog"
    truth = np.array(
        [naive_spelled(model, context, plan.healed + one.encode(), ends=ends) / given_bytes for one in texts]
    )
    spellings = found.spellings
    assert spellings.event == ("ends" if ends else "begins")
    assert (np.array(spellings.logp_low) <= np.log(truth)).all()
    assert (np.log(truth) <= np.array(spellings.logp_high)).all()
    scores = truth * weights
    total = sum(dict(zip(texts, scores, strict=True)).values())
    shares = scores / total
    assert (found.choices.probability_low <= shares * (1 + 1e-9)).all()
    assert (shares <= found.choices.probability_high * (1 + 1e-9)).all()
    if found.certificate.proved:
        assert scores[found.index] == pytest.approx(scores.max(), rel=1e-9)
        assert found.certificate.reason == ""
    if budget is None:
        assert found.certificate.proved
        assert spellings.log_heal_high - spellings.log_heal_low <= math.log(1.01)
    assert found.spellings.n_rows == found.certificate.nodes_evaluated
    json.dumps(found.to_dict(), allow_nan=False)


def test_spellings_can_decide_otherwise_than_canonical_tokens():
    """Cat has 0.2 as one token, and 0.2 + 0.4 * 0.5 + 0.1 * 0.5 over all spellings; bat has its 0.3."""
    vocabulary = make_vocabulary([b"c", b"ca", b"cat", b"at", b"t", b"bat"])
    half = {"<eos>": 0.5, "c": 0.5}
    table = {
        (): {"cat": 0.2, "ca": 0.4, "c": 0.1, "bat": 0.3},
        ("ca",): {"t": 0.5, "c": 0.5},
        ("c",): {"at": 0.5, "c": 0.5},
        **dict.fromkeys([("cat",), ("ca", "t"), ("c", "at"), ("bat",)], half),
    }
    with Engine(TableModel(table, vocabulary=vocabulary), check=CHECK) as engine:
        canonical = engine.select([0], ["bat", "cat"], terminator="eog")
        found = engine.select([0], {1: "bat", 2: "cat"}, terminator="eog", tokenizations="all")
    assert (canonical.text, found.text, found.value) == ("bat", "cat", 2)
    assert found.certificate.proved
    assert found.certificate.method == "spellings"
    assert np.exp(found.choices.logp) == pytest.approx([0.15, 0.1])  # the canonical tokens, with their end
    assert math.exp(found.spellings.logp_high[0]) == pytest.approx(0.15, rel=1e-5)
    assert 0.15 < math.exp(found.spellings.logp_low[1]) <= 0.225
    low, high = np.exp([found.spellings.logp_low, found.spellings.logp_high])
    assert found.choices.probability_low == pytest.approx(low / (low + high[::-1]))
    assert found.choices.probability_high == pytest.approx(high / (high + low[::-1]))
    assert found.margin == pytest.approx(found.spellings.logp_low[1] - found.spellings.logp_high[0])
    assert (found.rule, found.signature.rule) == ("joint, all spellings", "joint, all spellings")


def test_ties_are_flagged_and_never_proved():
    """Two letters of equal probability: the first wins, neither is proved the better."""
    with Engine(HashModel(1, sharpness=0.0), check=CHECK) as engine:
        found = engine.select("a", ["u", "r", "."], terminator="eog", tokenizations="all")
        alone = engine.select("a", ["u", "u"], terminator="eog", tokenizations="all")
    assert (found.index, found.is_tie, found.certificate.proved) == (0, True, False)
    assert found.certificate.reason == "another choice has the same probability, as far as rounding can tell"
    assert found.margin <= 0
    assert (alone.index, alone.is_tie, alone.certificate.proved) == (0, False, True)
    assert alone.margin == math.inf


def test_nothing_is_proved_within_the_tolerance_of_rows():
    """Where the layout of calls may move each row by a nat, a lead of less is no proof, and no rows are wasted on it."""
    close, far = SelfCheck(8, 0.25, 1.0), SelfCheck(8, 0.0, 1e-6)
    for check, is_proved in ((close, False), (far, True)):
        with Engine(HashModel(5, sharpness=0.2), check=check) as engine:
            found = engine.select("a", ["cat", "bat", "s"], tokenizations="all")
        assert found.certificate.proved is found.certificate.rescored is is_proved
        assert found.is_tie is not is_proved  # flagged as a near tie is that cannot be scored again
        assert found.certificate.nodes_evaluated < 64
        if not is_proved:
            assert found.certificate.reason == "two choices are closer than the layout of calls may move them"
            assert found.certificate.bound_gap < 0


def test_impossible_tokens_leave_the_tolerance_a_number():
    """Logits of -inf in every row: the self-check finds no move, and the likelier choice is proved over all spellings as over one."""
    vocabulary = make_vocabulary([b"a", b"b", b"c"])
    with np.errstate(divide="ignore"):
        row = np.log(np.array([0.1, 0.1, 0.2, 0.6, 0.0], dtype=np.float32))
    with Engine(FakeModel(lambda _: row, vocabulary=vocabulary, limits=WIDE, name="impossible")) as engine:
        assert (engine.self_check.moved, engine.tolerance) == (0.0, STANDARD_ERRORS * MIN_MOVE)
        for rival, margin in (("a", math.log(3)), ("c", math.inf), ("aa", math.log(15))):
            for tokenizations in ("canonical", "all"):
                found = engine.select([0], [rival, "b"], tokenizations=tokenizations)
                assert (found.text, found.certificate.proved) == ("b", True)
                assert found.margin == pytest.approx(margin, abs=1e-3)


def test_shares_do_not_subtract_from_a_sum():
    """`ab` is open with 0.5 and has 1e-76 of its own, `c` has 5e-39: what is left of the open is no rounding of 0.5."""
    vocabulary = make_vocabulary([b"a", b"b", b"ab", b"c", b"x"])
    rare = 1e-38
    table = {
        (): {"a": 0.5, "ab": rare, "c": rare, "x": 0.5},
        ("a",): {"b": rare, "x": 1.0},
        ("ab",): {"<eos>": rare, "x": 1.0},
        ("c",): {"<eos>": 0.5, "x": 0.5},
        ("a", "b"): {"<eos>": 0.5 / 7, "x": 1 - 0.5 / 7},
    }
    with Engine(TableModel(table, vocabulary=vocabulary), check=CHECK) as engine:
        cut, whole = (
            engine.select(
                [0], ["ab", "c"], tokenizations="all", terminator="eog", search=SearchParams(budget_nodes=budget)
            ).choices
            for budget in (1, 99)
        )
    assert whole.probability == pytest.approx([1 / 15, 14 / 15], rel=1e-4)
    for at in range(2):
        assert cut.probability_low[at] <= whole.probability_low[at]
        assert whole.probability_high[at] <= cut.probability_high[at]
    assert cut.probability_low[0] == pytest.approx(2e-38, rel=1e-4)  # rare * rare of rare / 2


def test_rows_that_are_not_told_are_no_tie():
    """A server that names one token and hides the rest leaves two choices open that nothing more can be read of; it is the reason."""
    vocabulary = make_vocabulary([b"a", b"ax", b"ay", b"az", b"b", b"bx", b"by", b"bz"])
    model = HashModel(1, vocabulary=vocabulary)
    far = PathsOf(model, limits=limits(named_ids=1, top_ids=0), hides_rest=True)
    with Engine(PathRuntime(far)) as engine:
        found = engine.select([0], ["a", "b"], terminator="none", tokenizations="all")
    assert (found.is_tie, found.certificate.proved) == (False, False)
    assert found.certificate.reason.startswith("the model does not tell some of the probabilities")
    assert found.certificate.nodes_evaluated == 1


def test_a_budget_ends_a_search_without_proof():
    """The best so far is returned with the reason."""
    with Engine(HashModel(2, sharpness=0.1), check=CHECK) as engine:
        found = engine.select("a c", ["at cats", "at bats"], search=SearchParams(budget_nodes=3), tokenizations="all")
    assert not found.certificate.proved
    assert found.certificate.reason.startswith("the budget ended after")
    assert not found.certificate.rescored


def test_auto_ends_choices_that_continue_each_other():
    """`none` where no choice is a prefix of another, else the end of generation."""
    with Engine(HashModel(2), check=CHECK) as engine:
        apart = engine.select("a", [" cat", " bat"], tokenizations="all")
        continued = engine.select("a", [" cat", " cats"], tokenizations="all")
        with_empty = engine.select("a", ["", " cats"], tokenizations="all")
    assert (apart.terminator, apart.spellings.event) == ("none", "begins")
    assert (continued.terminator, continued.spellings.event) == ("eog", "ends")
    assert with_empty.terminator == "eog"
    endless = replace(make_vocabulary(), eog=np.array([], dtype=np.int32))
    with Engine(HashModel(2, vocabulary=endless), check=CHECK) as engine, pytest.raises(OptionError, match="continues"):
        engine.select("a", [" cat", " cats"], tokenizations="all")


BAD = {
    "rule": (IncompatibleOptionsError, {"rule": "token_mean"}),
    "rule record": (IncompatibleOptionsError, {"rule": ScoringRule("pmi", premise="a")}),
    "callable": (IncompatibleOptionsError, {"rule": lambda choice: choice.logp}),
    "following": (IncompatibleOptionsError, {"following": "."}),
    "terminator": (IncompatibleOptionsError, {"terminator": "unless-continued"}),
    "boundary": (IncompatibleOptionsError, {"prompting": PromptParams(boundary="harness")}),
    "k": (IncompatibleOptionsError, {"search": SearchParams(k=2)}),
    "stop": (IncompatibleOptionsError, {"search": SearchParams(stop="all")}),
    "method": (IncompatibleOptionsError, {"search": SearchParams(method="exhaustive")}),
    "grammar": (IncompatibleOptionsError, {"choices": None, "grammar": Grammar.from_regex("a|b")}),
    "name": (OptionError, {"tokenizations": "both"}),
    "long": (ChoiceError, {"choices": ["a", ". " * 9]}),
    "unknown terminator": (OptionError, {"terminator": "end"}),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_compared_is_refused_before_any_call(name):
    """The error is of the request, and the model, its self-check included, was not asked."""
    kind, options = BAD[name]
    model = HashModel(1)
    with Engine(model) as engine, pytest.raises(RequestError) as caught:
        engine.select("a", **{"choices": [" cat", "s"], "tokenizations": "all", **options})
    assert type(caught.value) is kind
    assert model.calls == 0


def test_a_long_choice_is_named():
    """16 tokens are compared, 17 are refused with the choice's index."""
    with Engine(HashModel(1), check=CHECK) as engine:
        assert engine.select("a", ["s" * 16, "r"], tokenizations="all").certificate.proved
        with pytest.raises(ChoiceError, match="17 tokens long; at most 16") as caught:
            engine.select("a", ["r", "s" * 17], tokenizations="all")
    assert caught.value.index == 1


def test_real_weights_prove_a_winner():
    """The embedded model's measured tolerance is allowed for; the bounds of each choice are those of `score`, or wider."""
    choices = [" cat", " dog", " Timbuktu"]
    with Engine(
        open_model(embedded_file(), LlamaOptions(n_ctx=256, n_threads=1)), check=SelfCheck(8, 0.0, 0.02)
    ) as engine:
        found = engine.select("Once upon a time there was a little", choices, tokenizations="all", terminator="eog")
        alone = [
            engine.score("Once upon a time there was a little", one, tokenizations="all").spellings for one in choices
        ]
    assert found.certificate.proved
    assert found.index == int(np.argmax([one.logp_low for one in alone]))
    for at, one in enumerate(alone):
        assert found.spellings.logp_low[at] <= one.logp_high + 0.1
        assert one.logp_low <= found.spellings.logp_high[at] + 0.1
