"""The report of a page's slots and of a template's needs, for people at a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from selectrie.cli.report.beam import beam_facts
from selectrie.cli.report.summaries import (
    advice_facts,
    ahead_words,
    cost_sentence,
    slot_facts,
    terminator_words,
    unnamed_model,
)
from selectrie.cli.report.terminal import Ranking, bar, facts_table
from selectrie.core.output import count, probability, quoted
from selectrie.results import BeamResult, Generation, JointSelection, Page, SampledChoice, Selection, SlotEvent
from selectrie.template.analysis.template import Template
from selectrie.template.syntax.ast import GenEach, Slot, line_and_column, walk

_BAR_CELLS = 16
_MIN_TEXT_CELLS = 8


def page_report(page: Page, *, top: int = 3, unnamed: str | None = None) -> RenderableType:
    """Return the report of a page: a block for each slot, in the order decided.

    A block has the slot's facts and its `top` candidates with bars. The selects of a
    `joint` tag share one block.

    Args:
        unnamed: Name of the default model if the caller named no model, else None.
    """
    parts: list[RenderableType] = []
    reported: set[int] = set()
    for slot in page.slots:
        if id(slot.record) not in reported:
            reported.add(id(slot.record))
            parts += [*_block(slot, top), Text()]
    advice = advice_facts([one for one in page.warnings if not one.where])  # slots have theirs above
    facts = [("page", _page_words(page)), *advice, ("cost", cost_sentence(page.cost)), *unnamed_model(unnamed)]
    return Group(*parts, facts_table(facts))


def _page_words(page: Page) -> str:
    return f"{count(len(page.slots), 'slot')}, {count(len(page.text), 'character')}, seed {page.seed}"


def _block(slot: SlotEvent, top: int) -> Iterator[RenderableType]:
    """Yield the heading, facts and candidates of one slot."""
    record = slot.record
    if isinstance(record, JointSelection):
        yield _heading(" + ".join(record.names), "joint", slot)
        yield facts_table(_joint_facts(record))
        yield _Candidates([(" · ".join(map(quoted, one.texts)), one.probability, one.logp) for one in record.top(top)])
        return
    yield _heading(slot.path or slot.name, slot.kind, slot)
    if isinstance(record, SampledChoice):
        words = f"{quoted(record.text)} p {probability(record.probability)} at temperature {record.temperature:g}"
        yield facts_table(
            [("drawn", f"{words}, seed {record.seed}"), *slot_facts(record.selection, winner="most likely")]
        )
        yield Ranking(record.selection, top)
    elif isinstance(record, Selection):
        yield facts_table(slot_facts(record))
        yield Ranking(record, top)
    elif isinstance(record, BeamResult):
        facts = dict(beam_facts(record, remedy="a select of the same texts can"))
        yield facts_table([("chosen", facts.pop("best")), *facts.items()])
        shown = record.shown[:top]
        yield _Candidates([(quoted(one.text), math.exp(one.logp), one.logp) for one in shown])
    elif isinstance(record, Generation):
        yield facts_table(_generation_facts(record))
    else:
        yield facts_table([("drawn", quoted(str(slot.value))), ("cost", cost_sentence(record.cost))])


def _heading(name: str, kind: str, slot: SlotEvent) -> Text:
    where = f", {slot.position}" if slot.position else ""
    return Text(f"{name} ({kind}{where}{', hidden' if slot.hidden else ''})", "bold")


def _joint_facts(record: JointSelection) -> list[tuple[str, str]]:
    certificate = record.certificate
    ahead = ahead_words(record.margin, f"{record.margin:.3f} nats", is_joint=True)
    ahead = ahead if math.isfinite(record.margin) else "no other assignment"
    proof = (
        f"proved, {count(record.n_assignments, 'assignment')}" if certificate.proved else "not proved: budget used up"
    )
    return [
        ("chosen", f"{', '.join(map(quoted, record.best.texts))} p {probability(record.probability)}, {ahead}"),
        *advice_facts(record.warnings),
        ("proof", f"{proof}; {count(certificate.nodes_evaluated, 'node')} evaluated"),
        ("ended by", terminator_words(record.terminator)),
        ("cost", cost_sentence(record.cost)),
    ]


_FINISH_WORDS = {
    "eog": "an end-of-generation token",
    "length": "max_tokens",
    "automaton": "nothing may follow",
    "deadline": "the deadline",
}


def _generation_facts(record: Generation) -> list[tuple[str, str]]:
    facts = [
        ("chosen" if at == 0 else "drawn", f"{quoted(one.text)} logp {one.logp:.3f}, {count(len(one.tokens), 'token')}")
        for at, one in enumerate(record)
    ]
    first = record[0]
    ended = (
        f"the text {quoted(first.stop)}" if first.stop is not None else _FINISH_WORDS.get(first.finish, first.finish)
    )
    return [*facts, ("ended by", ended), ("cost", cost_sentence(record.cost))]


class _Candidates:
    """A table of candidates that fits its width.

    It has text, bar, probability and log-probability.
    """

    def __init__(self, rows: Sequence[tuple[str, float, float]]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        numbers = [(str(at), probability(p), f"{logp:.3f}") for at, (_, p, logp) in enumerate(self._rows, start=1)]
        widths = [max(len(row[at]) for row in numbers) for at in range(3)]
        free = options.max_width - sum(widths) - 2 * 4  # for text and bar
        cells = _BAR_CELLS if free >= 2 * _BAR_CELLS else 0
        text = max(_MIN_TEXT_CELLS, free - cells)
        text = min(text, max(cell_len(row[0]) for row in self._rows))
        table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column("#", justify="right", width=widths[0])
        table.add_column("choice", width=max(text, len("choice")), overflow="ellipsis", no_wrap=True)
        if cells:
            table.add_column("", width=cells, no_wrap=True)
        table.add_column("p", justify="right", width=widths[1], no_wrap=True)
        table.add_column("logp", justify="right", width=widths[2], no_wrap=True)
        for (words, p, _), (rank, share, logp) in zip(self._rows, numbers, strict=True):
            line = [rank, words, *([bar(p, cells)] if cells else []), share, logp]
            table.add_row(*map(Text, line), style="bold green" if rank == "1" else "")
        yield table


@dataclass(frozen=True, slots=True)
class SlotPosition:
    """A slot of a template and the position of its tag.

    Attributes:
        kind: "select", "gen", "beam" or "geneach".
        file, line, column: The position of its tag.
    """

    name: str
    kind: str
    file: str
    line: int
    column: int


def template_report(template: Template) -> RenderableType:
    """Return the values that the template needs, its slots, and its files."""
    slots = slot_positions(template)
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("slot", "kind", "position"):
        table.add_column(name, overflow="fold")
    for slot in slots:
        table.add_row(*map(Text, (slot.name, slot.kind, f"{slot.file}:{slot.line}:{slot.column}")))
    return Group(facts_table(_template_facts(template)), Text(), table if slots else Text("no slots"))


def _template_facts(template: Template) -> list[tuple[str, str]]:
    included = sorted(template.documents)
    return [
        ("template", f"{template.name}, {template.document.dialect}"),
        ("needs", ", ".join(template.needs) or "no values"),
        *([("includes", ", ".join(included))] if included else []),
    ]


def template_fields(template: Template) -> dict[str, object]:
    """Return the content of `template_report`, JSON-ready."""
    return {
        "kind": "template",
        "name": template.name,
        "dialect": template.document.dialect,
        "needs": list(template.needs),
        "includes": sorted(template.documents),
        "slots": [
            {field.name: getattr(slot, field.name) for field in fields(slot)} for slot in slot_positions(template)
        ],
    }


def slot_positions(template: Template) -> list[SlotPosition]:
    """Return every slot of the template and its includes, in the order written."""
    documents = [template.document, *(template.documents[path] for path in sorted(template.documents))]
    return [
        SlotPosition(
            segment.name,
            segment.kind if isinstance(segment, Slot) else "geneach",
            document.name,
            *line_and_column(document.source, segment.span.start),
        )
        for document in documents
        for segment, _ in walk(document.body)
        if isinstance(segment, Slot | GenEach)
    ]
