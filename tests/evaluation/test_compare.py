"""Two runs of the same items: differences, intervals, exact tests, flips, by hand and against slow twins."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.cli.show import to_json
from selectrie.errors import OptionError
from selectrie.evaluation.items import ChoiceLoglikelihood, ItemRecord
from selectrie.evaluation.metrics import METRICS, find_metrics
from selectrie.evaluation.results import Evaluation, TaskResult, compare, comparison_dict
from tests.support.n_examples import n_examples


def record(index, logps, *, gold=(0,), name="", problem=None):
    """A record of choices with these log-probabilities, each a character long."""
    choices = tuple(ChoiceLoglikelihood(logp, 1, 1, 1, is_greedy=False, n_words=1) for logp in logps)
    return ItemRecord("task", index, name or f"item-{index}", "", gold, () if problem else choices, 0, problem)


def evaluation(records, metrics=("acc",), task="task"):
    """A run of one task."""
    return Evaluation((TaskResult.of(task, records, find_metrics(metrics)),), 1, 1, {"model": "fake"})


RIGHT, WRONG = (-1.0, -2.0), (-3.0, -1.0)


def both(first, second, metrics=("acc",)):
    """What is found of two runs whose items are right where a letter is upper case."""
    runs = [[record(i, RIGHT if c.isupper() else WRONG) for i, c in enumerate(text)] for text in (first, second)]
    return compare(*(evaluation(records, metrics) for records in runs))[0]


def test_a_comparison_by_hand():
    """Of six items two are right in the second alone and one in the first alone: p is 2 (C(3,0) + C(3,1)) / 2^3 = 1."""
    found = both("AAAaaa", "AAaAAa")
    assert (found.n, found.n_left_out) == (6, 0)
    (one,) = found.differences
    assert (one.first, one.second, one.p) == (3 / 6, 4 / 6, 1.0)
    assert one.difference == pytest.approx(1 / 6)
    assert [(flip.index, flip.first, flip.second) for flip in found.gained] == [(3, 1, 0), (4, 1, 0)]
    assert [(flip.index, flip.first, flip.second) for flip in found.lost] == [(2, 0, 1)]
    assert (found.lost[0].margin_first, found.lost[0].margin_second) == (1.0, 2.0)


def test_a_clear_difference_is_seen():
    """Ten flips in one direction: p is 2 / 2^10, and the interval leaves 0 out."""
    (one,) = both("a" * 10 + "A" * 10, "A" * 20).differences
    assert one.p == 2 / 2**10
    assert one.interval.low > 0


def test_a_run_is_like_itself():
    """No difference, p is 1, nothing flips."""
    found = both("AaAa", "AaAa", ("acc", "brier", "log_likelihood"))
    assert [one.difference for one in found.differences] == [0.0] * 3
    assert [one.p for one in found.differences] == [1.0, None, None]
    assert all(one.interval.low == one.interval.high == 0 for one in found.differences)
    assert found.gained == found.lost == ()


LOGPS = st.lists(st.floats(-30, 0), min_size=3, max_size=3)
ITEMS = st.lists(st.tuples(LOGPS, LOGPS, st.integers(0, 2)), min_size=1, max_size=12)


@settings(max_examples=n_examples(25))
@given(ITEMS)
def test_flips_and_figures_agree(items):
    """The difference of accuracies is what is gained less what is lost, over n; turned round, everything changes its sign."""
    first = evaluation([record(i, a, gold=(gold,)) for i, (a, _, gold) in enumerate(items)])
    second = evaluation([record(i, b, gold=(gold,)) for i, (_, b, gold) in enumerate(items)])
    (found,), (back,) = compare(first, second), compare(second, first)
    n = len(items)
    assert found.differences[0].difference == pytest.approx((len(found.gained) - len(found.lost)) / n)
    assert [flip.index for flip in found.gained] == [flip.index for flip in back.lost]
    assert back.differences[0].difference == -found.differences[0].difference
    assert back.differences[0].p == found.differences[0].p
    slow = [int(np.argmax(b) == gold) - int(np.argmax(a) == gold) for a, b, gold in items]
    assert found.differences[0].difference == pytest.approx(np.mean(slow))
    low, high = found.differences[0].interval.low, found.differences[0].interval.high
    assert -1 <= low <= high <= 1


def test_the_interval_is_of_paired_draws():
    """Two runs whose items move together differ by a constant, whatever is drawn: the interval is a point."""
    rng = np.random.default_rng(0)
    logps = rng.normal(-5, 3, size=(30, 2))
    first = evaluation([record(i, row) for i, row in enumerate(logps)], ("log_likelihood",))
    second = evaluation([record(i, row - 0.5) for i, row in enumerate(logps)], ("log_likelihood",))
    (one,) = compare(first, second)[0].differences
    assert one.interval.low == pytest.approx(-0.5)
    assert one.interval.high == pytest.approx(-0.5)
    assert one.p is None


def test_items_that_one_run_did_not_measure_are_left_out():
    """A problem in either run, or a shorter run, leaves items out, and they are counted."""
    first = [record(0, RIGHT), record(1, RIGHT, problem="too long"), record(2, WRONG), record(3, RIGHT)]
    second = [record(0, WRONG), record(1, RIGHT), record(2, WRONG, problem="too long")]
    found = compare(evaluation(first), evaluation(second))[0]
    assert (found.n, found.n_left_out) == (1, 3)
    assert [flip.index for flip in found.lost] == [0]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ([record(0, RIGHT, name="other")], "'item-0' and 'other'"),
        ([record(0, RIGHT, gold=(1,))], "the same items in both"),
        ([record(7, RIGHT)], "there are none"),
        ([record(0, RIGHT, problem="too long")], "there are none"),
    ],
)
def test_other_items_are_refused(second, said):
    """An item of another id or another answer, and runs without an item that both measured."""
    with pytest.raises(OptionError, match=said):
        compare(evaluation([record(0, RIGHT)]), evaluation(second))


def test_other_tasks_and_metrics_are_refused():
    """There must be a task in common, and a metric of it."""
    one = [record(0, RIGHT)]
    with pytest.raises(OptionError, match="a task in common"):
        compare(evaluation(one), evaluation([replace(one[0], task="other")], task="other"))
    with pytest.raises(OptionError, match="a metric in common"):
        compare(evaluation(one, ("acc",)), evaluation(one, ("brier",)))


def test_what_is_no_number_is_null_in_json():
    """A choice that the model excludes makes figures of infinite size; the JSON stays JSON."""
    first = evaluation([record(0, (-1.0, -math.inf)), record(1, RIGHT)], ("log_likelihood", "perplexity"))
    second = evaluation([record(0, (-math.inf, -1.0)), record(1, RIGHT)], ("log_likelihood", "perplexity"))
    fields = comparison_dict(compare(first, second))
    (task,) = json.loads(to_json(fields))["tasks"]
    assert task["differences"][0]["second"] is None
    assert task["lost"][0]["margin_first"] is None
    assert fields["kind"] == "comparison"


def test_every_metric_can_be_compared():
    """No metric of the list is a special case."""
    columns = {"logp_unconditional": -1.0, "logp_premise": -1.5, "logp_content_free": (-1.0, -2.0)}
    records = [
        replace(one, choices=tuple(replace(choice, **columns) for choice in one.choices))
        for one in (record(0, RIGHT), record(1, WRONG), record(2, RIGHT))
    ]
    run = evaluation(records, tuple(METRICS))
    assert [one.metric for one in compare(run, run)[0].differences] == list(METRICS)
