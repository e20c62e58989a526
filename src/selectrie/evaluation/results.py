"""The results of an evaluation as plain data, and the notation of its figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from selectrie.core.types import FloatArray
from selectrie.errors import InputFileError, OptionError
from selectrie.evaluation import metrics
from selectrie.evaluation.metrics import (
    CalibrationBin,
    ChoiceLoglikelihood,
    Estimate,
    ItemRecord,
    Metric,
    calibration_table,
    expected_calibration_error,
)
from selectrie.evaluation.report.charts import draw_estimates, draw_margins, draw_reliability
from selectrie.results.drawing.plot import plot_picture
from selectrie.results.drawing.shapes import Drawing
from selectrie.results.plain import JsonRecord, cell, fields_of, frame, label, row, table
from selectrie.results.records import result_fields

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MAX_CONTEXT, MAX_CHOICE, MAX_CHOICES = 200, 80, 8
"""Maximum characters of a context and of a choice, and number of choices, shown."""


def number(value: float | None, sign: str = "") -> str:
    """Return a number with four decimals, or with one decimal from 100 on.

    Args:
        sign: "+" to write the sign of positive numbers too.
    """
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:{sign}.4f}" if abs(value) < 100 else f"{value:{sign}.1f}"


def signed(value: float | None) -> str:
    """Return a number as text with its sign, + or -."""
    return number(value, "+")


def between(low: float | None, high: float | None) -> str:
    """Return an interval as text; "" if an end is missing."""
    if low is None or high is None or not math.isfinite(low + high):
        return ""
    return f"{number(low)} {'to' if low < 0 else '–'} {number(high)}"


def p_value(p: float | None) -> str:
    """Return a p-value with three digits."""
    return "" if p is None else f"{p:.3g}"


def signed_interval(interval: Mapping[str, float | None]) -> str:
    """Return the interval of a difference as text, given its JSON form."""
    return " to ".join(filter(None, map(signed, interval.values())))


def position(run: int) -> str:
    """Return the position of a run in words: 0 is "first"."""
    words = ("first", "second", "third")
    return words[run] if run < len(words) else f"{run + 1}th"


def shorten(text: str, limit: int) -> str:
    """Return a text on one line, with … in its middle if it is longer than `limit`.

    Names and questions often differ at their end.
    """
    line = " ".join(text.split())
    half = limit // 2
    return line if len(line) <= limit else f"{line[:half]}…{line[1 - half :]}"


def choices_line(flip: Mapping[str, Any], other: str) -> str:
    """Return the choices of an item on one line, with who chose them.

    Right and chosen ones are always shown, others up to `MAX_CHOICES`.

    Args:
        flip: The item, ready for JSON, with its texts.
        other: Position in words of the run that is compared with the first.
    """
    marks: dict[int, list[str]] = {}
    for index, mark in (
        *((index, "right") for index in flip["gold"]),
        (flip["first"], "first"),
        (flip["second"], other),
    ):
        marks.setdefault(index, []).append(mark)
    shown = [index for index in range(len(flip["choices"])) if index < MAX_CHOICES or index in marks]
    parts = [
        f"{index} {shorten(flip['choices'][index], MAX_CHOICE)}"
        + (f" ({', '.join(marks[index])})" if index in marks else "")
        for index in shown
    ]
    more = len(flip["choices"]) - len(shown)
    return " · ".join(parts) + (f" · {more} more" if more else "")


def shown_flips(task: Mapping[str, Any], max_shown: int) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the items of a comparison that only one run gets right, with signs.

    `+` marks an item that is right only in the other run, `-` one that is right only in
    the first. Both kinds share `max_shown`.
    """
    gained, lost = task["gained"], task["lost"]
    n_gained = min(len(gained), max(max_shown - len(lost), (max_shown + 1) // 2))
    return [*(("+", one) for one in gained[:n_gained]), *(("-", one) for one in lost[: max_shown - n_gained])]


@dataclass(frozen=True, slots=True)
class Figures(JsonRecord):
    """The figures of a group of items.

    Attributes:
        n: Number of items that were measured.
        n_failed: Number of items that could not be measured.
        metrics: The figures by metric, in the order requested.
    """

    n: int
    n_failed: int
    metrics: Mapping[str, Estimate]

    @staticmethod
    def of(records: Sequence[ItemRecord], metric_list: Sequence[Metric]) -> Figures:
        """Return the figures of records.

        Items that could not be measured are only counted.
        """
        good = [record for record in records if record.problem is None]
        return Figures(len(good), len(records) - len(good), {m.name: metrics.estimate(m, good) for m in metric_list})

    def to_dict(self) -> dict[str, object]:
        """Return the figures ready for JSON."""
        return fields_of(self, "n n_failed metrics")


@dataclass(frozen=True, slots=True, repr=False)
class TaskResult(JsonRecord):
    """The result of one task.

    Attributes:
        task, version, n_shots: Name and version of the task, and number of examples
            before each question.
        figures: The figures of all items.
        subsets: The figures of each subset, by name, if there are several.
        calibration: Share of right predictions, by the predicted choice's probability.
        ece: Expected calibration error, NaN if items have one choice.
        records: The records of its items, in input order.
    """

    task: str
    version: int
    n_shots: int
    figures: Figures
    subsets: Mapping[str, Figures]
    calibration: tuple[CalibrationBin, ...]
    ece: float
    records: tuple[ItemRecord, ...]

    @staticmethod
    def of(
        task: str, records: Sequence[ItemRecord], metric_list: Sequence[Metric], *, version: int = 1, n_shots: int = 0
    ) -> TaskResult:
        """Return the result of a task from its records, in input order."""
        groups: dict[str, list[ItemRecord]] = {}
        for record in records:
            if record.subset:
                groups.setdefault(record.subset, []).append(record)
        sets = [record for record in records if record.problem is None and len(record.choices) > 1 and record.gold]
        confidence = np.array([float(metrics.posterior(record).max()) for record in sets])
        right = np.array([metrics.predicted_choice(record) in record.gold for record in sets], dtype=np.bool_)
        table = calibration_table(confidence, right)
        return TaskResult(
            task=task,
            version=version,
            n_shots=n_shots,
            figures=Figures.of(records, metric_list),
            subsets={name: Figures.of(group, metric_list) for name, group in groups.items()} if len(groups) > 1 else {},
            calibration=table,
            ece=expected_calibration_error(table),
            records=tuple(records),
        )

    def __repr__(self) -> str:
        return f"TaskResult({self._line()})"

    def _line(self) -> str:
        failed = f", {self.figures.n_failed} not measured" if self.figures.n_failed else ""
        shown = "  ".join(
            f"{name} {number(one.value)}" + (f" ± {number(one.stderr)}" if math.isfinite(one.stderr) else "")
            for name, one in self.figures.metrics.items()
        )
        return f"{self.task}: {self.figures.n} items{failed}  {shown}"

    @property
    def margins(self) -> FloatArray:
        """Return the margin of each item with two or more choices, float64[n].

        It is the distance in nats between the two most probable choices. Items are in
        input order.
        """
        margins = [metrics.margin(record) for record in self.records if len(record.choices) > 1]
        return np.array(margins, dtype=np.float64)

    def draw(self, picture: str) -> Drawing | None:
        """Return a picture as `plot` names it; None if there is nothing to draw."""
        if picture == "reliability":
            return draw_reliability(f"Reliability of {self.task}", self.calibration, self.ece)
        if picture == "margins":
            return draw_margins(f"Margins of {self.task}", self.records)
        found = (name for name, one in self.figures.metrics.items() if math.isfinite(one.value))
        name = next((name for name in found if metrics.METRICS[name].is_proportion), "")
        parts = [(label, name, part.metrics[name]) for label, part in self.subsets.items() if name and part.n]
        parts.sort(key=lambda one: -one[2].value)
        return draw_estimates(f"{name} of the subsets of {self.task}", parts)

    def plot(self, picture: str = "reliability", *, ax: Axes | None = None) -> Axes:
        """Draw the result with matplotlib (extra `plot`), as its page shows it.

        Args:
            picture: "reliability", accuracy over confidence; "margins", a histogram of
                right and wrong items; or "subsets", the first proportion among the
                metrics of each subset.
            ax: Axes to draw into; None makes a figure of the picture's size.

        Raises:
            OptionError: For another picture, or one that the items do not have.
            MissingExtraError: If matplotlib is not installed.
        """
        return plot_picture(picture, ("reliability", "margins", "subsets"), self.draw, ax)

    def to_dict(self) -> dict[str, object]:
        """Return the result ready for JSON, without the records."""
        problems = [fields_of(record, "index id problem") for record in self.records if record.problem is not None]
        return {
            **fields_of(self, "task version shots=n_shots"),
            **self.figures.to_dict(),
            **fields_of(self, "subsets calibration ece"),
            "problems": problems,
        }


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation(JsonRecord):
    """The results of all tasks of a run.

    Attributes:
        tasks: The result of each task.
        rows_evaluated: Number of rows that the model computed.
        rows_naive: Number of rows if every context and choice were evaluated alone.
        signature: The facts on which log-probabilities depend: model, tokenizer, back
            end, build, processor, precision, version.
    """

    tasks: tuple[TaskResult, ...]
    rows_evaluated: int
    rows_naive: int
    signature: Mapping[str, object]

    def __getitem__(self, task: str) -> TaskResult:
        """Return the result of a task; raises `KeyError` if it was not run."""
        for result in self.tasks:
            if result.task == task:
                return result
        raise KeyError(f"{task!r}: expected one of {', '.join(repr(result.task) for result in self.tasks)}")

    def __iter__(self) -> Iterator[TaskResult]:
        """Iterate over the results of the tasks."""
        return iter(self.tasks)

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.tasks)

    @property
    def accuracy(self) -> float:
        """Return the share of right answers, the metric `acc` of the only task.

        Raises `OptionError` for several tasks, or a run without this metric.
        """
        if len(self.tasks) != 1:
            names = [task.task for task in self.tasks]
            raise OptionError("tasks", names, "one task; read `evaluation[name].figures.metrics['acc'].value`")
        found = self.tasks[0].figures.metrics
        if "acc" not in found:
            raise OptionError("metrics", list(found), "'acc' among the metrics of the run")
        return found["acc"].value

    def draw(self) -> Drawing | None:
        """Return the picture of `plot`; None if no metric is a proportion."""
        estimates = [
            (f"{task.task} {name}" if len(self.tasks) > 1 else name, name, one)
            for task in self.tasks
            for name, one in task.figures.metrics.items()
        ]
        return draw_estimates("Accuracies with 95 % intervals", estimates)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw all accuracies with their intervals with matplotlib (extra `plot`).

        The tasks of an evaluation have further pictures.

        Args:
            ax: Axes to draw into; None makes a figure of the picture's size.

        Raises:
            OptionError: If no metric is a proportion.
            MissingExtraError: If matplotlib is not installed.
        """
        return plot_picture("accuracy", ("accuracy",), lambda _: self.draw(), ax)

    def __repr__(self) -> str:
        head = f"Evaluation({self.rows_evaluated} rows evaluated of {self.rows_naive} one by one)"
        return "\n".join([head, *(f"  {task._line()}" for task in self.tasks)])

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: a row for each metric of each task."""
        lines = [
            row(
                label(task.task),
                cell(str(task.figures.n)),
                cell(name),
                cell(number(one.value)),
                cell(number(one.stderr)),
                cell(between(one.low, one.high)),
                cell(number(one.chance)),
            )
            for task in self.tasks
            for name, one in task.figures.metrics.items()
        ]
        heads = ("task", "items", "metric", "value", "± stderr", "95 % interval", "random")
        return table(heads, lines, f"{self.rows_evaluated} rows evaluated of {self.rows_naive} one by one")

    def to_dict(self) -> dict[str, object]:
        """Return the evaluation ready for JSON, with `format` and kind "evaluation".

        The records are left out; `items.jsonl` of a run has them.
        """
        return result_fields(self, "evaluation", "tasks rows_evaluated rows_naive signature")

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with one line for each item.

        The columns are task, index, id, subset, problem, gold, predicted, logp, and one
        for each metric.
        """
        return frame(line for task in self.tasks for line in _frame_rows(task))


def _frame_rows(task: TaskResult) -> list[dict[str, object]]:
    """Return one mapping from column to value for each item of a task."""
    good = [record for record in task.records if record.problem is None]
    columns = {name: metrics.METRICS[name].of_items(good) for name in task.figures.metrics} if good else {}
    positions = {record.index: i for i, record in enumerate(good)}
    lines = []
    for record in task.records:
        line: dict[str, object] = {
            "task": task.task,
            "index": record.index,
            "id": record.id,
            "subset": record.subset,
            "problem": record.problem,
            "gold": list(record.gold),
            "predicted": metrics.predicted_choice(record) if record.problem is None else None,
            "logp": [choice.logp for choice in record.choices],
        }
        i = positions.get(record.index)
        line.update({name: float(values[i]) if i is not None else math.nan for name, values in columns.items()})
        lines.append(line)
    return lines


def record_to_json(record: ItemRecord) -> str:
    """Return a record as one line of JSON, without a line end.

    Floats are written to the last bit (`repr`); -inf is the text "-inf".
    """
    choices = [
        {f.name: _to_jsonable(getattr(choice, f.name)) for f in fields(ChoiceLoglikelihood)}
        for choice in record.choices
    ]
    own = {f.name: getattr(record, f.name) for f in fields(ItemRecord)}
    return json.dumps({**own, "choices": choices}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def record_from_json(text: str, *, path: str = "", line: int | None = None) -> ItemRecord:
    """Return the record in a line that `record_to_json` wrote.

    Raises `InputFileError` for anything else.

    Args:
        text: The line.
        path, line: File and line number, for the error.
    """
    try:
        own = json.loads(text)
        choices = tuple(
            ChoiceLoglikelihood(
                **{
                    **one,
                    **{name: _parse_float(one[name]) for name in ("logp", "logp_unconditional", "logp_premise")},
                    "logp_content_free": tuple(_parse_float(value) for value in one["logp_content_free"]),
                }
            )
            for one in own["choices"]
        )
        return ItemRecord(**{**own, "gold": tuple(own["gold"]), "choices": choices})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputFileError(path, f"not a record of an item: {error}", line=line) from error


def _to_jsonable(value: object) -> object:
    if isinstance(value, tuple):
        return [_to_jsonable(one) for one in value]
    return "-inf" if isinstance(value, float) and value == -math.inf else value


def _parse_float(value: float | str | None) -> float | None:
    return None if value is None else float(value)
