"""Reports of results for people at a terminal, readable without colour.

There is one for each kind of result, and one for `render --check`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from selectrie.cli.report.summaries import (
    advice_facts,
    plan_facts,
    selection_facts,
    slot_facts,
    terminator_words,
    text_score_facts,
    unnamed_model,
)
from selectrie.cli.report.terminal import GREEDY_MARK, LEGEND, WINNER_MARK, Units, tree_lines
from selectrie.core.output import count, interval, probability, quoted, quoted_bytes
from selectrie.decide.answers import Decision, DecisionUsage
from selectrie.results import (
    BeamResult,
    ChoiceScore,
    Extraction,
    Generation,
    Hypothesis,
    JointSelection,
    Page,
    SampledChoice,
    Selection,
    SlotEvent,
    TextScore,
    TokenPlan,
)
from selectrie.results.drawing.beams import beam_greedy_sentence, beam_proof_sentence
from selectrie.results.drawing.sentences import ahead_words, cost_sentence
from selectrie.results.plain import format_bounds, jsonable
from selectrie.template.analysis.template import Template
from selectrie.template.syntax.ast import GenEach, Slot, line_and_column, walk

_BAR_CELLS = 24
_MIN_BAR_CELLS = 5
_PARTS = " ▏▎▍▌▋▊▉"
_GREY = "bright_black"
_WARNING = "bold yellow"


def selection_report(
    selection: Selection, *, top: int = 10, explain: bool = False, limit: int = 60, unnamed: str | None = None
) -> RenderableType:
    """Return the report of a selection: the `top` choices with bars, and its facts.

    Args:
        top: Maximum number of choices shown.
        explain: Whether to add facts on proof, cost and scoring, and the trie.
        limit: Maximum number of nodes of the trie; the heaviest are shown.
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

    It has the prompt's tokens, the tokens of the first `top` choices, and the trie that
    would be evaluated.

    Args:
        choices: The texts of its choices.
        top: Maximum number of choices shown.
        unnamed: As for `selection_report`.
    """
    if not choices:
        facts = facts_table([("tokens", str(len(plan.prompt))), *plan_facts(plan)[:1], *unnamed_model(unnamed)])
        return Group(facts, Text(), _token_text(plan.prompt))
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
    """Return a table of facts; a name that begins with "!" is styled as a warning."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, sentence in facts:
        table.add_row(Text(name, _WARNING if name.startswith("!") else "bold"), Units.of(sentence))
    return table


class Ranking:
    """A rich renderable: a table of a selection's best choices that fits the width."""

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
        """Return the texts of a choice's row; pruned choices show only a bound."""
        twins = self._selection.choices.duplicates(choice.index)
        text = quoted(choice.text) + (f" (also {', '.join(map(str, twins[1:]))})" if len(twins) > 1 else "")
        if choice.score is None or choice.logp is None or choice.probability is None:
            score = [""] if self._scored else []
            return [str(rank), text, "pruned", f"≤ {choice.logp_upper:.3f}", *score, ""]
        p = interval(choice.probability_low, choice.probability_high)
        score = [f"{choice.score:.3f}"] if self._scored else []
        behind = self._selection.score - choice.score
        margin = "" if choice.index == self._selection.index else f"{-behind:.3f}" if behind else "tie"
        return [str(rank), text, p, format_bounds(choice.logp, choice.logp_upper), *score, margin]


def bar(p: float, cells: int) -> str:
    """Return a bar of at most `cells` characters for a probability, in eighths.

    It is at least an eighth of a character long if p > 0.
    """
    eighths = min(8 * cells, max(round(p * 8 * cells), int(p > 0)))
    return "█" * (eighths // 8) + (_PARTS[eighths % 8] if eighths % 8 else "")


def _choice_label(selection: Selection) -> Callable[[int], str]:
    """Return a function that describes the choice with an index."""
    table = selection.choices

    def label(index: int) -> str:
        choice = table[index]
        if choice.probability is None:
            return f"= {quoted(choice.text)}  pruned, logp ≤ {choice.logp_upper:.3f}"
        return f"= {quoted(choice.text)}  p {probability(choice.probability)}"

    return label


def _token_text(path: Sequence[tuple[int, str]]) -> Units:
    """Return the tokens of a path, each quoted and with its id."""
    return Units([(f"{quoted(spelling)}:{token}", "") for token, spelling in path] or [("(none)", _GREY)])


_BEAM_LEGEND = f"{WINNER_MARK} best   {GREEDY_MARK} masked greedy   numbers: log-probabilities"


def beam_report(
    result: BeamResult, *, explain: bool = False, limit: int = 200, unnamed: str | None = None
) -> RenderableType:
    """Return the report of a beam search: a row for each text, and its facts.

    Args:
        explain: Whether to add facts on cost and scoring, and the tree of the texts'
            tokens with its `limit` heaviest nodes.
        unnamed: Name of the default model if the caller named no model, else None.
    """
    facts = [*beam_facts(result, explain=explain), *unnamed_model(unnamed)]
    parts: list[RenderableType] = [_hypotheses_table(result), Text(), facts_table(facts)]
    if explain:
        shown = result.shown
        lines = tree_lines(result.trie(limit), lambda index: f"= {quoted(shown[index].text)}", root="(context)")
        parts += [Text(), Text(_BEAM_LEGEND, _GREY), *lines]
    return Group(*parts)


def beam_facts(result: BeamResult, *, explain: bool = True, remedy: str = "--exact can") -> list[tuple[str, str]]:
    """Return the facts of a beam search as pairs of a name and a sentence.

    They are winner, warnings, greedy and proof.

    Args:
        explain: Whether to add dropped paths, cost and scoring.
        remedy: Names the search that proves more than a beam search.
    """
    best = result.best
    facts = [("best", f"{quoted(best.text)} logp {best.logp:.4f}, {count(len(best.tokens), 'token')}")]
    facts += advice_facts(result.warnings)
    facts += [("greedy", beam_greedy_sentence(result)), ("proof", beam_proof_sentence(result, remedy))]
    if not explain:
        return facts
    dropped = _dropped_sentence(result)
    if dropped:
        facts.append(("paths", dropped))
    signature = result.signature
    words = f"{signature.rule} · {signature.terminator} · {signature.precision}"
    facts += [("cost", cost_sentence(result.cost)), ("scored by", words)]
    if result.healed:
        gap = f", within {result.heal_gap:.2g}" if result.heal_gap else ""
        spelled = f"{quoted_bytes(result.healed)} of the prompt is written again by every path"
        facts.append(("healed", f"{spelled} (logp {result.log_heal:.3f}, taken off{gap})"))
    return facts


def _dropped_sentence(result: BeamResult) -> str:
    """Return how many paths of a beam search were dropped, and why; "" for none."""
    words = [
        f"{count(n, one)} {what}"
        for n, one, what in (
            (result.n_merged, "path", "spelled a text that another spells"),
            (result.n_refused, "path", "no tokenizer would make"),
            (result.n_dead_ends, "dead end", "dropped"),
            (len(result.close_steps), "step", "near a tie"),
        )
        if n
    ]
    return ", ".join(words)


def _hypotheses_table(result: BeamResult) -> Table:
    """Return a table of a beam search's texts, finished ones first."""
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    scored = bool(result.beam.length_penalty)
    grouped = result.beam.groups > 1
    table.add_column("#", justify="right")
    table.add_column("text", overflow="fold")
    for name in ("logp", *(["score"] if scored else []), "tokens", "paths", *(["group"] if grouped else [])):
        table.add_column(name, justify="right")
    for rank, one in enumerate((*result.hypotheses, *result.incomplete), start=1):
        table.add_row(
            *_hypothesis_cells(rank, one, scored=scored, grouped=grouped), style="" if one.complete else _GREY
        )
    return table


def _hypothesis_cells(rank: int, one: Hypothesis, *, scored: bool, grouped: bool) -> list[Text]:
    """Return the cells of a text's row."""
    text = quoted(one.text) + ("" if one.complete else " …")
    score = [f"{one.score:.3f}"] if scored else []
    group = [str(one.group)] if grouped else []
    return [
        Text(cell)
        for cell in (str(rank), text, f"{one.logp:.3f}", *score, str(len(one.tokens)), str(one.n_paths), *group)
    ]


_MAX_ROWS = 10
"""Maximum number of options shown for each question."""


def decision_report(decision: Decision, *, unnamed: str | None = None) -> RenderableType:
    """Return the report of a decision: its answers, then the options of each.

    Args:
        unnamed: Name of the default model if the caller named none, else None.
    """
    table = _make_table("question", "answer", "p", "confidence", "label mass", "margin", "")
    words = {name: answer.in_words() for name, answer in decision.items()}
    for name, answer in decision.items():
        notes = [answer.abstained] if answer.abstained else []
        notes += ["tie"] if answer.is_tie else []
        notes += [f"spread {answer.spread:.3g}"] if answer.spread else []
        notes += ["orders disagree"] if answer.order_dependent else []
        thought = answer.rationales
        notes += [f"{thought.n_cut} of {len(thought.texts)} rationales cut"] if thought and thought.n_cut else []
        notes += [f"by {answer.decided_by.model}"] if answer.decided_by else []
        table.add_row(
            Text(name),
            Text(words[name].text),
            probability(words[name].probability),
            f"{answer.confidence:.3f}",
            f"{answer.label_mass:.3g}",
            f"{answer.margin:.3f}",
            Text("; ".join(notes)),
        )
    parts: list[RenderableType] = [table, Text()]
    for name, (_, _, rows) in words.items():
        if rows:
            own = _make_table(name, "p")
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
            f"{count(usage.cost.rows, 'row')} for {count(usage.prompts, 'prompt')} of {usage.input_tokens} tokens"
            + _rows_by_model(usage),
        ),
        *unnamed_model(unnamed),
    ]
    return Group(*parts, facts_table(facts))


def _rows_by_model(usage: DecisionUsage) -> str:
    """Return the rows on each model of a cascade, and those of the last one alone."""
    by_model = " + ".join(map(str, usage.rows_by_model))
    return f": {by_model}, of {usage.rows_alone} of the last model alone" if by_model else ""


def extraction_report(found: Extraction[Any], *, top: int = 1, unnamed: str | None = None) -> RenderableType:
    """Return the report of an extraction: its values, then the values of each field.

    Args:
        top: Number of values shown.
        unnamed: Name of the default model if the caller named none, else None.
    """
    values = _make_table("value", "p")
    for one in found.top(top):
        values.add_row(Text(one.text), _share(one.probability, one.probability_low, one.probability_high))
    parts: list[RenderableType] = [values, Text()]
    for name, marginal in found.marginals.items():
        own = _make_table(name, "p")
        for value in sorted(marginal, key=lambda value: -(marginal[value] or marginal.low[value]))[:_MAX_ROWS]:
            own.add_row(Text(str(jsonable(value))), _share(marginal[value], marginal.low[value], marginal.high[value]))
        parts += [own, Text()]
    proved = "no other value is more probable" if found.is_proved else "other values may be more probable"
    if found.is_tie:
        proved += ", but for a near tie: another may be as probable within rounding (--rescore)"
    facts = [
        *advice_facts(found.warnings),
        ("proof", proved),
        ("coverage", f"{found.coverage:.3g} of the model's belief"),
        ("cost", count(found.cost.rows, "row")),
        *unnamed_model(unnamed),
    ]
    return Group(*parts, facts_table(facts))


def _share(p: float | None, low: float, high: float) -> str:
    """Return a probability, or its bounds; of an open type the lower one."""
    return f"≥ {low:.2g}" if p is None else interval(low, high)


def _make_table(*columns: str) -> Table:
    """Return an empty table with these columns; texts are aligned to the left."""
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index in (0, 1, 6) and name != "p" else "right")
    return table


_PAGE_BAR_CELLS = 16
_MIN_TEXT_CELLS = 8


def page_report(page: Page, *, top: int = 3, unnamed: str | None = None) -> RenderableType:
    """Return the report of a page: a block for each slot, in the order of decision.

    A block has the slot's facts and its `top` candidates with bars. The selects of a
    `joint` tag share one block.

    Args:
        top: Maximum number of candidates shown for each slot.
        unnamed: Name of the default model if the caller named no model, else None.
    """
    parts: list[RenderableType] = []
    reported: set[int] = set()
    for slot in page.slots:
        if id(slot.record) not in reported:
            reported.add(id(slot.record))
            parts += [*_slot_block(slot, top), Text()]
    advice = advice_facts([one for one in page.warnings if not one.where])  # slots have theirs above
    shape = f"{count(len(page.slots), 'slot')}, {count(len(page.text), 'character')}, seed {page.seed}"
    facts = [("page", shape), *advice, ("cost", cost_sentence(page.cost)), *unnamed_model(unnamed)]
    return Group(*parts, facts_table(facts))


def _slot_block(slot: SlotEvent, top: int) -> Iterator[RenderableType]:
    """Yield the heading, the facts and the candidates of a slot."""
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
    """Return the facts of a joint block: the assignment, proof, ending and cost."""
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
    """Return the facts of a gen slot: its texts, ending and cost."""
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
    """A rich renderable: a table of candidates, fitted to the width.

    Args:
        rows: Tuples of text, probability and log-probability, best first.
    """

    def __init__(self, rows: Sequence[tuple[str, float, float]]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        numbers = [(str(at), probability(p), f"{logp:.3f}") for at, (_, p, logp) in enumerate(self._rows, start=1)]
        widths = [max(len(row[at]) for row in numbers) for at in range(3)]
        free = options.max_width - sum(widths) - 2 * 4  # for text and bar
        cells = _PAGE_BAR_CELLS if free >= 2 * _PAGE_BAR_CELLS else 0
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
        name: The slot's name.
        kind: "select", "gen", "beam" or "geneach".
        file, line, column: The position of its tag; line and column count from 1.
    """

    name: str
    kind: str
    file: str
    line: int
    column: int


def template_report(template: Template) -> RenderableType:
    """Return the report of a template: needed values, slots, and included files."""
    slots = slot_positions(template)
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("slot", "kind", "position"):
        table.add_column(name, overflow="fold")
    for slot in slots:
        table.add_row(*map(Text, (slot.name, slot.kind, f"{slot.file}:{slot.line}:{slot.column}")))
    return Group(facts_table(_template_facts(template)), Text(), table if slots else Text("no slots"))


def _template_facts(template: Template) -> list[tuple[str, str]]:
    """Return what a template needs and includes, as facts."""
    included = sorted(template.documents)
    return [
        ("template", f"{template.name}, {template.document.dialect}"),
        ("needs", ", ".join(template.needs) or "no values"),
        *([("includes", ", ".join(included))] if included else []),
    ]


def template_fields(template: Template) -> dict[str, object]:
    """Return the content of `template_report` as a JSON-ready dictionary."""
    return {
        "name": template.name,
        "dialect": template.document.dialect,
        "needs": list(template.needs),
        "includes": sorted(template.documents),
        "slots": [
            {field.name: getattr(slot, field.name) for field in fields(slot)} for slot in slot_positions(template)
        ],
    }


def slot_positions(template: Template) -> list[SlotPosition]:
    """Return every slot of a template and of its includes, in source order."""
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
