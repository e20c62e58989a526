"""The page of a classified or decided table: what it counts, whose texts it shows, and that all doors make the same one."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from selectrie import Choice, DecisionParams
from selectrie.cli import app, requests
from selectrie.errors import OptionError
from selectrie.evaluation import decided_page, label_reports
from selectrie.evaluation.report.decided import MAX_MATRIX, MAX_SHOWN
from tests.support.deciding import QUESTIONS, fake
from tests.support.html_pages import EVIL, Reader, assert_fetches_nothing, assert_pictures_have_words

TEXTS = [f"Text {i}" for i in range(14)] + [EVIL.replace("\ud800", ""), "long " * 100]
GOLD = ["track order", "refund", "re", None] * 4
TOML = """
[intent]
type = "choice"
instructions = "What does the customer want?"
choices = ["track order", "refund", "re"]

[angry]
type = "predicate"
instructions = "The customer is angry."
yes_when = "they shout"

[urgency]
type = "score"
instructions = "How urgent is this?"
levels = ["can wait", "this week", "today"]
"""


@pytest.fixture(scope="module")
def decisions():
    """Three answers to each text."""
    return fake().decide_many(TEXTS, QUESTIONS)


def rows_of(page, caption):
    """The cells of the table with this caption, as texts of HTML."""
    table = re.search(rf"<caption>{caption}.*?</table>", page, re.DOTALL)
    assert table is not None
    lines = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", table[0], re.DOTALL)
    return [re.split(r"</th>(?:<td[^>]*>)?|</td>(?:<td[^>]*>)?", line)[:-1] for line in lines]


def test_what_holds_for_every_page(decisions):
    """Nothing fetched or run, words for every picture, and texts stay texts."""
    for gold in (None, {"intent": GOLD, "angry": [True, False] * 8}):
        page = decided_page(TEXTS, decisions, gold)
        assert_fetches_nothing(page)
        assert_pictures_have_words(page)
        assert "<script>" not in page
        assert "16 rows, 0 with an error" in Reader(page).words


def test_counts_are_those_of_the_answers(decisions):
    """The distribution, and the matrix by right answer and answer; rows without a right answer are not in it."""
    page = decided_page(TEXTS, decisions, {"intent": GOLD})
    options, answers = QUESTIONS["intent"].options, [one["intent"].value for one in decisions]
    matrix = rows_of(page, "Rows by right answer")
    for row, right in zip(matrix, options, strict=True):
        counted = [sum(g == right.value and a == o.value for g, a in zip(GOLD, answers, strict=True)) for o in options]
        assert row == [right.scored, *map(str, counted)]
    outline = re.search(r"The answers of all rows</summary>(.*?)</details>", page, re.DOTALL)[1]
    for option in options:
        assert f"{option.scored}, share" in outline
        assert f"rows {answers.count(option.value)}, rows with this right answer {GOLD.count(option.value)}" in outline
    known = [one for one, gold in zip(decisions, GOLD, strict=True) if gold is not None]
    histogram = re.search(r"<summary>Probability of the answer.*?</details>", page)[0]
    assert sum(map(int, re.findall(r"(?:right|wrong) (\d+)", histogram))) == len(known)


def test_figures_are_those_of_the_report(decisions):
    """The rows that the terminal shows, and the points of both curves; with a calibration before and after."""
    gold = {"intent": GOLD}
    reports = label_reports(decisions, gold, method="temperature", folds=2)
    page = decided_page(TEXTS, decisions, gold, reports=reports)
    assert [[cell.strip() for cell in row] for row in rows_of(page, "12 labelled rows")] == [
        [cell.strip() for cell in row] for row in reports["intent"].rows()
    ]
    assert page.count("<summary>Reliability, ") == 2
    assert [one.count("L") for one in re.findall(r'<path d="M([^"]*)" class="sel-line sel-(?:win|ink)', page)].count(
        11
    ) == 2


def test_worst_rows_come_first(decisions):
    """Wrong answers by the probability of the right one, all by confidence, with their numbers and texts."""
    page = decided_page(TEXTS, decisions, {"intent": GOLD})
    intents = [one["intent"] for one in decisions]
    wrong = [i for i, gold in enumerate(GOLD) if gold is not None and intents[i].value != gold]
    wrong.sort(key=lambda i: (intents[i].probabilities[GOLD[i]], i))
    assert [int(row[-1]) for row in rows_of(page, f"{len(wrong)} rows, those with")] == [i + 1 for i in wrong]
    sure = sorted(range(16), key=lambda i: (intents[i].confidence, i))
    shown = rows_of(page, "16 rows, by confidence")
    assert [int(row[-1]) for row in shown] == [i + 1 for i in sure]
    assert all(TEXTS[i] in row[0] for i, row in zip(sure, shown, strict=True) if i < 14)
    folded = next(row[0] for i, row in zip(sure, shown, strict=True) if i == 15)
    assert folded.startswith("<details><summary>long long")
    assert "long " * 100 in folded


def test_many_rows_are_counted_and_few_shown(decisions):
    """The rest is a number."""
    page = decided_page(TEXTS * 4, [*decisions] * 4)
    assert f"64 rows, by confidence; {MAX_SHOWN} are shown" in page
    assert len(rows_of(page, "64 rows, by confidence")) == MAX_SHOWN


def test_many_options_are_pairs():
    """Beyond a size the matrix is a list of confusions."""
    names = [f"n{i}" for i in range(MAX_MATRIX + 1)]
    answers = fake().decide_many(["a", "b"], {"q": Choice("", names)})
    gold = [next(name for name in names if name != one["q"].value) for one in answers]
    page = decided_page(["a", "b"], answers, {"q": gold})
    assert sorted(row[:2] for row in rows_of(page, "Most frequent confusions")) == sorted(
        [right, one["q"].value] for right, one in zip(gold, answers, strict=True)
    )


def test_small_numbers_are_not_zero(decisions):
    """A probability of 5e-08 is below the least one that is written."""
    intents = [replace(one["intent"], label_mass=5e-8) for one in decisions]
    page = decided_page(TEXTS, intents)
    assert "Label mass: median &lt; 0.1 %, least &lt; 0.1 %" in page
    assert "the options hold less than 1 % of what the model would say" in page
    assert "0.0000" not in page


def test_probabilities_have_the_digits_that_the_model_leaves():
    """One digit at a tolerance of 0.3 nats, in tables and histograms."""
    with fake(tolerance=0.3) as llm:
        decisions = llm.decide_many(TEXTS, {"intent": QUESTIONS["intent"]})
    page = decided_page(TEXTS, [replace(one["intent"], label_mass=0.345) for one in decisions])
    assert "Label mass: median ≈ 30 %, least ≈ 30 %" in page
    assert [row[-2] for row in rows_of(page, "16 rows, by confidence")] == ["≈ 30 %"] * 16


def test_labels_of_classify_many():
    """Its result is taken as it is, also with an error in a row, which has a table of its own."""
    labels = fake().classify_many(["a", "b", np.nan], ["x", "y"], on_error="keep")
    page = decided_page(["a", "b", ""], labels, ["x", "y", None])
    assert "3 rows, 1 with an error" in Reader(page).words
    assert [row[1:] for row in rows_of(page, "Rows without an answer")] == [["", "3"]]


def test_states_are_as_many_as_answers(decisions):
    """Else a text would stand beside another's answer."""
    with pytest.raises(OptionError, match="states='15 values': expected one state for each of the 16 answers"):
        decided_page(TEXTS[1:], decisions)


FEW = ["", *TEXTS[10:]]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A table of a few texts with a blank one, and the questions; the engine is a fake."""
    monkeypatch.setattr(requests, "open_engine", lambda _group: fake())
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("body", "kind"), *zip(FEW, ["", *GOLD[10:]], strict=True)])
    (tmp_path / "q.toml").write_text(TOML)
    return tmp_path


def run(*arguments, code=0):
    """What the command writes; it ends with this exit code."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


DECIDE = ("decide", "q.toml", "--table", "t.csv", "--state", "body")


def test_all_doors_make_the_same_page(folder):
    """A run, the same run again from its log, and standard output, from cells; with right answers and in Python, from answers."""
    run(*DECIDE, "--out", "o.csv", "--html", "run.html", "--probabilities", "wide")
    run("decide", "--resume", "o.csv.run", "--html", "again.html")
    run(*DECIDE, "--html", "stdout.html")
    pages = [Path(name).read_text(encoding="utf-8") for name in ("run.html", "again.html", "stdout.html")]
    llm = fake()
    answers = llm.decide_many(FEW, QUESTIONS, params=DecisionParams(), on_error="keep")
    made = decided_page(FEW, answers, title="t.csv")
    assert pages[0] == pages[1] == pages[2]
    assert "7 rows, 1 with an error" in made
    assert re.sub("<caption>Rows without.*?</table>", "", pages[0]) == re.sub(
        "<caption>Rows without.*?</table>", "", made
    )
    found = run(*DECIDE, "--gold", "intent=kind", "--html", "gold.html", "--json")
    assert '"html": "gold.html"' in found
    gold = decided_page(FEW, answers, {"intent": [None, *GOLD[10:]]}, title="t.csv")
    assert rows_of(Path("gold.html").read_text(encoding="utf-8"), "Rows by right") == rows_of(gold, "Rows by right")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*DECIDE, "--html", "-"), "--html '-': expected a file; rows and figures go to stdout"),
        ((*DECIDE, "--html", "no/p.html"), "--html 'no/p.html': expected a file in a folder that exists"),
        ((*DECIDE, "--gold", "intent=kind", "--html", "no/p.html"), "a file in a folder that exists"),
        (("decide", "A text", "Angry?", "--html", "p.html"), "a table, or no --html: one state has no run"),
        (("classify", "A text", "-l", "a,b", "--html", "p.html"), "give a table, or no --out"),
    ],
)
def test_what_is_refused(folder, arguments, message):
    """Before a model is asked, by one line."""
    assert message in run(*arguments, code=2)
