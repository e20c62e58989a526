"""The page of a table whose rows were classified or decided."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from selectrie.core.notation import UNKNOWN, count, percent, rate, thousands, written_tolerance
from selectrie.decide.answers import Answer, Decision, PredicateAnswer, ScoreAnswer
from selectrie.decide.calibration import LabelledAnswers, labelled_answers
from selectrie.decide.classification import Classification
from selectrie.decide.columns import AnswerCells, error_text
from selectrie.decide.states import State, is_missing, readable_texts
from selectrie.errors import OptionError, RequestError
from selectrie.evaluation.label_report import LabelReport, label_reports
from selectrie.evaluation.report.charts import draw_shares, short_percent
from selectrie.evaluation.report.page import (
    Block,
    Section,
    columns_block,
    figure_blocks,
    heading_block,
    matrix_block,
    more_note,
    paragraph_block,
    render_page,
    section,
    table_block,
    text_cell,
)
from selectrie.results.advice import LOW_COVERAGE
from selectrie.results.drawing.bars import Bar, draw_bars

MAX_SHOWN = 25
"""Maximum number of rows in a table of texts; the rest is counted."""
MAX_MATRIX = 30
"""Maximum number of options in a confusion matrix; of more, the pairs are listed."""


@dataclass(frozen=True, slots=True)
class RightValue:
    """The right answer of a row.

    Attributes:
        text: Its text.
        probability: Its probability by the answer.
    """

    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class _Row:
    """A row with its answer to one question."""

    number: int
    text: str
    answer: AnswerCells
    right: RightValue | None


class _Lowest:
    """The rows with the lowest scores, at most `MAX_SHOWN`."""

    def __init__(self) -> None:
        self.n = 0
        self._heap: list[tuple[float, int, _Row]] = []

    def add(self, score: float, row: _Row) -> None:
        self.n += 1
        heappush(self._heap, (-score, -row.number, row))
        if len(self._heap) > MAX_SHOWN:
            heappop(self._heap)

    @property
    def rows(self) -> list[_Row]:
        """Return the rows, the lowest first, then by number."""
        return [row for _, _, row in sorted(self._heap, reverse=True)]


@dataclass(slots=True, eq=False)
class _Question:
    """What the page shows of one question, added up row by row.

    Attributes:
        tolerance: By how many nats its probabilities may move.
        counts: Number of rows by the text of their answer.
        right_counts: Number of rows by the text of their right answer.
        is_right: 1 and 0 for right and wrong answers, -1 where that is not known.
        n_abstained: Number of answers that abstained.
        wrong, unsure, low: Rows with a wrong answer, by the probability of the right
            one; all rows, by confidence; those of low label mass.
    """

    tolerance: float
    counts: Counter[str]
    right_counts: Counter[str] = field(default_factory=Counter)
    probabilities: array[float] = field(default_factory=lambda: array("d"))
    label_masses: array[float] = field(default_factory=lambda: array("d"))
    is_right: array[int] = field(default_factory=lambda: array("b"))
    n_abstained: int = 0
    wrong: _Lowest = field(default_factory=_Lowest)
    unsure: _Lowest = field(default_factory=_Lowest)
    low: _Lowest = field(default_factory=_Lowest)

    def add(self, row: _Row) -> None:
        answer, right = row.answer, row.right
        self.counts[answer.text] += 1
        self.probabilities.append(answer.probability)
        self.label_masses.append(answer.label_mass)
        self.is_right.append(-1 if right is None else right.text == answer.text)
        self.n_abstained += bool(answer.abstained)
        self.unsure.add(answer.confidence, row)
        if answer.label_mass < LOW_COVERAGE:
            self.low.add(answer.label_mass, row)
        if right is not None:
            self.right_counts[right.text] += 1
            if right.text != answer.text:
                self.wrong.add(right.probability, row)


class DecidedTable:
    """The rows of a table with their answers, added up for a page.

    Memory grows by 17 bytes for each answer, besides the rows that are shown.

    Args:
        options: The texts of the options by the name of each question, which are shown
            even if no row has them.
        tolerance: By how many nats the probabilities may move.
    """

    def __init__(self, options: Mapping[str, Iterable[str]], tolerance: float) -> None:
        self._questions = {
            name: _Question(tolerance, Counter(dict.fromkeys(texts, 0))) for name, texts in options.items()
        }
        self._n = self._n_errors = 0
        self._errors: list[tuple[str, object, int]] = []

    def add(
        self,
        state: State | RequestError,
        answers: Iterable[tuple[str, AnswerCells]] | str,
        right: Mapping[str, RightValue] | None = None,
    ) -> None:
        """Add a row.

        Args:
            state: The state of the row, or why it has none.
            answers: The answer to each question, or why there are none.
            right: The right answers that are known, by question.
        """
        self._n += 1
        text = next(readable_texts([state]), "")
        if isinstance(answers, str):
            self._n_errors += 1
            if self._n_errors <= MAX_SHOWN:
                self._errors.append((answers, text_cell(text), self._n))
            return
        for name, answer in answers:
            self._questions[name].add(_Row(self._n, text, answer, (right or {}).get(name)))

    def page(
        self, title: str, subtitle: str = "", judged: Mapping[str, tuple[LabelledAnswers, LabelReport]] | None = None
    ) -> str:
        """Return the HTML page of the rows that were added.

        Args:
            title, subtitle: Texts at the top of the page.
            judged: The answers to each question with known right values, and their
                figures.
        """
        sections = [
            _question_section(name, one, (judged or {}).get(name))
            for name, one in self._questions.items()
            if one.probabilities
        ]
        if self._errors:
            caption = "Rows without an answer" + more_note(self._n_errors - len(self._errors))
            sections.append(section("Errors", table_block(caption, ("why", "text", "row"), self._errors, left=2)))
        about = f"{count(self._n, 'row')}, {thousands(self._n_errors)} with an error"
        return render_page(title, f"{subtitle}: {about}" if subtitle else about, sections)


def decided_page(
    states: Iterable[State | RequestError],
    answers: Iterable[Answer | Decision],
    gold: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None,
    *,
    reports: Mapping[str, LabelReport] | None = None,
    title: str = "Decided texts",
    subtitle: str = "",
) -> str:
    """Return an HTML page about answers: what they are, how sure, and where wrong.

    It shows for each question the distribution of the answers, their probability and
    label mass, and the texts whose answers are least sure. With right values, it shows
    the confusion matrix, reliability, risk over coverage, and wrong answers too.

    Args:
        states: The state of each answer, in order, or why it has none.
        answers: What `classify_many` or `decide_many` returned, or answers to one
            question.
        gold: The right values, as for `label_reports`; None if none is known.
        reports: What `label_reports` returned for them, if it was called.
        title, subtitle: Texts at the top of the page.

    Raises:
        OptionError: For another number of states than of answers, and for answers or
            values that cannot be used.
    """
    rows: list[Any] = list(answers.decisions if isinstance(answers, Classification) else answers)
    about = list(states)
    if len(about) != len(rows):
        raise OptionError("states", f"{len(about)} values", f"one state for each of the {len(rows)} answers")
    named = [one if isinstance(one, Decision) else Decision({"": one}) for one in rows]
    first = next((one for one in named if one.error is None), Decision({}))
    options = {name: list(_texts_of(answer).values()) for name, answer in first.items()}
    judged: dict[str, tuple[LabelledAnswers, LabelReport]] = {}
    right: dict[str, list[Any]] = {}
    if gold is not None:
        one_gold = gold if isinstance(gold, Mapping) else {next(iter(options), ""): gold}
        right = {name: list(values) for name, values in one_gold.items()}
        reports = label_reports(named, right) if reports is None else reports
        judged = {name: (one, reports[name]) for name, one in labelled_answers(named, right).items()}
    answered = (answer for one in named if one.error is None for answer in one.values())
    table = DecidedTable(options, max(map(written_tolerance, answered), default=UNKNOWN))
    for at, (state, decision) in enumerate(zip(about, named, strict=True)):
        if decision.error is not None:
            table.add(state, error_text(decision.error))
            continue
        known = {name: _right_value(decision[name], values[at]) for name, values in right.items()}
        table.add(
            state,
            [(name, _cells_of(answer)) for name, answer in decision.items()],
            {name: one for name, one in known.items() if one is not None},
        )
    return table.page(title, subtitle, judged)


def _texts_of(answer: Answer) -> dict[Any, str]:
    """Return the text of each option by its value."""
    if isinstance(answer, PredicateAnswer):
        return {True: "true", False: "false"}
    return dict(answer.legend if isinstance(answer, ScoreAnswer) else answer.texts)


def _cells_of(answer: Answer) -> AnswerCells:
    """Return an answer as its cells have it."""
    probabilities: Mapping[Any, float] = answer.probabilities
    text, p = _texts_of(answer)[answer.value], probabilities[answer.value]
    return AnswerCells(text, p, answer.confidence, answer.label_mass, answer.abstained)


def _right_value(answer: Answer, value: Any) -> RightValue | None:
    """Return the right value of an answer; None if it is not known."""
    texts = _texts_of(answer)
    if is_missing(value) and value not in texts:
        return None
    return RightValue(texts[value], answer.probabilities[value])


def _question_section(name: str, question: _Question, judged: tuple[LabelledAnswers, LabelReport] | None) -> Section:
    """Return the section of a question."""
    n = len(question.probabilities)
    abstained = f", {thousands(question.n_abstained)} abstained" if question.n_abstained else ""
    parts = [paragraph_block(f"{count(n, 'answer')}{abstained}"), *_distribution_blocks(question, n)]
    if judged is not None:
        answers, report = judged
        parts += [heading_block("Figures"), _figures_block(report)]
        parts += [heading_block("Answers and right answers"), _confusion_block(answers)]
        heads = {"reliability": "Reliability", "calibrated": "Reliability, calibrated", "risk": "Risk over coverage"}
        charts = (figure_blocks(report.draw(name), head) for name, head in heads.items())
        parts.append(columns_block(*filter(None, charts)))
    low = f"the options hold less than {short_percent(LOW_COVERAGE)} of what the model would say"
    tables = (
        ("Wrong answers", "those with the least probable right one first", question.wrong),
        ("Low label mass", low, question.low),
        ("Least sure answers", "by confidence", question.unsure),
    )
    for title, caption, found in tables:
        if found.n:
            parts += [heading_block(title), _rows_table(caption, found, question.tolerance)]
    return section(name or "Answers", *parts)


def _distribution_blocks(question: _Question, n: int) -> list[Block]:
    """Return the bars of the answers, and histograms of both probabilities."""
    has_right = bool(question.right_counts)
    counts = question.counts + Counter()
    counts.update(dict.fromkeys((*question.counts, *question.right_counts), 0))
    bars = []
    for text, of_text in counts.most_common():
        right = f" / {thousands(question.right_counts[text])}" if has_right else ""
        numbers: list[tuple[str, float | None, str]] = [
            ("share", of_text / n, rate(of_text / n)),
            ("rows", of_text, thousands(of_text)),
        ]
        if has_right:
            numbers.append(("rows with this right answer", question.right_counts[text], right.removeprefix(" / ")))
        bars.append(Bar(text, of_text / n, of_text / n, rate(of_text / n), thousands(of_text) + right, tuple(numbers)))
    heads = ("answer", "share of rows", "rows / right" if has_right else "rows")
    bar_chart = draw_bars(bars, title="The answers of all rows", heads=heads)
    is_right = np.frombuffer(question.is_right, np.int8)
    masses, tops = (np.frombuffer(one, np.float64) for one in (question.label_masses, question.probabilities))
    columns = (
        _histogram_blocks("Probability of the answer", tops, is_right, "among the options", question.tolerance),
        _histogram_blocks("Label mass", masses, is_right, "share of all that the model would say", question.tolerance),
    )
    return [*figure_blocks(bar_chart, "Answers"), columns_block(*columns)]


def _histogram_blocks(
    title: str, values: np.ndarray, is_right: np.ndarray, label: str, tolerance: float
) -> list[Block]:
    """Return a histogram of shares; of labelled rows alone, if there are any."""
    is_judged = is_right >= 0
    if is_judged.any():
        return figure_blocks(draw_shares(title, label, values[is_judged], is_right[is_judged] == 1, tolerance), title)
    return figure_blocks(draw_shares(title, label, values, None, tolerance), title)


def _figures_block(report: LabelReport) -> Block:
    """Return the table of the figures that the terminal shows."""
    names = ("figure", "as it is", list(report.figures)[-1], "difference (95 % interval)")
    rows = report.rows()
    if report.after is None:
        names = ("figure", "as it is", "95 % interval", "")
        rows = [(name, value, last.removeprefix("as it is: "), "") for name, value, _, last in rows]
        return table_block(f"{report.before.n} labelled rows", names[:3], [row[:3] for row in rows])
    return table_block(f"{report.before.n} labelled rows", names, rows)


def _confusion_block(answers: LabelledAnswers) -> Block:
    """Return how often each answer was given where another was right."""
    names = _names_of(answers)
    k = len(names)
    counts = np.zeros((k, k), np.int64)
    np.add.at(counts, (answers.gold, answers.predicted), 1)
    if k <= MAX_MATRIX:
        caption = "Rows by right answer and answer; the tint is the share of the line."
        return matrix_block(caption, names, counts.tolist())
    np.fill_diagonal(counts, 0)
    pairs = sorted(((-int(counts[i, j]), i, j) for i, j in zip(*np.nonzero(counts), strict=True)))
    rows = [(names[i], names[j], -n) for n, i, j in pairs[:MAX_SHOWN]]
    caption = "Most frequent confusions" + more_note(len(pairs) - len(rows))
    return table_block(caption, ("right answer", "answer", "rows"), rows, left=2)


def _names_of(answers: LabelledAnswers) -> list[str]:
    """Return the text of each option, in the caller's order."""
    question: Any = answers.conditions["question"]
    if question[0] == "predicate":
        return ["true", "false"]
    return [str(option[0]) for option in question[2:]]


def _rows_table(caption: str, found: _Lowest, tolerance: float) -> Block:
    """Return a table of rows with their texts."""
    rows = found.rows
    has_right = any(row.right is not None for row in rows)
    right_names = ("right answer", "its p") if has_right else ()
    names = ("text", "answer", *right_names[:1], "p", *right_names[1:], "label mass", "row")
    cells = []
    for row in rows:
        one, right = row.answer, row.right
        words = [one.text, *([right.text if right else ""] if has_right else [])]
        p_right = [percent(right.probability, tolerance) if right else ""] if has_right else []
        numbers = [percent(one.probability, tolerance), *p_right, percent(one.label_mass, tolerance), row.number]
        cells.append((text_cell(row.text), *words, *numbers))
    shown = f"; {thousands(len(rows))} are shown" if found.n > len(rows) else ""
    return table_block(f"{count(found.n, 'row')}, {caption}{shown}", names, cells, left=3 if has_right else 2)
