"""Options of a request: what each record refuses, and that records are values."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest

from selectrie.decoding.scoring.rules import log_priors
from selectrie.errors import ChoiceError, OptionError
from selectrie.options import BeamSearchParams, PromptParams, SamplingParams, ScoringRule, SearchParams, StopParams
from selectrie.options.checks import Bounds

NO_TEXT = (3, b"a", True, ["a"])
NO_COUNT = (0, -1, 1.0, nan, True, "1", [1])
NO_PROBABILITY = (0, 0.0, -0.0, -0.5, 1.0000001, 2, nan, inf, -inf, True, False, "0.5", "x", None, [0.5], 0.5j)
NO_SHARE = (-0.1, 1.1, nan, inf, -inf, True, "0.5", None, [0.5])
NO_NUMBER = (nan, inf, -inf, True, "1", None, [1.0])
REFUSED = {
    (SearchParams, "method"): (None, "", "Exhaustive", True, 3, ["auto"], np.array(["auto", "auto"])),
    (SearchParams, "stop"): (None, "k-best", 3, {"best"}),
    (SearchParams, "k"): (None, *NO_COUNT),
    (SearchParams, "width"): (None, *NO_COUNT),
    (SearchParams, "budget_nodes"): NO_COUNT,
    (SearchParams, "mass"): NO_PROBABILITY,
    (SearchParams, "on_progress"): (3, "print", True),
    (BeamSearchParams, "on_progress"): (3, "print", True),
    (BeamSearchParams, "on_found"): (3, "print", True),
    (PromptParams, "boundary"): (None, "Heal", 3, ["heal"]),
    (PromptParams, "truncate"): (None, True, False, "right", 3),
    (PromptParams, "delimiter"): (None, *NO_TEXT),
    (PromptParams, "assistant_prefix"): (None, *NO_TEXT),
    (PromptParams, "system"): NO_TEXT,
    (PromptParams, "template_args"): (None, "ab", 3, [("a", 1)], {3: "a"}, {None: 1}),
    (PromptParams, "parse_special"): (None, 0, 1, "yes", np.True_),
    (PromptParams, "add_bos"): (None, 0, 1, "yes", np.True_),
    (SamplingParams, "temperature"): (-0.1, *NO_NUMBER),
    (SamplingParams, "top_k"): (None, -2, 1.0, nan, True, "1"),
    (SamplingParams, "top_p"): NO_SHARE,
    (SamplingParams, "min_p"): NO_SHARE,
    (SamplingParams, "typical_p"): NO_SHARE,
    (SamplingParams, "repeat_penalty"): (0, 0.0, -1.0, *NO_NUMBER),
    (SamplingParams, "presence_penalty"): NO_NUMBER,
    (SamplingParams, "frequency_penalty"): NO_NUMBER,
    (SamplingParams, "penalty_last_n"): (None, -2, 1.0, True, "64"),
    (SamplingParams, "logit_bias"): (None, 3, "ab", [(1, 2.0)]),
    (StopParams, "max_tokens"): (None, *NO_COUNT),
    (StopParams, "stop"): (None, 3, b"a", {"a"}),
    (StopParams, "stop_tokens"): (None, 3, "12", b"12", {1}, {1: 2}, iter([1]), np.array(3)),
    (StopParams, "ignore_eog"): (None, 0, 1, "yes", np.True_),
    (StopParams, "when"): (3, "print", True),
    (StopParams, "min_tokens"): (None, -1, 1.0, nan, True, "1", 129),
    (ScoringRule, "name"): (None, "Joint", 3, ["joint"], ScoringRule()),
}
ACCEPTED = (
    SearchParams(method="best_first", k=2, stop="mass", mass=1, budget_nodes=1, width=1, on_progress=max),
    SearchParams(mass=5e-324),
    PromptParams("harness", "", "left", "", "", {"a": [1], "": None}, parse_special=True, add_bos=False),
    PromptParams(system="Be brief.", template_args={"enable_thinking": False}),
    SamplingParams(0, 0, 0, 0, 0, 5e-324, -2, 2, -1, {0: -inf, 7: 2}),
    SamplingParams(temperature=1, top_p=1, min_p=1, typical_p=1.0, penalty_last_n=0),
    SamplingParams.GREEDY,
    SamplingParams.UNCHANGED,
    StopParams(1, ["\n\n", "END"], [2, 3], ignore_eog=True, when=max, min_tokens=1),
    ScoringRule("pmi", premise=""),
    ScoringRule("calibrated", content_free=("", "N/A")),
)


@pytest.mark.parametrize(
    ("record", "name", "value"),
    [(record, name, value) for (record, name), values in REFUSED.items() for value in values],
)
def test_a_wrong_type_or_value_is_refused_by_name(record, name, value):
    """No other exception comes out, and the error names the option."""
    with pytest.raises(OptionError) as caught:
        record(**{name: value})
    assert caught.value.name == {"name": "rule"}.get(name, name)
    assert caught.value.value is value


@pytest.mark.parametrize("value", NO_TEXT)
def test_a_premise_is_text(value):
    """Anything else is refused, under the rule that takes one."""
    with pytest.raises(OptionError, match="premise"):
        ScoringRule("pmi", premise=value)


@pytest.mark.parametrize("value", ["abc", b"abc", "", None, 3, {"a": 1}, {"a"}, iter(["a"])])
def test_one_text_is_no_list_of_content_free_prompts(value):
    """A str would become a prompt for each of its letters; sets and iterators have no order, or no length."""
    with pytest.raises(OptionError, match="content_free"):
        ScoringRule("calibrated", content_free=value)


def test_content_free_prompts_are_texts():
    """The error names the place of the one that is not."""
    with pytest.raises(OptionError, match=r"content_free\[1\]=3"):
        ScoringRule("calibrated", content_free=["N/A", 3])


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScoringRule("calibrated"),
        lambda: ScoringRule("calibrated", content_free=[]),
        lambda: ScoringRule(premise="N/A"),
        lambda: ScoringRule("pmi", content_free=["N/A"]),
    ],
)
def test_texts_of_another_rule_are_refused(make):
    """A text that no rule would read is a mistake; so is a rule without its texts."""
    with pytest.raises(OptionError, match=r"content_free|premise"):
        make()


def test_any_sequence_of_prompts_becomes_a_tuple():
    """A list given to a rule cannot change it afterwards."""
    prompts = ["N/A", ""]
    rule = ScoringRule("calibrated", content_free=prompts)
    prompts.append("x")
    assert rule.content_free == ("N/A", "")
    assert rule == ScoringRule("calibrated", content_free=("N/A", ""))


def test_template_arguments_are_copied_and_read_only():
    """The caller's mapping can change without changing the record, and the record's cannot."""
    given = {"a": 1}
    prompting = PromptParams(template_args=given)
    given["a"] = 2
    assert prompting.template_args == {"a": 1}
    with pytest.raises(TypeError, match="read-only"):
        prompting.template_args["a"] = 3


@pytest.mark.parametrize(
    ("bias", "name"),
    [
        ({-1: 0.0}, "logit_bias"),
        ({True: 0.0}, "logit_bias"),
        ({"13": 0.0}, "logit_bias='13': expected an int for the id of a token"),
        ({5: inf}, r"logit_bias\[5\]"),
        ({5: nan}, r"logit_bias\[5\]"),
        ({5: None}, r"logit_bias\[5\]"),
        ({5: 10**400}, r"logit_bias\[5\]"),
        ({5: -(10**400)}, r"logit_bias\[5\]"),
    ],
)
def test_biases_go_from_token_ids_to_numbers(bias, name):
    """The error names the token whose bias is no number, and -inf is the way to forbid one."""
    with pytest.raises(OptionError, match=name):
        SamplingParams(logit_bias=bias)


def test_ids_of_numpy_are_ids():
    """What `Vocabulary.eog` holds stops a text; the record holds plain numbers, which JSON knows."""
    stopping = StopParams(stop_tokens=np.array([1, 3], dtype=np.int32))
    sampling = SamplingParams(logit_bias={np.int64(5): -1.0})
    assert (stopping.stop_tokens, dict(sampling.logit_bias)) == ((1, 3), {5: -1.0})
    assert {type(i) for i in (*stopping.stop_tokens, *sampling.logit_bias)} == {int}
    with pytest.raises(OptionError, match=r"stop_tokens\[0\]"):
        StopParams(stop_tokens=np.array([1.0]))


def test_biases_are_copied_and_read_only():
    """The caller's mapping can change without changing the record, and the record's cannot."""
    given = {1: 0.5}
    sampling = SamplingParams(logit_bias=given)
    given[1] = 2.0
    assert sampling.logit_bias == {1: 0.5}
    with pytest.raises(TypeError, match="read-only"):
        sampling.logit_bias[1] = 3.0


@pytest.mark.parametrize(
    ("stopping", "place"),
    [
        ({"stop": ["a", ""]}, r"stop\[1\]"),
        ({"stop": ""}, r"stop\[0\]"),
        ({"stop": ["\ud800"]}, r"stop\[0\]"),
        ({"stop": [b"a"]}, r"stop\[0\]"),
        ({"stop_tokens": [1, -1]}, r"stop_tokens\[1\]"),
        ({"stop_tokens": [1.0]}, r"stop_tokens\[0\]"),
    ],
)
def test_what_stops_a_text_is_checked_one_by_one(stopping, place):
    """An empty stop string would end every text, a lone surrogate has no bytes; the error names the place."""
    with pytest.raises(OptionError, match=place):
        StopParams(**stopping)


def test_one_text_is_one_stop_string():
    """A str is no list of its letters; any sequence becomes a tuple."""
    assert StopParams(stop="END") == StopParams(stop=["END"])
    assert StopParams(stop=["a"], stop_tokens=[1]).stop == ("a",)
    assert StopParams(stop_tokens=[1, 2]).stop_tokens == (1, 2)


def test_named_chains_are_what_they_say():
    """Greedy is temperature 0; unchanged leaves the model's distribution alone; neither counts tokens."""
    assert SamplingParams(temperature=0) == SamplingParams.GREEDY
    assert SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0) == SamplingParams.UNCHANGED
    assert not SamplingParams.GREEDY.penalises
    assert SamplingParams(frequency_penalty=0.1).penalises
    assert not SamplingParams(frequency_penalty=0.1, penalty_last_n=0).penalises


@pytest.mark.parametrize(
    "record", [SearchParams(), PromptParams(), ScoringRule(), SamplingParams(), StopParams(), *ACCEPTED], ids=repr
)
def test_records_are_values(record):
    """Copied, pickled or replaced they are equal, with one hash."""
    for same in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record)), replace(record)):  # noqa: S301
        assert same == record
        assert hash(same) == hash(record)


def test_records_differ_in_every_field():
    """Equality sees template arguments too, though their hash does not."""
    assert PromptParams(template_args={"a": 1}) != PromptParams(template_args={"a": 2})
    assert len({PromptParams(delimiter="a"), PromptParams(delimiter="b"), PromptParams(delimiter="a")}) == 2


@pytest.mark.parametrize("weight", ["x", "0.5", b"1", None, True, np.True_, [1.0], np.ones(1), 1j, nan, 10**400, -1])
def test_a_weight_that_is_no_number_is_refused(weight):
    """By its choice, in order and by name; text of digits and true and false are no numbers."""
    with pytest.raises(ChoiceError, match=r"choice 1 .*finite weight of at least 0"):
        log_priors([1.0, weight], ["a", "b"])
    with pytest.raises(ChoiceError, match=r"choice 1 .*finite weight of at least 0"):
        log_priors({"a": 1.0, "b": weight}, ["a", "b"])


@pytest.mark.parametrize("prior", ["ab", b"ab", {1.0, 2.0}, frozenset({1.0, 2.0}), 3, 0.5, True, object()])
def test_a_prior_that_is_no_list_of_weights_is_refused(prior):
    """Texts and sets have no weights in order, a number is not one for each choice."""
    with pytest.raises(OptionError, match="prior"):
        log_priors(prior, ["a", "b"])


@pytest.mark.parametrize("prior", [np.ones((2, 2)), np.array(1.0), np.array([True, False]), np.array(["1", "2"])])
def test_an_array_of_anything_but_weights_is_refused(prior):
    """A matrix, a single value, truths and texts."""
    with pytest.raises(ChoiceError, match="prior"):
        log_priors(prior, ["a", "b"])


@pytest.mark.parametrize(
    "prior", [[1, 0.5], (1.0, Fraction(1, 2)), np.array([1, 0.5], dtype=np.float32), {"b": np.float64(0.5), "a": 1}]
)
def test_weights_may_be_any_real_numbers(prior):
    """Whole numbers, fractions, NumPy's; the logarithm is of float64."""
    np.testing.assert_array_equal(log_priors(prior, ["a", "b"]), [0.0, np.log(0.5)])


def test_a_negative_zero_excludes_as_zero_does():
    """Its logarithm is -inf too."""
    np.testing.assert_array_equal(log_priors([-0.0, 2.0], ["a", "b"]), [-np.inf, np.log(2.0)])


@pytest.mark.parametrize("make", [np.int64, np.uint8])
def test_an_integer_of_numpy_is_named_by_its_type(make):
    """The message says what to do, not that the number is too small."""
    with pytest.raises(OptionError, match=rf"^k=.*3.*: expected an int, not the type {make.__name__}; pass int"):
        SearchParams(k=make(3))


def test_both_bounds_of_whole_numbers_hold():
    """The greatest one too, without words for the allowed values."""
    Bounds(1, 64).check("n", 64)
    for value, allowed in ((65, "from 1 to 64"), (0, "of at least 1"), (2.0, "of at least 1")):
        with pytest.raises(OptionError, match=f"n={value}: expected a whole number {allowed}"):
            Bounds(1, 64).check("n", value)
