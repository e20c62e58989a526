r"""Comparisons of runs as Markdown, LaTeX, CSV and SVG, for papers and programs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from selectrie.core.notation import escaped
from selectrie.errors import OptionError
from selectrie.evaluation.report.charts import draw_differences
from selectrie.evaluation.results import (
    MAX_CONTEXT,
    choices_line,
    number,
    p_value,
    position,
    shorten,
    shown_flips,
    signed,
    signed_interval,
)
from selectrie.results.drawing.shapes import to_file

Comparison: TypeAlias = Mapping[str, Any]
"""A comparison, ready for JSON (`comparison.comparison_dict`)."""

HEADS = ("task", "metric", "run", "items", "first", "value", "difference", "95 % interval", "p")
N_WORDS = 3
"""Number of columns of words; the others are numbers."""
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def to_csv(comparison: Comparison, n_flips: int) -> str:
    """Return a line for each metric of each run, with numbers in full."""
    del n_flips
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((*HEADS[:-2], "low", "high", "p"))
    for task in comparison["tasks"]:
        for one in task["differences"]:
            numbers = (one["first"], one["second"], one["difference"], *one["interval"].values(), one["p"])
            writer.writerow((*_words(comparison, task, one), task["n"], *numbers))
    return file.getvalue()


def to_markdown(comparison: Comparison, n_flips: int) -> str:
    """Return a table of the figures, and tables of items that one run gets right."""
    parts = [f"first: {_in_markdown(comparison['runs'][0])}", _markdown_table(HEADS, _rows(comparison), N_WORDS)]
    for task in comparison["tasks"]:
        other = position(task["run"])
        rows = [
            (sign, str(one["id"] or one["index"]), shorten(one["context"] or "", MAX_CONTEXT), choices_line(one, other))
            for sign, one in shown_flips(task, n_flips)
        ]
        about = f"{task['task']}, {comparison['runs'][task['run']]}"
        alone = f"right in this run alone {len(task['gained'])}, in the first alone {len(task['lost'])}"
        parts.append(f"{_in_markdown(about)}: {alone}")
        if rows:
            parts.append(_markdown_table(("", "item", "text", "choices"), rows, 4))
    return "\n\n".join(parts) + "\n"


def to_latex(comparison: Comparison, n_flips: int) -> str:
    """Return a table of the figures, which needs no package."""
    del n_flips
    lines = [" & ".join(map(_in_latex, row)) + r" \\" for row in (HEADS, *_rows(comparison))]
    columns = "l" * N_WORDS + "r" * (len(HEADS) - N_WORDS)
    body = [lines[0], r"\hline", *lines[1:]]
    comment = f"% first: {escaped(comparison['runs'][0])}"
    return "\n".join([comment, rf"\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}"]) + "\n"


def to_svg(comparison: Comparison, n_flips: int) -> str:
    """Return a chart of the differences of accuracies, with their intervals."""
    del n_flips
    drawing = draw_differences(f"Differences from {comparison['runs'][0]}", comparison["tasks"], comparison["runs"])
    if drawing is None:
        raise OptionError("format", "svg", "runs with a metric that is a proportion, such as acc")
    return to_file(drawing)


FORMATS: Mapping[str, Callable[[Comparison, int], str]] = MappingProxyType(
    {"markdown": to_markdown, "latex": to_latex, "csv": to_csv, "svg": to_svg}
)
"""Maps the name of a format to its writer, which takes the number of flips to show."""


def _words(comparison: Comparison, task: Mapping[str, Any], one: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the task, the metric and the name of the run of a difference."""
    return task["task"], one["metric"], comparison["runs"][task["run"]]


def _rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return the cells of each difference, in the order of `HEADS`."""
    return [
        (
            *_words(comparison, task, one),
            str(task["n"]),
            number(one["first"]),
            number(one["second"]),
            signed(one["difference"]),
            signed_interval(one["interval"]),
            p_value(one["p"]),
        )
        for task in comparison["tasks"]
        for one in task["differences"]
    ]


def _markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], n_words: int) -> str:
    rule = ["---" if i < n_words else "---:" for i in range(len(heads))]
    lines = (heads, rule, *(tuple(map(_in_markdown, row)) for row in rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _in_markdown(text: str) -> str:
    """Return a text on one line, with the characters of Markdown escaped."""
    return re.sub(r"([\\`*_\[\]<>|#&$])", r"\\\1", escaped(text))


def _in_latex(text: str) -> str:
    """Return a text on one line, with the characters of LaTeX escaped."""
    return re.sub(r"[\\~^]|[&%$#_{}]", lambda match: _LATEX.get(match[0], "\\" + match[0]), escaped(text))
