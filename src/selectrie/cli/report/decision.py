"""The report of a decision for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from selectrie.cli.report.summaries import advice_facts, unnamed_model
from selectrie.cli.report.terminal import facts_table
from selectrie.core.output import count, probability, quoted
from selectrie.decide.answers import Answer, ChoiceAnswer, Decision, PredicateAnswer

_MAX_ROWS = 10
"""Maximum number of options of a question that are shown."""


def decision_report(decision: Decision, *, unnamed: str | None = None) -> RenderableType:
    """Return the report of a decision: its answers, then the options of each.

    `unnamed` is the name of the default model if the caller named none, else None.
    """
    table = _table("question", "answer", "p", "confidence", "label mass", "margin", "")
    for name, answer in decision.items():
        notes = [answer.abstained] if answer.abstained else []
        notes += ["tie"] if answer.is_tie else []
        notes += [f"spread {answer.spread:.3g}"] if answer.spread else []
        notes += ["orders disagree"] if answer.order_dependent else []
        table.add_row(
            Text(name),
            Text(_value(answer)),
            probability(_probability(answer)),
            f"{answer.confidence:.3f}",
            f"{answer.label_mass:.3g}",
            f"{answer.margin:.3f}",
            Text("; ".join(notes)),
        )
    parts: list[RenderableType] = [table, Text()]
    for name, answer in decision.items():
        rows = list(_options(answer))
        if rows:
            own = _table(name, "p")
            for label, p in rows[:_MAX_ROWS]:
                own.add_row(Text(label), probability(p))
            parts += [own]
            if len(rows) > _MAX_ROWS:
                parts.append(Text(f"… {len(rows) - _MAX_ROWS} more"))
            parts.append(Text())
    signature = next(iter(decision.values())).signature
    layouts = " and ".join(dict.fromkeys(answer.signature.layout for answer in decision.values()))
    usage = decision.usage
    facts = [
        *advice_facts(decision.warnings),
        ("template", f"{signature.template}, {layouts}, {signature.rule}"),
        (
            "cost",
            f"{count(usage.cost.rows, 'row')} for {count(usage.prompts, 'prompt')} of {usage.input_tokens} tokens",
        ),
        *unnamed_model(unnamed),
    ]
    return Group(*parts, facts_table(facts))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index in (0, 1, 6) and name != "p" else "right")
    return table


def _value(answer: Answer) -> str:
    if isinstance(answer, ChoiceAnswer):
        return quoted(answer.text)
    if isinstance(answer, PredicateAnswer):
        return "true" if answer.value else "false"
    return f"{answer.score:.3f} {quoted(answer.level)}"


def _probability(answer: Answer) -> float:
    if isinstance(answer, ChoiceAnswer | PredicateAnswer):
        return answer.probability
    return answer.probabilities[answer.value]


def _options(answer: Answer) -> Iterator[tuple[str, float]]:
    """Yield options and probabilities: choices best first, levels in order."""
    if isinstance(answer, PredicateAnswer):
        return
    if isinstance(answer, ChoiceAnswer):
        best = sorted(answer.probabilities.items(), key=lambda one: -one[1])
        yield from ((quoted(value) if isinstance(value, str) else str(value), p) for value, p in best)
    else:
        yield from ((f"{value:g} {quoted(answer.legend[value])}", p) for value, p in answer.probabilities.items())
