"""The reports of results for people at a terminal, readable without colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from selectrie.cli.report.layout import Units
from selectrie.cli.report.screen import Screen
from selectrie.cli.report.summaries import plan_facts, selection_facts, text_score_facts, unnamed_model
from selectrie.cli.report.tree import LEGEND, tree_lines
from selectrie.core.output import count, interval, probability, put, quoted, quoted_bytes
from selectrie.results import ChoiceScore, Selection, TextScore, TokenPlan
from selectrie.results.plain import between

_BAR_CELLS = 24
_MIN_BAR_CELLS = 5
_PARTS = " ▏▎▍▌▋▊▉"
_GREY = "bright_black"
_WARNING = "bold yellow"


def show(report: RenderableType, file: TextIO, *, width: int | None = None) -> None:
    """Write a report to `file`.

    It is coloured on a terminal unless NO_COLOR is set. Elsewhere it is plain, without
    trailing spaces.
    """
    screen = Screen(file, width=width)
    with screen.capture() as capture:
        screen.print(report)
    text = capture.get()
    put(text if screen.is_terminal else "".join(line.rstrip() + "\n" for line in text.split("\n")[:-1]), file)


def selection_report(
    selection: Selection, *, top: int = 10, explain: bool = False, limit: int = 60, unnamed: str | None = None
) -> RenderableType:
    """Return the report of a selection: the `top` choices with bars, and its facts.

    Args:
        explain: Whether to add facts on proof, cost and scoring, and the trie with its
            `limit` heaviest nodes.
        unnamed: Name of the default model if the caller named no model, else None.
    """
    facts = [*selection_facts(selection, explain=explain), *unnamed_model(unnamed)]
    parts: list[RenderableType] = [Ranking(selection, top), Text(), facts_table(facts)]
    if explain:
        label = _choice_label(selection)
        lines = tree_lines(selection.trie(limit), label)
        parts += [Text(), Text(LEGEND, _GREY), *lines]
    return Group(*parts)


def text_score_report(score: TextScore, *, per_token: bool = False, unnamed: str | None = None) -> RenderableType:
    """Return the report of a `TextScore`.

    Args:
        per_token: Whether to add a row for each token.
        unnamed: As for `selection_report`.
    """
    facts = facts_table([*text_score_facts(score), *unnamed_model(unnamed)])
    if not per_token:
        return facts
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("token", justify="right")
    table.add_column("piece", no_wrap=True, overflow="ellipsis")
    table.add_column("logp", justify="right")
    for token in score.tokens:
        piece = token.spelling if token.spelling and not token.piece else quoted_bytes(token.piece)
        table.add_row(str(token.id), Text(piece), f"{token.logp:.4f}")
    return Group(facts, Text(), table)


def token_plan_report(
    plan: TokenPlan, choices: Sequence[str], *, top: int = 10, unnamed: str | None = None
) -> RenderableType:
    """Return the report of a `TokenPlan`.

    It has the prompt's tokens, the paths of the first `top` choices, and the trie that
    would be evaluated.

    Args:
        unnamed: As for `selection_report`.
    """
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("choice", overflow="fold", ratio=2)
    table.add_column("tokens after the context", overflow="fold", ratio=3)
    table.add_column("shift", justify="right")
    for text, path, shift in list(zip(choices, plan.choices, plan.boundary_shift, strict=True))[:top]:
        table.add_row(Text(quoted(text)), _token_text(path), str(shift) if shift else "")
    facts = facts_table([*plan_facts(plan), *unnamed_model(unnamed)])
    parts: list[RenderableType] = [facts, Text(), Text("prompt", "bold"), _token_text(plan.prompt)]
    if plan.context != plan.prompt:
        parts += [Text(), Text("context that all choices share", "bold"), _token_text(plan.context)]
    parts += [Text(), table]
    if len(choices) > top:
        parts.append(Text(f"… {count(len(choices) - top, 'more choice')}", _GREY))
    lines = tree_lines(plan.trie, lambda index: f"= {quoted(choices[index])}", root="(context)")
    return Group(*parts, Text(), *lines)


def facts_table(facts: Sequence[tuple[str, str]]) -> RenderableType:
    """Return a table of facts; a name that begins with "!" marks a warning."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, sentence in facts:
        table.add_row(Text(name, _WARNING if name.startswith("!") else "bold"), Units.of(sentence))
    return table


class Ranking:
    """The table of choices, which fits the width that it is given."""

    def __init__(self, selection: Selection, top: int) -> None:
        self._selection = selection
        self._shown = selection.top(top, distinct=True)
        self._scored = selection.rule != "joint" or any(c.score != c.logp for c in self._shown)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = [self._cells(rank, choice) for rank, choice in enumerate(self._shown, start=1)]
        head = ["#", "choice", "p", "logp", *(["score"] if self._scored else []), "margin"]
        widths = [max(cell_len(row[at]) for row in [head, *rows]) for at in range(len(head))]
        free = options.max_width - sum(widths) - 2 * len(head) + widths[1]  # for text and bar
        widths[1] = min(widths[1], max(8, free - (10 if free >= 40 else 0)))
        cells = min(_BAR_CELLS, free - widths[1])
        cells = cells if cells >= _MIN_BAR_CELLS else 0
        table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for at, name in enumerate(head):
            text = at == 1
            table.add_column(
                name, width=widths[at], justify="left" if text else "right", no_wrap=True, overflow="ellipsis"
            )
            if text and cells:
                table.add_column("", width=cells, no_wrap=True)
        for choice, row in zip(self._shown, rows, strict=True):
            style = "bold green" if choice.index == self._selection.index else _GREY if choice.pruned else ""
            line = [Text(cell) for cell in row]
            if cells:
                line.insert(2, Text(bar(choice.probability or 0.0, cells)))
            table.add_row(*line, style=style)
        yield table
        rest = int(self._selection.choices.distinct.sum()) - len(self._shown)
        if rest:
            yield Text(f"… {count(rest, 'more choice')}", _GREY)

    def _cells(self, rank: int, choice: ChoiceScore) -> list[str]:
        twins = self._selection.choices.duplicates(choice.index)
        text = quoted(choice.text) + (f" (also {', '.join(map(str, twins[1:]))})" if len(twins) > 1 else "")
        if choice.score is None or choice.logp is None or choice.probability is None:
            score = [""] if self._scored else []
            return [str(rank), text, "pruned", f"≤ {choice.logp_upper:.3f}", *score, ""]
        p = interval(choice.probability_low, choice.probability_high)
        score = [f"{choice.score:.3f}"] if self._scored else []
        behind = self._selection.score - choice.score
        margin = "" if choice.index == self._selection.index else f"{-behind:.3f}" if behind else "tie"
        return [str(rank), text, p, between(choice.logp, choice.logp_upper), *score, margin]


def bar(p: float, cells: int) -> str:
    """Return a bar for the probability `p` of up to `cells` characters, in eighths.

    If p > 0, at least an eighth of a character is shown.
    """
    eighths = min(8 * cells, max(round(p * 8 * cells), int(p > 0)))
    return "█" * (eighths // 8) + (_PARTS[eighths % 8] if eighths % 8 else "")


def _choice_label(selection: Selection) -> Callable[[int], str]:
    table = selection.choices

    def label(index: int) -> str:
        choice = table[index]
        if choice.probability is None:
            return f"= {quoted(choice.text)}  pruned, logp ≤ {choice.logp_upper:.3f}"
        return f"= {quoted(choice.text)}  p {probability(choice.probability)}"

    return label


def _token_text(path: Sequence[tuple[int, str]]) -> Units:
    """Return tokens one after the other, each quoted and with its id."""
    return Units([(f"{quoted(spelling)}:{token}", "") for token, spelling in path] or [("(none)", _GREY)])
