"""HTML pages of an evaluation and of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selectrie.core.notation import count, rate, thousands
from selectrie.evaluation.comparison import Comparison
from selectrie.evaluation.metrics import METRICS
from selectrie.evaluation.report.page import (
    Block,
    Section,
    columns_block,
    details_block,
    figure_blocks,
    heading_block,
    more_note,
    paragraph_block,
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

MAX_FLIPS = 1000
"""Maximum number of flips shown for each task and direction; the rest is counted."""
MAX_PROBLEMS = 200


def evaluation_page(evaluation: Evaluation) -> str:
    """Return an HTML page about an evaluation.

    It shows figures, accuracy with 95 % intervals beside random chance, reliability,
    margins, items that could not be measured, and the signature.
    """
    model = evaluation.signature.get("model", "")
    accuracies = figure_blocks(evaluation.draw())
    overview = [section("Accuracy", *accuracies)] if accuracies else []
    body = [*overview, *map(_task_section, evaluation.tasks), _cost_section(evaluation), _signature_section(evaluation)]
    n = sum(task.figures.n for task in evaluation.tasks)
    return render_page(
        f"Evaluation of {model}", f"{count(len(evaluation.tasks), 'task')}, {count(n, 'item')} measured", body
    )


def comparison_page(comparisons: Sequence[Comparison], runs: Sequence[Evaluation], names: Sequence[str]) -> str:
    """Return an HTML page that compares runs with the first one.

    It shows accuracies and their differences with intervals and p-values, the
    probability of the right choice in both runs, items that only one run gets right
    with their texts, and the differences of the signatures.

    Args:
        comparisons: What `compare` returned for the runs.
        runs: The runs.
        names: Their names.
    """
    rows = [
        (position(i), name, run.signature.get("model", ""))
        for i, (name, run) in enumerate(zip(names, runs, strict=True))
    ]
    head = table_block("Folder and model", ("run", "folder", "model"), rows, left=3)
    is_many = len(runs) > 2
    sections = [_comparison_section(one, is_many=is_many) for one in comparisons]
    body = [section("Runs", head), *sections, _signatures_section(runs)]
    title = f"{len(runs) if is_many else 'Two'} runs of the same items"
    return render_page(title, (", " if is_many else " and ").join(names), body)


def _metric_heading(name: str) -> str:
    metric = METRICS.get(name)
    return name if metric is None or metric.higher_is_better else f"{name} (lower is better)"


def _task_section(task: TaskResult) -> Section:
    """Return the section of a task: figures, charts, subsets and problems."""
    shots = f"{count(task.n_shots, 'shot')}, " if task.n_shots else ""
    failed = f", {thousands(task.figures.n_failed)} could not be measured" if task.figures.n_failed else ""
    parts = [paragraph_block(f"{shots}{count(task.figures.n, 'item')}{failed}"), _figures_block(task.figures)]
    charts = (figure_blocks(task.draw(name), name.capitalize()) for name in ("reliability", "margins"))
    parts.append(columns_block(*filter(None, charts)))
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


def _subset_blocks(task: TaskResult) -> list[Block]:
    """Return a chart and a table of a task's subsets."""
    names = ("subset", "items", *map(_metric_heading, task.figures.metrics))
    rows = [
        (label, part.n, *(number(figure.value) for figure in part.metrics.values()))
        for label, part in task.subsets.items()
    ]
    numbers = details_block(f"The numbers of {count(len(rows), 'subset')}", table_block("Subsets", names, rows))
    return [heading_block("Subsets"), *figure_blocks(task.draw("subsets")), numbers]


def _cost_section(evaluation: Evaluation) -> Section:
    """Return a section on the number of rows evaluated and saved."""
    evaluated, naive = evaluation.rows_evaluated, evaluation.rows_naive
    words = f"{thousands(evaluated)} rows evaluated, where evaluating every context and choice alone takes "
    words += thousands(naive)
    if evaluated and naive:
        words += f": {rate(1 - evaluated / naive)} saved, {naive / evaluated:.2f} × fewer"
    return section("Cost", paragraph_block(f"{words}."))


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


def _comparison_section(comparison: Comparison, *, is_many: bool) -> Section:
    """Return the section that compares one task of the first run and of another one.

    Args:
        comparison: The comparison of the task.
        is_many: Whether there are more than two runs.
    """
    task: dict[str, Any] = comparison.to_dict()
    other = position(comparison.run)
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
        for one in task["differences"]
    ]
    left_out = f"; {count(comparison.n_left_out, 'item')} left out" if comparison.n_left_out else ""
    parts = [
        paragraph_block(f"{count(comparison.n, 'item')} that both measured{left_out}"),
        table_block(f"{other.capitalize()} less first", names, rows),
        *figure_blocks(comparison.draw("accuracies")),
        *figure_blocks(comparison.draw("differences")),
        *figure_blocks(comparison.draw("probabilities"), "Probability of the right choice"),
    ]
    gained, lost = task["gained"], task["lost"]
    words_of_flips = (
        f"{count(len(gained), 'item')} right in the {other} run alone, {thousands(len(lost))} in the first alone."
    )
    parts += [heading_block("Flips"), paragraph_block(words_of_flips)]
    for flips, alone in ((gained, other), (lost, "first")):
        parts += _flip_blocks(flips, f"Right in the {alone} alone", other)
    return section(f"{comparison.task}, first and {other}" if is_many else comparison.task, *parts)


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
