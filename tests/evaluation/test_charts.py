"""Charts of figures: where their marks lie, what they say in words, and that SVG and matplotlib draw the same."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from itertools import pairwise
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import MissingExtraError, OptionError
from selectrie.evaluation import compare
from selectrie.evaluation.label_report import compare_labelled, rescaled
from selectrie.evaluation.metrics import CalibrationBin, ChoiceLoglikelihood, ItemRecord, find_metrics
from selectrie.evaluation.report.charts import (
    MAX_DOTS,
    MAX_ITEMS,
    MAX_STEPS,
    Axis,
    Row,
    draw_histogram,
    draw_pairs,
    draw_reliability,
    draw_risk,
    draw_rows,
    rate,
    round_up,
)
from selectrie.evaluation.results import Evaluation, TaskResult
from selectrie.results.drawing.shapes import to_svg
from tests.decide.test_label_calibration import drawn, labelled

ROW_AXIS = Axis(0, 1, 228, 524)


def record(index, logps, *, gold=(0,), subset=""):
    """A record of choices with these log-probabilities."""
    choices = tuple(ChoiceLoglikelihood(float(logp), 1, 1, 1, is_greedy=False, n_words=1) for logp in logps)
    return ItemRecord("task", index, f"q{index}", subset, gold, choices, 0)


def run(seed, n=30, n_choices=3, metrics=("acc", "brier")):
    """A run of one task with two subsets."""
    rng = np.random.default_rng(seed)
    records = [record(i, rng.normal(-4, 2, n_choices), subset="ab"[i % 2]) for i in range(n)]
    return Evaluation((TaskResult.of("task", records, find_metrics(metrics)),), 1, 1, {"tolerance": 0.3})


def report(seed=1):
    """A report on answers before and after something that moved them."""
    p, gold = drawn(seed, 40)
    answers = labelled(p, gold)
    return compare_labelled(answers, rescaled(answers, p**2 / (p**2).sum(axis=1, keepdims=True)))


@pytest.fixture(scope="module")
def drawings():
    """Every picture of a run, a comparison and a report, by its name."""
    one = run(1)
    (both,) = compare(one, run(2))
    made = {"accuracy": one.draw()}
    for result, names in (
        (one["task"], ("reliability", "margins", "subsets")),
        (both, ("differences", "accuracies", "probabilities")),
        (report(), ("reliability", "calibrated", "risk")),
    ):
        made |= {f"{type(result).__name__} {name}": result.draw(name) for name in names}
    return made


def flat(shapes):
    """All shapes, depth first."""
    for one in shapes:
        yield one
        yield from flat(one.children)


def circles(drawing, name):
    """Centre and classes of the dots of groups, without those of the legend."""
    groups = [one for one in drawing.shapes if one.tag == "g"]
    return [
        (float(one.attributes["cx"]), float(one.attributes["cy"]), one.attributes["class"])
        for one in flat(groups)
        if one.tag == "circle" and name in one.attributes["class"]
    ]


def test_the_svg_has_the_shapes(drawings):
    """Element by element; each group says on hover what a line of the outline says."""
    for name, drawing in drawings.items():
        root = fromstring(to_svg(drawing, is_styled=False))  # noqa: S314 - our own
        elements = [(one.tag.rpartition("}")[2], one.attrib, one.text or "") for one in [*root.iter()][1:]]
        assert elements == [(one.tag, dict(one.attributes), one.text) for one in flat(drawing.shapes)], name
        assert drawing.title, name
        assert drawing.outline, name
        hovered = [one.children[0].text for one in drawing.shapes if one.tag == "g"]
        said = [one.words for one in drawing.outline if one.label != "mean"]
        assert sorted(hovered) == sorted(said), name


def test_nothing_leaves_a_chart(drawings):
    """Dots, corners of bars and ends of lines lie in the frame; estimates of the widths of texts do too."""
    for name, drawing in drawings.items():
        for one in flat(drawing.shapes):
            at = one.attributes
            xs = [float(at[key]) for key in ("x", "cx") if key in at]
            ys = [float(at[key]) for key in ("y", "cy") if key in at]
            if one.tag == "rect":
                xs, ys = [*xs, xs[0] + float(at["width"])], [*ys, ys[0] + float(at["height"])]
            for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", at.get("d", "")):
                xs, ys = [*xs, float(x)], [*ys, float(y)]
            assert all(0 <= x <= drawing.width for x in xs), name
            assert all(0 <= y <= drawing.height for y in ys), name


@pytest.mark.parametrize("name", ["task", "comparison", "report"])
def test_matplotlib_draws_the_same(name):
    """The same texts at the same places, and as many patches as there are shapes."""
    pytest.importorskip("matplotlib")
    results = {"task": run(1)["task"], "comparison": compare(run(1), run(2))[0], "report": report()}
    pictures = {"task": "reliability", "comparison": "probabilities", "report": "risk"}
    result, picture = results[name], pictures[name]
    axes, seen = result.plot(picture), [*flat(result.draw(picture).shapes)]
    texts = [(float(one.attributes["x"]), float(one.attributes["y"]), one.text) for one in seen if one.tag == "text"]
    assert [(*one.get_position(), one.get_text()) for one in axes.texts] == texts
    assert len(axes.patches) == sum(one.tag in ("rect", "path", "circle") for one in seen)
    dots = [one for one in axes.patches if type(one).__name__ == "Circle"]
    wanted = [tuple(float(one.attributes[key]) for key in ("cx", "cy", "r")) for one in seen if one.tag == "circle"]
    assert [(*one.center, one.radius) for one in dots] == wanted
    assert all(one.get_facecolor()[2] > 0.7 for one in dots)  # blue, of the style sheet


def test_a_picture_that_there_is_not_is_refused(monkeypatch):
    """The error names those that there are."""
    pytest.importorskip("matplotlib")
    single = run(1, n_choices=1, metrics=("log_likelihood",))
    with pytest.raises(OptionError, match=r"picture='margin': expected one of .*; did you mean 'margins'"):
        run(1)["task"].plot("margin")
    with pytest.raises(
        OptionError, match="picture='calibrated': expected one of 'reliability', 'risk' for this result"
    ):
        replace(report(), after=None).plot("calibrated")
    with pytest.raises(OptionError, match="picture='differences': expected a result with choices or accuracies"):
        compare(single, single)[0].plot()
    with pytest.raises(OptionError, match="picture='accuracy': expected a result with choices or accuracies"):
        single.plot()
    with pytest.raises(OptionError, match="picture='accuracies': expected one of 'differences' for this result"):
        replace(compare(run(1), run(2))[0], pairs=()).plot("accuracies")
    with pytest.raises(OptionError, match="axes of matplotlib"):
        run(1).plot(ax=3)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="needs the extra 'plot'"):
        run(1).plot()


SHARES = st.floats(0, 1)


@settings(max_examples=50)
@given(rows=st.lists(st.tuples(st.text(max_size=60), SHARES, SHARES, SHARES, st.none() | SHARES), max_size=9))
def test_rows_of_intervals(rows):
    """Their order is kept, whiskers hold the dot, and it is hollow where the reference value lies between their ends."""
    made = [Row(label, sorted(shares)[1], min(shares), max(shares), "words", mark) for label, *shares, mark in rows]
    drawing = draw_rows("title", made, ROW_AXIS, "value", "guessing at random")
    dots = circles(drawing, "dot")
    assert len(dots) == len(drawing.outline) == len(made)
    assert all(a[1] < b[1] for a, b in pairwise(dots))
    groups = [one for one in drawing.shapes if one.tag == "g"]
    for group, (x, _, names), row, item in zip(groups, dots, made, drawing.outline, strict=True):
        whisker = next(one for one in group.children if one.attributes.get("class") == "sel-line sel-win sel-thick")
        low, high = map(float, re.findall(r"[ML]([\d.]+)", whisker.attributes["d"]))
        assert ROW_AXIS.start <= low <= x <= high <= ROW_AXIS.end
        assert x == pytest.approx(ROW_AXIS(row.value), abs=0.01)
        is_within = row.mark is not None and row.low <= row.mark <= row.high
        assert ("hollow" in names) == is_within == ("guessing at random lies within the interval" in item.marks)


def test_subsets_go_from_the_best_to_the_worst():
    """One of which no item was measured is not among them."""
    right, wrong = (0, -1), (-1, 0)
    records = [
        record(i, logps, subset=name)
        for i, (name, logps) in enumerate(zip("aabbc", [right, wrong, right, right, wrong], strict=True))
    ]
    missing = [replace(record(i, (), subset=name), problem="too long") for i, name in enumerate("xyz", 5)]
    for order in ([*records, *missing], [*missing, *records], [*records[:2], *missing, *records[2:]]):
        drawing = TaskResult.of("task", order, find_metrics(["acc"])).draw("subsets")
        assert [(one.label, one.numbers[0][1]) for one in drawing.outline] == [("b", 1.0), ("a", 0.5), ("c", 0.0)]


def test_subsets_have_the_first_metric_that_is_known():
    """Where one is NaN everywhere, as of items without one right choice, the next is drawn."""
    task = run(1, metrics=("acc", "acc_norm"))["task"]
    unknown = replace(
        task.figures, metrics={**task.figures.metrics, "acc": replace(task.figures.metrics["acc"], value=math.nan)}
    )
    drawing = replace(task, figures=unknown).draw("subsets")
    assert drawing.title == "acc_norm of the subsets of task"


def test_a_long_label_keeps_both_ends():
    """Tasks and subsets often differ at their end; the whole one shows on hover."""
    label = "mmlu_high_school_european_history acc_mutual_info"
    drawing = draw_rows("title", [Row(label, 0.5, 0.4, 0.6, "words")], ROW_AXIS, "value", "")
    [shown] = [one.text for one in flat(drawing.shapes) if one.tag == "text" and "…" in one.text]
    start, end = shown.split("…")
    assert label.startswith(start)
    assert label.endswith(end)
    assert 20 < len(shown) <= 28
    assert any(one.tag == "title" and one.text.startswith(label) for one in flat(drawing.shapes))


@settings(max_examples=50)
@given(bins=st.lists(st.tuples(SHARES, SHARES, st.integers(0, 10**6)), min_size=10, max_size=10))
def test_a_dot_for_each_bin_with_items(bins):
    """At its confidence and accuracy, growing with its items; nothing is drawn without any."""
    made = [CalibrationBin(i / 10, (i + 1) / 10, n, c, a) for i, (c, a, n) in enumerate(bins)]
    drawing = draw_reliability("title", made, 0.1)
    found = [one for one in made if one.n]
    assert (drawing is None) == (not found)
    if drawing is None:
        return
    assert "0.100" in drawing.title
    for (x, y, _), one in zip(circles(drawing, "sheer"), found, strict=True):
        assert (x, y) == pytest.approx((52 + 280 * one.confidence, 304 - 280 * one.accuracy), abs=0.01)
    radius = [
        float(one.attributes["r"]) for g in drawing.shapes if g.tag == "g" for one in g.children if one.tag == "circle"
    ]
    assert np.all(np.diff(np.array(radius)[np.argsort([one.n for one in found])]) >= 0)


@settings(max_examples=50)
@given(values=st.lists(st.floats(-1, 40), min_size=1, max_size=40), data=st.data())
def test_a_histogram_counts_each_item_once(values, data):
    """Right and wrong of all columns together; heights of bars are in proportion."""
    right = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    drawing = draw_histogram("title", "x", np.array(values), right, Axis(0, 10, 52, 332, lambda one: f"{one:g}"))
    counts = [{name: value for name, value, _ in one.numbers} for one in drawing.outline]
    assert sum(one["right"] for one in counts) == right.sum()
    assert sum(one["wrong"] for one in counts) == (~right).sum()
    heights = [
        [float(bar.attributes["height"]) for bar in g.children if bar.tag == "rect"]
        for g in drawing.shapes
        if g.tag == "g"
    ]
    scale = max(sum(one) for one in heights) / max(one["right"] + one["wrong"] for one in counts)
    for (a, b), one in zip(heights, counts, strict=True):
        assert (a, b) == pytest.approx((one["right"] * scale, one["wrong"] * scale), abs=0.05)


def test_curves_of_risk():
    """Both begin and end at their points, thinned if there are many; the outline has the risk at each coverage."""
    found = report()
    drawing = draw_risk("title", found.figures, (1.0, 0.5))
    assert [one.label for one in drawing.outline] == ["as it is", "calibrated"]
    for item, figures in zip(drawing.outline, found.figures.values(), strict=True):
        assert [one.numbers[0][1] for one in item.children] == [figures.risk_at(1.0), figures.risk_at(0.5)]
    many = replace(found.before, coverage=np.arange(1, 5001) / 5000, risk=np.linspace(0, 0.4, 5000))
    drawing = draw_risk("title", {"as it is": many}, ())
    [curve] = [one.children[1].attributes["d"] for one in drawing.shapes if one.tag == "g"]
    points = re.findall(r"([\d.]+) ([\d.]+)", curve)
    assert len(points) == MAX_STEPS
    assert points[-1] == ("332", "24")


def test_pairs_of_runs():
    """Dots are above the diagonal where the second run has more; triangles say who is right; many are counted."""
    shares = np.array([[0.9, 0.2], [0.2, 0.9], [0.3, 0.4], [0.84, 0.6]])
    pairs = [tuple(record(i, np.log([p, 1 - p])) for p in both) for i, both in enumerate(shares)]
    drawing = draw_pairs("title", pairs, "second", 0.3)
    assert [(x, y) for x, y, _ in circles(drawing, "sheer")] == [
        (pytest.approx(52 + 280 * a), pytest.approx(304 - 280 * b)) for a, b in shares[2:]
    ]
    marks = [one.children[1].attributes["class"] for one in drawing.shapes if one.tag == "g"]
    assert marks[2:] == ["sel-dot sel-alt", "sel-dot sel-win"]
    assert "higher in the second run for 2 items, lower for 2" in drawing.title
    assert [one.words for one in drawing.outline[:4]] == [
        "mean, first ≈ 60 %, second ≈ 50 %",
        "q0, first ≈ 90 %, second ≈ 20 %, right in the first run alone",
        "q1, first ≈ 20 %, second ≈ 90 %, right in the second run alone",
        "q3, first ≈ 80 %, second ≈ 60 %",
    ]
    many = draw_pairs("title", pairs * 800, "second", 0.3)
    assert sum(one.tag == "g" for one in many.shapes) == MAX_DOTS
    assert "3 000 of 3 200 are drawn" in many.title
    assert (len(many.outline), many.outline[-1].label) == (MAX_ITEMS + 2, "3 000 items more")
    assert draw_pairs("title", [(record(0, [-1]),) * 2], "second", 0.3) is None


@given(SHARES)
def test_shares_of_items(share):
    """One decimal, and never all or none where it is not."""
    words = rate(share)
    assert (words in ("0.0 %", "100.0 %")) == (share in (0, 1))
    assert float(words.strip("<> %")) == pytest.approx(100 * share, abs=0.1)


def test_values_beyond_an_axis_lie_on_its_edge():
    """A picture never leaves its frame."""
    axis = Axis(0, 1, 100, 200)
    assert [axis(value) for value in (-1, 0, 0.25, 1, 9)] == [100, 100, 125, 200, 200]
    assert axis.ticks == [0, 0.25, 0.5, 0.75, 1]


@given(st.floats(1e-6, 1e6))
def test_axes_end_on_a_round_number(value):
    """Not below the value, and less than twice as large."""
    found = round_up(value)
    assert value * (1 - 1e-6) <= found <= 2 * value * (1 + 1e-6)
    assert f"{found:.6e}".split("e")[0].rstrip("0").rstrip(".") in {"1", "2", "3", "4", "5", "6", "8"}
