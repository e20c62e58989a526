"""Pages of evaluations: one file, nothing fetched, nothing run, everything said in words, and every text only a text."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.evaluation.comparison import compare, comparison_dict, with_texts
from selectrie.evaluation.metrics import METRICS, ChoiceLoglikelihood, Item, ItemRecord, find_metrics
from selectrie.evaluation.report import charts
from selectrie.evaluation.report.charts import Axis, ChartDescription, Row
from selectrie.evaluation.report.html import MAX_PROBLEMS, comparison_page, evaluation_page
from selectrie.evaluation.results import Evaluation, TaskResult
from tests.support.html_pages import EVIL, Reader, assert_fetches_nothing, assert_pictures_have_words
from tests.support.n_examples import n_examples


def record(index, logps, *, gold=(0,), name="", subset="", problem=None):
    """A record of choices with these log-probabilities."""
    choices = tuple(ChoiceLoglikelihood(logp, 2, 4, 4, is_greedy=False, n_words=1) for logp in logps)
    return ItemRecord("task", index, name, subset, gold, () if problem else choices, 0, problem)


def evaluation(records, metrics=("acc", "brier"), task="task"):
    """A run of one task."""
    return Evaluation(
        (TaskResult.of(task, records, find_metrics(metrics)),),
        30,
        90,
        {"model": "fake.gguf", "build": "b <1>", "tolerance": 0.5},
    )


@pytest.fixture(scope="module")
def run():
    """Twelve items of two subsets, one of which could not be measured."""
    rng = np.random.default_rng(1)
    records = [record(i, rng.normal(-4, 2, 3), subset="ab"[i % 2], name=f"q{i}") for i in range(11)]
    return evaluation([*records, record(11, (), subset="a", name="q11", problem="too long: 9 tokens, room for 8")])


def pages_of(run, other):
    """Both kinds of page."""
    return [evaluation_page(run), comparison_page(comparison_dict(compare(run, other), ("x", "y")), (run, other))]


def mirrored(run):
    """A run whose choices are the other way round."""
    records = [replace(one, choices=one.choices[::-1]) for one in run.tasks[0].records]
    return evaluation(records, task=run.tasks[0].task)


def test_nothing_is_fetched_and_nothing_is_run(run):
    """No script, no style sheet, no picture, no font, no address of anything."""
    for page in pages_of(run, mirrored(run)):
        assert_fetches_nothing(page)


def test_every_picture_says_what_it_shows(run):
    """A title and a description for each, the numbers of the reliability diagram as a table, and a language and a title for the page."""
    for page in pages_of(run, mirrored(run)):
        assert_pictures_have_words(page)
    assert "<caption>Bins</caption>" in pages_of(run, mirrored(run))[0]


def test_tables_have_heads_for_rows_and_columns(run):
    """Every row begins with a cell that names it, every column has one above."""
    for page in pages_of(run, mirrored(run)):
        for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
            assert table.count("<caption>") == 1
            head, body = table.split("<tbody>")
            columns = head.count('<th scope="col"')
            for row in re.findall(r"<tr>.*?</tr>", body, re.DOTALL):
                assert row.startswith('<tr><th scope="row">')
                assert row.count("<t") - 1 == columns


def test_colours_follow_the_reader():
    """Light and dark have a value for each colour that is used."""
    style = (resources.files("selectrie.evaluation.report") / "page.css").read_text(encoding="utf-8")

    light, dark = re.findall(r":root\{(.*?)\}", style)
    names = [set(re.findall(r"--\w+", one)) for one in (light, dark)]
    assert names[0] == names[1] == set(re.findall(r"var\((--\w+)\)", style))


def _luminance(colour):
    """The relative luminance of a colour as WCAG 2 defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(one * 2 for one in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_colours_can_be_told_from_their_ground():
    """Words 4.5 to 1, marks 3 to 1, in the light and in the dark."""
    style = (resources.files("selectrie.evaluation.report") / "page.css").read_text(encoding="utf-8")
    for block in re.findall(r":root\{(.*?)\}", style):
        lightness = {name: _luminance(value) for name, value in re.findall(r"--(\w+):(#\w+)", block)}
        for name, least in (("ink", 4.5), ("soft", 4.5), ("blue", 3), ("amber", 3), ("grey", 3)):
            for ground in ("card", "paper") if least > 3 else ("card",):
                dark, light = sorted((lightness[name], lightness[ground]))
                assert (light + 0.05) / (dark + 0.05) >= least, (name, ground)


def test_the_figures_are_those_of_the_run(run):
    """What the page says in words is what the run has."""
    words = Reader(evaluation_page(run)).words
    task = run.tasks[0]
    for figure in task.figures.metrics.values():
        assert f"{figure.value:.4f}" in words
        assert f"{figure.low:.4f} – {figure.high:.4f}" in words
    assert "11 items, 1 could not be measured" in words
    assert "too long: 9 tokens, room for 8" in words
    assert "fake.gguf" in words
    assert "66.7% saved, 3.00 × fewer" in words
    assert f"error {task.ece:.3f}" in words


def test_every_subset_has_its_figures(run):
    """A row of its accuracy in the picture, and all its numbers in a table."""
    page = evaluation_page(run)
    words = Reader(page).words
    assert "The numbers of 2 subsets" in words
    for label, part in run.tasks[0].subsets.items():
        accuracy = part.metrics["acc"]
        assert f"<title>{label}: {100 * accuracy.value:.1f} %" in page
        assert re.search(rf"{label}\s*{part.n}\s*{accuracy.value:.4f}", words)


def test_the_histogram_holds_every_item(run):
    """Right and wrong of all columns are the items measured, the right ones those of the accuracy."""
    page = evaluation_page(run)
    piles = re.findall(r"<title>[\d.e+-]+ to [\d.e+-]+: (\d+) right, (\d+) wrong</title>", page)
    right, wrong = (sum(int(pile[i]) for pile in piles) for i in (0, 1))
    assert right + wrong == run.tasks[0].figures.n
    assert right == round(run.tasks[0].figures.metrics["acc"].value * (right + wrong))


def test_the_reliability_diagram_has_a_dot_for_each_bin(run):
    """At its mean confidence and accuracy, in the units of the picture."""
    picture = re.search(r'aria-label="Reliability.*?</svg>', evaluation_page(run), re.DOTALL)[0]
    dots = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', picture)
    bins = [one for one in run.tasks[0].calibration if one.n]
    assert len(dots) == len(bins)
    for (x, y), one in zip(dots, bins, strict=True):
        assert float(x) == pytest.approx(52 + 280 * one.confidence, abs=0.1)
        assert float(y) == pytest.approx(304 - 280 * one.accuracy, abs=0.1)


def test_flips_are_listed_with_what_each_run_chose(run):
    """Every item that changed sides, by its name."""
    other = mirrored(run)
    (found,) = compare(run, other)
    words = Reader(comparison_page(comparison_dict([found], ("one", "two")), (run, other))).words
    assert found.gained or found.lost
    for flip in (*found.gained, *found.lost):
        assert flip.id in words
    assert f"{len(found.lost)} in the first alone" in words


def test_both_runs_are_drawn_item_by_item(run):
    """Accuracies with their intervals; a mark for each item at both probabilities of the right choice, its shape says who is right."""
    other = mirrored(run)
    (found,) = compare(run, other)
    page = comparison_page(comparison_dict([found], ("one", "two")), (run, other))
    pairs = [(a, b) for a, b in zip(run.tasks[0].records, other.tasks[0].records, strict=True) if a.choices]
    picture = re.search(r'<svg [^>]*aria-label="Probability of the right choice.*?</svg>', page, re.DOTALL)[0]
    assert picture.count('class="dot soft"') == len(pairs) - len(found.gained) - len(found.lost)
    assert picture.count('class="gained"') == len(found.gained)
    assert picture.count('class="lost"') == len(found.lost)
    for a, b in pairs:
        first, second = (np.exp([one.logp for one in record.choices]) for record in (a, b))
        words = f"{a.id}: first {first[0] / first.sum():.4f}, second {second[0] / second.sum():.4f}"
        assert f"<title>{words}</title>" in picture
    for result, name in ((run, "first"), (other, "second")):
        figure = result.tasks[0].figures.metrics["acc"]
        note = f"acc, {name}: {100 * figure.value:.1f} % ({100 * figure.low:.1f} – {100 * figure.high:.1f})"
        assert note in page


def test_texts_stay_texts():
    """Names of tasks, items, subsets, runs and models cannot become elements, attributes or controls of a terminal."""
    records = [record(i, logps, name=f"{i}{EVIL}", subset=f"{EVIL}{i}") for i, logps in enumerate([(-1, -2), (-2, -1)])]
    records.append(record(2, (), name=EVIL, subset=EVIL, problem=EVIL))
    run = replace(evaluation(records, task=EVIL), signature={EVIL: EVIL, "model": EVIL})
    other = replace(mirrored(run), signature={})
    texts = {EVIL: [Item(EVIL, (EVIL, EVIL), (0,)) for _ in records]}
    found = comparison_dict(with_texts(compare(run, other), texts), (EVIL, EVIL))
    for page in (evaluation_page(run), comparison_page(found, (run, other))):
        reader = Reader(page)
        assert "script" not in {name for name, _ in reader.elements}
        assert "<script>alert(1)</script>" in reader.words
        assert "\\x1b[2J\\u202e\\ud800" in reader.words
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800]", page)
        page.encode()


@settings(max_examples=n_examples(50))
@given(st.text(st.characters(categories=None)))
def test_every_text_can_be_shown(text):
    """The page can be written as UTF-8, and read again the text is what it was but for what does not print."""
    written = charts.escape_text(text)
    written.encode()
    assert not set('<>"') & set(written)
    from html import unescape

    if text.isprintable():
        assert unescape(written) == text


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_has_a_page(metric):
    """Also figures that are not finite, and items with one choice."""
    measured = ChoiceLoglikelihood(-math.inf, 2, 4, 4, False, 1, -1.0, -1.0, (-1.0,))
    sure = replace(measured, logp=-0.5)
    for choices in ((measured, sure), (measured,)):
        if len(choices) == 1 and metric in ("calibrated", "batch_calibrated", "mc2", "brier"):
            continue
        run = evaluation([ItemRecord("task", i, "", "", (0,), choices, 0) for i in range(2)], (metric,))
        assert metric in Reader(evaluation_page(run)).words


def test_a_run_without_a_measured_item_has_a_page():
    """It says why."""
    words = Reader(evaluation_page(evaluation([record(0, (), problem="too long")]))).words
    assert "1 could not be measured" in words
    many = evaluation([record(i, (), problem="too long") for i in range(MAX_PROBLEMS + 5)])
    assert "(and 5 more)" in Reader(evaluation_page(many)).words


def test_a_dot_is_hollow_where_guessing_lies_in_the_interval():
    """And full where it does not, or where there is nothing to guess. The ends belong to the interval."""
    marks = {0.45: "dot hollow", 0.4: "dot hollow", 0.6: "dot hollow", 0.39: "dot", 0.61: "dot", None: "dot"}
    rows = [Row("row", 0.5, 0.4, 0.6, mark) for mark in marks]
    picture = charts.interval_chart(rows, ChartDescription("title", "alternative"))
    assert re.findall(r'<circle [^>]*class="([^"]*)"', picture) == list(marks.values())


def test_values_beyond_an_axis_lie_on_its_edge():
    """A picture never leaves its frame."""
    axis = Axis(0, 1, 100, 200, (), str)
    assert [axis(value) for value in (-1, 0, 0.25, 1, 9)] == [100, 100, 125, 200, 200]


@given(st.floats(1e-6, 1e6))
def test_axes_end_on_a_round_number(value):
    """Not below the value, and less than twice as large."""
    found = charts.round_up(value)
    assert value * (1 - 1e-6) <= found <= 2 * value * (1 + 1e-6)
    assert f"{found:.6e}".split("e")[0].rstrip("0").rstrip(".") in {"1", "2", "3", "4", "5", "6", "8"}
