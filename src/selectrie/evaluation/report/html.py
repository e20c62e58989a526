"""HTML pages of an evaluation and of a comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from selectrie.core.output import count, probability, thousands
from selectrie.evaluation import metrics
from selectrie.evaluation.comparison import pair_records
from selectrie.evaluation.metrics import METRICS, Estimate, ItemRecord
from selectrie.evaluation.report.charts import (
    MAX_DOTS,
    ChartDescription,
    Dot,
    Pile,
    Row,
    difference_axis,
    histogram,
    interval_chart,
    round_up,
    scatter_chart,
)
from selectrie.evaluation.report.page import (
    Block,
    Section,
    details_block,
    figure_block,
    heading_block,
    more_note,
    paragraph_block,
    reliability_blocks,
    render_page,
    section,
    table_block,
)
from selectrie.evaluation.results import (
    MAX_CONTEXT,
    Evaluation,
    Figures,
    TaskResult,
    between,
    choices_line,
    number,
    p_value,
    position,
    shorten,
    signed,
    signed_interval,
)

_Pairs: TypeAlias = Sequence[tuple[ItemRecord, ItemRecord]]
MAX_FLIPS = 1000
"""Maximum number of flips shown for each task and direction; the rest is counted."""
MAX_PROBLEMS = 200
_N_PILES = 20


def evaluation_page(evaluation: Evaluation) -> str:
    """Return an HTML page about an evaluation.

    It shows figures, accuracy with 95 % intervals beside random chance, reliability,
    margins, items that could not be measured, and the signature.
    """
    model = evaluation.signature.get("model", "")
    rows = [row for task in evaluation.tasks for row in _task_rows(task, named=len(evaluation.tasks) > 1)]
    picture = figure_block(interval_chart(rows, _describe_rows("Accuracy", rows)), key="intervals") if rows else None
    overview = [] if picture is None else [section("Accuracy", picture)]
    body = [*overview, *map(_task_section, evaluation.tasks), _cost_section(evaluation), _signature_section(evaluation)]
    n = sum(task.figures.n for task in evaluation.tasks)
    return render_page(
        f"Evaluation of {model}", f"{count(len(evaluation.tasks), 'task')}, {count(n, 'item')} measured", body
    )


def comparison_page(comparison: Mapping[str, Any], runs: Sequence[Evaluation]) -> str:
    """Return an HTML page that compares runs with the first one.

    It shows accuracies and their differences with intervals and p-values, the
    probability of the right choice in both runs, items that only one run gets right
    with their texts, and the differences of the signatures.

    Args:
        comparison: The comparison, ready for JSON (`comparison.comparison_dict`), with
            the names of the runs.
        runs: The runs.
    """
    names = comparison["runs"]
    rows = [
        (position(i), name, run.signature.get("model", ""))
        for i, (name, run) in enumerate(zip(names, runs, strict=True))
    ]
    head = table_block("Folder and model", ("run", "folder", "model"), rows, left=3)
    is_many = len(runs) > 2
    sections = [
        _comparison_section(
            task,
            position(task["run"]),
            pair_records(runs[0][task["task"]], runs[task["run"]][task["task"]]),
            is_many=is_many,
        )
        for task in comparison["tasks"]
    ]
    body = [section("Runs", head), *sections, _signatures_section(runs)]
    title = f"{len(runs) if is_many else 'Two'} runs of the same items"
    return render_page(title, (", " if is_many else " and ").join(names), body)


def _metric_heading(name: str) -> str:
    metric = METRICS.get(name)
    return name if metric is None or metric.higher_is_better else f"{name} (lower is better)"


def _estimate_row(label: str, figure: Estimate) -> Row:
    note = f"{100 * figure.value:.1f} % ({100 * figure.low:.1f} – {100 * figure.high:.1f})"
    return Row(label, figure.value, figure.low, figure.high, figure.chance, note)


def _is_charted(name: str, figure: Estimate) -> bool:
    return METRICS[name].is_proportion and math.isfinite(figure.value)


def _task_rows(task: TaskResult, *, named: bool) -> Iterator[Row]:
    for name, figure in task.figures.metrics.items():
        if _is_charted(name, figure):
            yield _estimate_row(f"{task.task} {name}" if named else name, figure)


def _describe_rows(title: str, rows: Sequence[Row]) -> ChartDescription:
    return ChartDescription(title, "; ".join(f"{row.label} {row.note}" + _random_note(row) for row in rows))


def _random_note(row: Row) -> str:
    return "" if row.mark is None else f", random {100 * row.mark:.1f} %"


def _task_section(task: TaskResult) -> Section:
    """Return the section of a task: figures, charts, subsets and problems."""
    shots = f"{count(task.n_shots, 'shot')}, " if task.n_shots else ""
    failed = f", {thousands(task.figures.n_failed)} could not be measured" if task.figures.n_failed else ""
    parts = [paragraph_block(f"{shots}{count(task.figures.n, 'item')}{failed}"), _figures_block(task.figures)]
    columns = [column for column in (_reliability_blocks(task), _margin_blocks(task)) if column]
    if columns:
        parts.append({"kind": "columns", "columns": columns})
    if task.subsets:
        parts += _subset_blocks(task)
    problems = [record for record in task.records if record.problem is not None]
    if problems:
        rows = [(r.id or r.index, r.subset, r.problem) for r in problems[:MAX_PROBLEMS]]
        caption = "Items that could not be measured" + more_note(len(problems) - len(rows))
        parts.append(table_block(caption, ("item", "subset", "why"), rows, left=3))
    return section(f"{task.task}", *parts)


def _figures_block(figures: Figures) -> Block:
    """Return a table of the metrics of a group of items."""
    names = ("metric", "value", "± standard error", "95 % interval", "random")
    rows = [
        (_metric_heading(name), number(one.value), number(one.stderr), between(one.low, one.high), number(one.chance))
        for name, one in figures.metrics.items()
    ]
    return table_block("Figures", names, rows)


def _reliability_blocks(task: TaskResult) -> list[Block]:
    """Return a task's reliability chart and its numbers; [] without calibration."""
    blocks = reliability_blocks(f"Reliability of {task.task}", task.calibration, task.ece)
    return [heading_block("Reliability"), *blocks] if blocks else []


def _margin_blocks(task: TaskResult) -> list[Block]:
    """Return a histogram of a task's margins; [] without choices."""
    sets = [record for record in task.records if record.problem is None and len(record.choices) > 1 and record.gold]
    if not sets:
        return []
    margins = np.array([metrics.margin(record) for record in sets])
    right = np.array([metrics.predicted_choice(record) in record.gold for record in sets])
    piles, beyond = _make_piles(margins, right)
    alternative = "; ".join(f"{p.low:.3g} to {p.high:.3g} nats: {p.right} right, {p.wrong} wrong" for p in piles)
    words = ChartDescription(f"Margins of {task.task}", f"Median {float(np.median(margins)):.3g} nats. {alternative}")
    end = f"; {count(beyond, 'item')} beyond the right end are counted in the last column." if beyond else "."
    caption = f"Median {float(np.median(margins)):.3g} nats{end}"
    picture = histogram(piles, words, "nats between the two most probable choices")
    return [heading_block("Margins"), figure_block(picture, caption, key="bars")]


def _make_piles(margins: np.ndarray, right: np.ndarray) -> tuple[list[Pile], int]:
    """Return histogram columns from 0 to about the 99th percentile of the margins.

    The second value is the number of items with larger margins.
    """
    finite = margins[np.isfinite(margins)]
    end = float(np.quantile(finite, 0.99)) if len(finite) else 0.0
    edges = np.linspace(0.0, round_up(end or 1.0), _N_PILES + 1)
    pile_of = np.minimum(np.searchsorted(edges, margins, side="right") - 1, _N_PILES - 1)
    piles = [
        Pile(
            float(edges[i]),
            float(edges[i + 1]),
            int((right & (pile_of == i)).sum()),
            int((~right & (pile_of == i)).sum()),
        )
        for i in range(_N_PILES)
    ]
    return piles, int((margins > edges[-1]).sum())


def _subset_blocks(task: TaskResult) -> list[Block]:
    """Return a chart and a table of a task's subsets."""
    name = next((name for name, figure in task.figures.metrics.items() if _is_charted(name, figure)), None)
    names = ("subset", "items", *map(_metric_heading, task.figures.metrics))
    rows = [
        (label, part.n, *(number(figure.value) for figure in part.metrics.values()))
        for label, part in task.subsets.items()
    ]
    numbers = details_block(f"The numbers of {count(len(rows), 'subset')}", table_block("Subsets", names, rows))
    if name is None:
        return [heading_block("Subsets"), numbers]
    lines = [
        _estimate_row(label, part.metrics[name])
        for label, part in task.subsets.items()
        if _is_charted(name, part.metrics[name])
    ]
    lines.sort(key=lambda row: -row.value)
    picture = interval_chart(lines, _describe_rows(f"{name} of the subsets of {task.task}", lines))
    return [heading_block(f"Subsets: {name}"), figure_block(picture, key="intervals"), numbers]


def _cost_section(evaluation: Evaluation) -> Section:
    """Return a section on the number of rows evaluated and saved."""
    evaluated, naive = evaluation.rows_evaluated, evaluation.rows_naive
    share = f": {1 - evaluated / naive:.1%} saved, {naive / evaluated:.2f} × fewer" if evaluated and naive else ""
    words = (
        f"{thousands(evaluated)} rows evaluated, where evaluating every context and choice alone takes "
        f"{thousands(naive)}{share}."
    )
    return section("Cost", paragraph_block(words))


def _signature_section(evaluation: Evaluation) -> Section:
    rows = list(evaluation.signature.items())
    return section("Signature", table_block("What the log-probabilities depend on", ("fact", "value"), rows, left=2))


def _signatures_section(runs: Sequence[Evaluation]) -> Section:
    """Return a table of the signatures of the runs; differences come first."""
    names = list(dict.fromkeys(name for run in runs for name in run.signature))
    rows = []
    for name in names:
        values = [run.signature.get(name, "") for run in runs]
        rows.append((name, *values, "same" if all(one == values[0] for one in values) else "differs"))
    rows.sort(key=lambda row: row[-1] == "same")
    heads = ("fact", *map(position, range(len(runs))), "compared")
    return section("Signatures", table_block("What the log-probabilities depend on", heads, rows, left=len(heads)))


def _comparison_section(task: Mapping[str, Any], other: str, pairs: _Pairs, *, is_many: bool) -> Section:
    """Return the section that compares one task of the first run and of another one.

    Args:
        task: The comparison of the task.
        other: The other run's position in words.
        pairs: The records of the items that both measured.
        is_many: Whether there are more than two runs.
    """
    differences = task["differences"]
    names = ("metric", "first", other, "difference", "95 % interval", "p")
    rows = [
        (
            _metric_heading(one["metric"]),
            number(one["first"]),
            number(one["second"]),
            signed(one["difference"]),
            signed_interval(one["interval"]),
            p_value(one["p"]),
        )
        for one in differences
    ]
    left_out = f"; {count(task['n_left_out'], 'item')} left out" if task["n_left_out"] else ""
    parts = [
        paragraph_block(f"{count(task['n'], 'item')} that both measured{left_out}"),
        table_block(f"{other.capitalize()} less first", names, rows),
    ]
    lines = difference_rows([task])
    if lines:
        parts.append(_accuracies_block(task, other, pairs))
        caption = (
            f"{other.capitalize()} less first, percentage points, with 95 % intervals of paired draws; "
            "hollow: no difference lies within."
        )
        parts.append(figure_block(difference_chart(lines, f"Differences of {task['task']}"), caption))
    parts += _scatter_blocks(task["task"], other, pairs)
    gained, lost = task["gained"], task["lost"]
    words_of_flips = (
        f"{count(len(gained), 'item')} right in the {other} run alone, {thousands(len(lost))} in the first alone."
    )
    parts += [heading_block("Flips"), paragraph_block(words_of_flips)]
    for flips, alone in ((gained, other), (lost, "first")):
        parts += _flip_blocks(flips, f"Right in the {alone} alone", other)
    return section(f"{task['task']}, first and {other}" if is_many else str(task["task"]), *parts)


def _accuracies_block(task: Mapping[str, Any], other: str, pairs: _Pairs) -> Block:
    """Return a chart of the proportions of both runs, with their intervals."""
    rows = [
        _estimate_row(f"{one['metric']}, {name}", metrics.estimate(METRICS[one["metric"]], records))
        for one in task["differences"]
        if one["p"] is not None
        for name, records in zip(("first", other), zip(*pairs, strict=True), strict=True)
    ]
    return figure_block(interval_chart(rows, _describe_rows(f"Both runs of {task['task']}", rows)), key="intervals")


def _scatter_blocks(task: str, other: str, pairs: _Pairs) -> list[Block]:
    """Return a chart of the right choices' probabilities in both runs; [] for none."""
    dots = []
    for pair in pairs:
        if len(pair[0].choices) < 2 or len(pair[0].choices) != len(pair[1].choices) or not pair[0].gold:
            continue
        first, second = (float(metrics.posterior(one)[list(one.gold)].sum()) for one in pair)
        was_right, is_right = (metrics.predicted_choice(one) in one.gold for one in pair)
        kind = "" if was_right == is_right else "gained" if is_right else "lost"
        about = f"{pair[0].id or pair[0].index}: first {probability(first)}, {other} {probability(second)}"
        dots.append(Dot(first, second, kind, about))
    if not dots:
        return []
    higher, lower = (sum(sign * (one.y - one.x) > 0 for one in dots) for sign in (1, -1))
    caption = (
        f"Above the line, the right choice is more probable in the {other} run: {count(higher, 'item')}; "
        f"below, less: {thousands(lower)}." + (f" {thousands(MAX_DOTS)} are drawn." if len(dots) > MAX_DOTS else "")
    )
    means = [sum(values) / len(dots) for values in ([one.x for one in dots], [one.y for one in dots])]
    alternative = f"{caption} Mean of the first {probability(means[0])}, of the {other} {probability(means[1])}."
    words = ChartDescription(f"Probability of the right choice, {task}", alternative)
    picture = scatter_chart(dots, words, ("in the first run", f"in the {other} run"))
    return [heading_block("Probability of the right choice"), figure_block(picture, caption, key="flips")]


def difference_rows(tasks: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> list[Row]:
    """Return a chart's row for each difference of two proportions.

    Args:
        tasks: Comparisons, ready for JSON.
        names: Names of the runs, for the labels; empty if the metrics are enough.
    """
    return [
        _difference_row(one, f"{task['task']} {one['metric']} {names[task['run']]}" if names else one["metric"])
        for task in tasks
        for one in task["differences"]
        if one["p"] is not None
    ]


def difference_chart(rows: Sequence[Row], title: str) -> str:
    """Return an SVG chart of differences in percentage points."""
    words = ChartDescription(f"{title}, percentage points", "; ".join(f"{row.label} {row.note}" for row in rows))
    return interval_chart(rows, words, lambda start, end: difference_axis(rows, start, end))


def _difference_row(one: Mapping[str, Any], label: str) -> Row:
    low, high = one["interval"]["low"], one["interval"]["high"]
    note = f"{100 * one['difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
    return Row(label, one["difference"], low, high, 0.0, note)


def _flip_blocks(flips: Sequence[Mapping[str, Any]], title: str, other: str) -> list[Block]:
    """Return a table of items that only one run gets right; [] for none."""
    if not flips:
        return []
    table = [
        {
            "item": one["id"] or one["index"],
            "subset": one["subset"],
            "text": None if one["context"] is None else shorten(one["context"], MAX_CONTEXT),
            "choices": choices_line(one, other),
            "right": ", ".join(map(str, one["gold"])),
            "first chose": one["first"],
            f"{other} chose": one["second"],
            "margin, first": number(one["margin_first"]),
            other: number(one["margin_second"]),
        }
        for one in flips[:MAX_FLIPS]
    ]
    words = [name for name in ("item", "subset", "text", "choices") if any(row[name] for row in table)]
    names = [*words, *list(table[0])[4:]]
    rows = [tuple(row[name] for name in names) for row in table]
    return [table_block(title + more_note(len(flips) - len(rows)), names, rows, left=len(words))]
