"""Two runs of the same items: differences, intervals, exact tests, flips, by hand and against slow twins."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import operator
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.cli.show import to_json
from selectrie.errors import InputFileError, OptionError
from selectrie.evaluation.comparison import KL_DIVERGENCE, compare, comparison_dict, kl_divergence, with_texts
from selectrie.evaluation.metrics import METRICS, ChoiceLoglikelihood, Item, ItemRecord, find_metrics
from selectrie.evaluation.report.formats import FORMATS
from selectrie.evaluation.results import Evaluation, TaskResult
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
    one, divergence = found.differences
    assert (one.first, one.second, one.p) == (3 / 6, 4 / 6, 1.0)
    assert one.difference == pytest.approx(1 / 6)
    # Right is (-1, -2) and wrong (-3, -1): their shares are s(1) and s(-2), s the logistic function.
    right, wrong = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(2))
    far = [p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)) for p, q in [(right, wrong), (wrong, right)]]
    assert (divergence.metric, divergence.first, divergence.p) == (KL_DIVERGENCE, 0, None)
    assert divergence.second == divergence.difference == pytest.approx((far[0] + 2 * far[1]) / 6)
    assert [(flip.index, flip.first, flip.second) for flip in found.gained] == [(3, 1, 0), (4, 1, 0)]
    assert [(flip.index, flip.first, flip.second) for flip in found.lost] == [(2, 0, 1)]
    assert (found.lost[0].margin_first, found.lost[0].margin_second) == (1.0, 2.0)


def test_a_clear_difference_is_seen():
    """Ten flips in one direction: p is 2 / 2^10, and the interval leaves 0 out."""
    one, _ = both("a" * 10 + "A" * 10, "A" * 20).differences
    assert one.p == 2 / 2**10
    assert one.interval.low > 0


def test_a_run_is_like_itself():
    """No difference, p is 1, nothing flips."""
    found = both("AaAa", "AaAa", ("acc", "brier", "log_likelihood"))
    assert [one.difference for one in found.differences] == [0.0] * 4
    assert [one.p for one in found.differences] == [1.0, None, None, None]
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
    one, _ = compare(first, second)[0].differences
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
    assert [one.metric for one in compare(run, run)[0].differences] == [*METRICS, KL_DIVERGENCE]


@settings(max_examples=n_examples(20))
@given(st.text("aA", min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_test_is_that_of_all_ways_to_swap_the_runs(first, random):
    """McNemar's p-value is the share of swaps, item by item, that make the runs differ as much: enumerated."""
    second = "".join(random.choice("aA") for _ in first)
    one, _ = both(first, second).differences
    signs = [int(b.isupper()) - int(a.isupper()) for a, b in zip(first, second, strict=True)]
    swaps = list(itertools.product((-1, 1), repeat=len(signs)))
    as_far = [abs(sum(map(operator.mul, signs, swap))) >= abs(sum(signs)) for swap in swaps]
    assert one.p == pytest.approx(sum(as_far) / len(swaps))


@pytest.mark.parametrize(
    ("first", "second", "nats"),
    [
        ([-1.0, -2.0], [-11.0, -12.0], 0.0),
        ([math.log(0.5), math.log(0.5)], [math.log(0.25), math.log(0.75)], 0.5 * math.log(2) + 0.5 * math.log(2 / 3)),
        ([0.0, -math.inf], [math.log(0.25), math.log(0.75)], math.log(4)),
        ([-1.0, -1.0], [-1.0, -math.inf], math.inf),
        ([-math.inf, -math.inf], [-3.0, -3.0], 0.0),
        ([-5.0, -1005.0], [-1005.0, -5.0], 1000.0),
    ],
)
def test_divergences_by_hand(first, second, nats):
    """Sums of any size count by their shares; what only the second run excludes is infinite; no probability underflows."""
    assert kl_divergence(np.array(first), np.array(second)) == pytest.approx(nats)


SUMS = st.lists(st.floats(-30, 0), min_size=2, max_size=5)


@settings(max_examples=n_examples(30))
@given(
    SUMS.flatmap(lambda one: st.tuples(st.just(one), st.lists(st.floats(-30, 0), min_size=len(one), max_size=len(one))))
)
def test_a_divergence_is_its_sum(sums):
    """Against the definition over probabilities, with exact fractions of a sum; never below 0, and 0 of a run from itself."""
    first, second = map(np.array, sums)
    p, q = (np.exp(one) / math.fsum(np.exp(one)) for one in (first, second))
    twin = math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert kl_divergence(first, second) == pytest.approx(twin, abs=1e-12)
    assert kl_divergence(first, second) >= 0
    assert kl_divergence(first, first) == 0


def test_each_run_is_compared_with_the_first():
    """As if there were only the two, task by task; items of one choice have no divergence."""
    texts = ("AAaa", "AaAa", "aaaa")
    runs = [evaluation([record(i, RIGHT if c.isupper() else WRONG) for i, c in enumerate(text)]) for text in texts]
    pairs = [compare(runs[0], runs[1])[0], replace(compare(runs[0], runs[2])[0], run=2)]
    assert list(compare(*runs)) == pairs
    assert [one.run for one in compare(*runs)] == [1, 2]
    fields = comparison_dict(compare(*runs), ("a", "b", "c"))
    assert (fields["runs"], [one["run"] for one in fields["tasks"]]) == (["a", "b", "c"], [1, 2])
    single = evaluation([record(0, (-1.0,))], ("log_likelihood",))
    assert [one.metric for one in compare(single, single)[0].differences] == ["log_likelihood"]


def test_flips_have_their_texts():
    """The context and the choices of the item at their place; of a task whose items are unknown none."""
    found = compare(evaluation([record(0, WRONG), record(1, RIGHT)]), evaluation([record(0, RIGHT), record(1, WRONG)]))
    assert found[0].gained[0].context is None
    items = [Item("one", ("yes", "no"), (0,), shared="before"), Item("", ("x", "y"), (0,), contexts=("two a", "two b"))]
    (known,) = with_texts(found, {"task": items})
    assert [(flip.context, flip.choices) for flip in (*known.gained, *known.lost)] == [
        ("one", ("yes", "no")),
        ("two a", ("x", "y")),
    ]
    assert with_texts(found, {}) == found


NAMES = ("a|b", "runs/c_d%", "e\\f")
ODD = "x | y\n& _z_ <b> $1$ 'q' \\ # `c`"


def compared():
    """Three runs of odd names whose items have odd texts."""
    texts = ("Aaa", "aAa", "aAA")
    runs = [
        evaluation([record(i, RIGHT if c.isupper() else WRONG, name=f"{ODD}{i}") for i, c in enumerate(text)])
        for text in texts
    ]
    return comparison_dict(
        with_texts(compare(*runs), {"task": [Item(ODD, (ODD, "no"), (0,)) for _ in range(3)]}), NAMES
    )


def test_a_csv_file_has_every_figure_in_full():
    """Read back it is what the JSON has."""
    fields = compared()
    lines = list(csv.DictReader(io.StringIO(FORMATS["csv"](fields, 10))))
    figures = [(task, one) for task in fields["tasks"] for one in task["differences"]]
    assert len(lines) == len(figures) == 4
    for line, (task, one) in zip(lines, figures, strict=True):
        assert (line["task"], line["metric"], line["run"]) == ("task", one["metric"], NAMES[task["run"]])
        numbers = (one["first"], one["second"], one["difference"], *one["interval"].values())
        assert [float(line[name]) for name in ("first", "value", "difference", "low", "high")] == list(numbers)
        assert line["p"] == ("" if one["p"] is None else str(one["p"]))


def test_a_markdown_file_has_tables_whose_texts_are_texts():
    """As many cells in each row as heads, whatever the texts; flips up to the number that was asked."""
    text = FORMATS["markdown"](compared(), 1)
    tables = [re.findall(r"^\|.*\|$", part, re.MULTILINE) for part in text.split("\n\n")]
    for table in filter(None, tables):
        cells = [re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1] for line in table]
        assert len({len(row) for row in cells}) == 1
    assert [len(table) for table in tables if table] == [6, 3, 3]
    assert r"x \| y \& \_z\_ \<b\> \$1\$ 'q' \\ \# \`c\`" in text
    assert "right in this run alone 1, in the first alone 1" in text
    assert FORMATS["markdown"](compared(), 0).count("\n| --- ") == 1


def test_a_latex_file_is_a_table():
    """Each line has as many cells as columns, and no character of LaTeX is left bare."""
    lines = FORMATS["latex"](compared(), 10).splitlines()
    assert lines[0] == "% first: a|b"
    rows = [line for line in lines if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {8}
    assert lines[1] == r"\begin{tabular}{lllrrrrrr}"
    assert r"runs/c\_d\%" in lines[4]
    assert "e" + r"\textbackslash{}f" in lines[6]


def test_an_svg_file_is_the_chart_of_accuracies():
    """Well formed, of its own, with a row for each; a figure that is no proportion has none."""
    root = ET.fromstring(FORMATS["svg"](compared(), 10))  # noqa: S314 - written here
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert [title.split(", difference ")[0] for title in titles[1:]] == [f"task acc {name}" for name in NAMES[1:]]
    run = evaluation([record(0, RIGHT)], ("brier",))
    with pytest.raises(OptionError, match="a metric that is a proportion"):
        FORMATS["svg"](comparison_dict(compare(run, run), ("a", "b")), 10)


def test_what_is_no_run_is_refused():
    """A folder without results, other values, and one run alone."""
    run = evaluation([record(0, RIGHT)])
    with pytest.raises(InputFileError, match="runs/nowhere"):
        compare("runs/nowhere", run)
    with pytest.raises(OptionError, match=r"runs=7.*folder of a finished run"):
        compare(run, 7)
    with pytest.raises(OptionError, match="two runs or more"):
        compare(run)
