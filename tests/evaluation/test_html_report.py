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

from selectrie.core.notation import rate
from selectrie.evaluation.comparison import compare, with_texts
from selectrie.evaluation.metrics import METRICS, ChoiceLoglikelihood, Item, ItemRecord, find_metrics
from selectrie.evaluation.report.html import MAX_PROBLEMS, comparison_page, evaluation_page
from selectrie.evaluation.report.page import render_page
from selectrie.evaluation.results import Evaluation, TaskResult
from selectrie.results.drawing.shapes import style as drawing_style
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
    return [evaluation_page(run), comparison_page(compare(run, other), (run, other), ("x", "y"))]


def mirrored(run):
    """A run whose choices are the other way round."""
    records = [replace(one, choices=one.choices[::-1]) for one in run.tasks[0].records]
    return evaluation(records, task=run.tasks[0].task)


def test_nothing_is_fetched_and_nothing_is_run(run):
    """No script, no style sheet, no picture, no font, no address of anything."""
    for page in pages_of(run, mirrored(run)):
        assert_fetches_nothing(page)


def test_every_picture_says_what_it_shows(run):
    """What hovering shows is in a list, and the page has a language and a title."""
    for page in pages_of(run, mirrored(run)):
        assert_pictures_have_words(page)


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
    """Words 4.5 to 1, marks 3 to 1, in the light and in the dark, those of drawings on the page's ground too."""
    style = (resources.files("selectrie.evaluation.report") / "page.css").read_text(encoding="utf-8")
    drawn = re.findall(r"\.sel \{([^}]*--g: #[^}]*)\}", drawing_style())
    for block, drawing in zip(re.findall(r":root\{(.*?)\}", style), drawn, strict=True):
        lightness = {name: _luminance(value) for name, value in re.findall(r"--(\w+):(#\w+)", block)}
        of_drawing = {name: _luminance(value) for name, value in re.findall(r"--(\w+): (#\w+)", drawing)}
        for name, least in (("ink", 4.5), ("soft", 4.5), ("blue", 3), ("amber", 3)):
            for ground in ("card", "paper") if least > 3 else ("card",):
                assert _contrast(lightness[name], lightness[ground]) >= least, (name, ground)
        for name, least in (("ink", 4.5), ("soft", 4.5), ("win", 3), ("alt", 3), ("bar", 3)):
            assert _contrast(of_drawing[name], lightness["card"]) >= least, name


def _contrast(one, other):
    """The contrast of two colours of these luminances."""
    dark, light = sorted((one, other))
    return (light + 0.05) / (dark + 0.05)


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
    assert "66.7 % saved, 3.00 × fewer" in words
    assert f"error {task.ece:.3f}" in words


def test_every_subset_has_its_figures(run):
    """A row of its accuracy in the picture, and all its numbers in a table."""
    page = evaluation_page(run)
    words = Reader(page).words
    assert "The numbers of 2 subsets" in words
    for label, part in run.tasks[0].subsets.items():
        accuracy = part.metrics["acc"]
        assert f"<li>{label}, value {rate(accuracy.value)} (" in page
        assert re.search(rf"{label}\s*{part.n}\s*{accuracy.value:.4f}", words)


def test_the_histogram_holds_every_item(run):
    """Right and wrong of all columns are the items measured, the right ones those of the accuracy."""
    page = evaluation_page(run)
    piles = re.findall(r"<li>[\d.e+-]+ to [\d.e+-]+, right (\d+), wrong (\d+)</li>", page)
    right, wrong = (sum(int(pile[i]) for pile in piles) for i in (0, 1))
    assert right + wrong == run.tasks[0].figures.n
    assert right == round(run.tasks[0].figures.metrics["acc"].value * (right + wrong))


def test_flips_are_listed_with_what_each_run_chose(run):
    """Every item that changed sides, by its name."""
    other = mirrored(run)
    (found,) = compare(run, other)
    words = Reader(comparison_page([found], (run, other), ("one", "two"))).words
    assert found.gained or found.lost
    for flip in (*found.gained, *found.lost):
        assert flip.id in words
    assert f"{len(found.lost)} in the first alone" in words


def test_both_runs_are_drawn_item_by_item(run):
    """Accuracies with their intervals; a mark for each item at both probabilities of the right choice, its shape says who is right."""
    other = mirrored(run)
    (found,) = compare(run, other)
    page = comparison_page([found], (run, other), ("one", "two"))
    pairs = [(a, b) for a, b in zip(run.tasks[0].records, other.tasks[0].records, strict=True) if a.choices]
    [picture] = [one for one in re.findall(r"<svg .*?</svg>", page, re.DOTALL) if "others</text>" in one]
    legend = 1
    assert picture.count('class="sel-dot sel-sheer"') - legend == len(pairs) - len(found.gained) - len(found.lost)
    assert picture.count('class="sel-dot sel-win"') - legend == len(found.gained)
    assert picture.count('class="sel-dot sel-alt"') - legend == len(found.lost)
    titles = re.findall("<title>(q[^<]*, second [^<%]*%)", picture)
    assert len(titles) == len(pairs)
    assert {"q0, first ≈ 20 %, second ≈ 20 %", "q10, first ≈ 99.2 %, second ≈ 0.7 %"} <= {*titles}
    assert "acc, first, value 18.2 % (5.1 % to 47.7 %)" in page  # 2 of 11, Wilson's interval
    assert "acc, second, value 36.4 % (15.2 % to 64.6 %)" in page


def test_texts_stay_texts():
    """Names of tasks, items, subsets, runs and models cannot become elements, attributes or controls of a terminal."""
    records = [record(i, logps, name=f"{i}{EVIL}", subset=f"{EVIL}{i}") for i, logps in enumerate([(-1, -2), (-2, -1)])]
    records.append(record(2, (), name=EVIL, subset=EVIL, problem=EVIL))
    run = replace(evaluation(records, task=EVIL), signature={EVIL: EVIL, "model": EVIL})
    other = replace(mirrored(run), signature={})
    texts = {EVIL: [Item(EVIL, (EVIL, EVIL), (0,)) for _ in records]}
    found = with_texts(compare(run, other), texts)
    for page in (evaluation_page(run), comparison_page(found, (run, other), (EVIL, EVIL))):
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
    page = render_page(text, "", [])
    page.encode()
    if text.isprintable():
        assert Reader(page).words.count(text) >= 2


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
