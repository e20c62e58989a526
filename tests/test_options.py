"""Options of a request: what each record refuses, and that records are values."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest

from selectrie.errors import ChoiceError, OptionError
from selectrie.options import Prompting, Rule, Search
from selectrie.scoring import log_priors

NO_TEXT = (3, b"a", True, ["a"])
NO_COUNT = (0, -1, 1.0, nan, True, "1", [1])
NO_PROBABILITY = (0, 0.0, -0.0, -0.5, 1.0000001, 2, nan, inf, -inf, True, False, "0.5", "x", None, [0.5], 0.5j)
REFUSED = {
    (Search, "method"): (None, "", "Exhaustive", True, 3, ["auto"], np.array(["auto", "auto"])),
    (Search, "stop"): (None, "k-best", 3, {"best"}),
    (Search, "k"): (None, *NO_COUNT),
    (Search, "width"): (None, *NO_COUNT),
    (Search, "budget_nodes"): NO_COUNT,
    (Search, "mass"): NO_PROBABILITY,
    (Search, "on_progress"): (3, "print", True),
    (Prompting, "boundary"): (None, "Heal", 3, ["heal"]),
    (Prompting, "truncate"): (None, True, False, "right", 3),
    (Prompting, "delimiter"): (None, *NO_TEXT),
    (Prompting, "assistant_prefix"): (None, *NO_TEXT),
    (Prompting, "system"): NO_TEXT,
    (Prompting, "template_args"): (None, "ab", 3, [("a", 1)], {3: "a"}, {None: 1}),
    (Prompting, "parse_special"): (None, 0, 1, "yes", np.True_),
    (Rule, "name"): (None, "Joint", 3, ["joint"], Rule()),
}
ACCEPTED = (
    Search(method="best_first", k=2, stop="mass", mass=1, budget_nodes=1, width=1, on_progress=max),
    Search(mass=5e-324),
    Prompting("harness", "", "left", "", "", {"a": [1], "": None}, parse_special=True),
    Prompting(system="Be brief.", template_args={"enable_thinking": False}),
    Rule("pmi", premise=""),
    Rule("calibrated", content_free=("", "N/A")),
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
        Rule("pmi", premise=value)


@pytest.mark.parametrize("value", ["abc", b"abc", "", None, 3, {"a": 1}, {"a"}, iter(["a"])])
def test_one_text_is_no_list_of_content_free_prompts(value):
    """A str would become a prompt for each of its letters; sets and iterators have no order, or no length."""
    with pytest.raises(OptionError, match="content_free"):
        Rule("calibrated", content_free=value)


def test_content_free_prompts_are_texts():
    """The error names the place of the one that is not."""
    with pytest.raises(OptionError, match=r"content_free\[1\]=3"):
        Rule("calibrated", content_free=["N/A", 3])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rule("calibrated"),
        lambda: Rule("calibrated", content_free=[]),
        lambda: Rule(premise="N/A"),
        lambda: Rule("pmi", content_free=["N/A"]),
    ],
)
def test_texts_of_another_rule_are_refused(make):
    """A text that no rule would read is a mistake; so is a rule without its texts."""
    with pytest.raises(OptionError, match=r"content_free|premise"):
        make()


def test_any_sequence_of_prompts_becomes_a_tuple():
    """A list given to a rule cannot change it afterwards."""
    prompts = ["N/A", ""]
    rule = Rule("calibrated", content_free=prompts)
    prompts.append("x")
    assert rule.content_free == ("N/A", "")
    assert rule == Rule("calibrated", content_free=("N/A", ""))


def test_template_arguments_are_copied_and_read_only():
    """The caller's mapping can change without changing the record, and the record's cannot."""
    given = {"a": 1}
    prompting = Prompting(template_args=given)
    given["a"] = 2
    assert prompting.template_args == {"a": 1}
    with pytest.raises(TypeError, match="item assignment"):
        prompting.template_args["a"] = 3


@pytest.mark.parametrize("record", [Search(), Prompting(), Rule(), *ACCEPTED], ids=repr)
def test_records_are_values(record):
    """Copied, pickled or replaced they are equal, with one hash."""
    for same in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record)), replace(record)):  # noqa: S301
        assert same == record
        assert hash(same) == hash(record)


def test_records_differ_in_every_field():
    """Equality sees template arguments too, though their hash does not."""
    assert Prompting(template_args={"a": 1}) != Prompting(template_args={"a": 2})
    assert len({Prompting(delimiter="a"), Prompting(delimiter="b"), Prompting(delimiter="a")}) == 2


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
