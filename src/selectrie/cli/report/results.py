"""Reports of results for people at a terminal, readable without colour.

There is one for each kind of result, and one for `render --check`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from selectrie.cli.report.summaries import (
    advice_facts,
    healing_words,
    plan_facts,
    selection_facts,
    slot_facts,
    terminator_words,
    text_score_facts,
    unnamed_model,
)
from selectrie.cli.report.terminal import GREEDY_MARK, WINNER_MARK, Units, make_table, tree_legend, tree_lines
from selectrie.core.notation import (
    count,
    percent,
    quoted,
    quoted_bytes,
    write_logp,
    written_tolerance,
)
from selectrie.decide.answers import Decision, DecisionUsage, PredicateAnswer
from selectrie.results import (
    BeamResult,
    ChoiceScore,
    Extraction,
    Generation,
    JointSelection,
    Page,
    SampledChoice,
    Selection,
    SlotEvent,
    TextScore,
    TokenPlan,
)
from selectrie.results.drawing.beams import beam_greedy_sentence, beam_proof_sentence
from selectrie.results.drawing.sentences import (
    ahead_words,
    belief_sentence,
    cost_sentence,
    error_of,
    joint_error,
    logp_words,
    score_words,
    set_words,
    share_words,
)
from selectrie.results.plain import jsonable
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
    parts: list[RenderableType] = [ranking(selection, top), Text(), facts_table(facts)]
    if explain:
        view = selection.trie(limit)
        parts += [Text(), Text(tree_legend(view), _GREY), *tree_lines(view, lambda index: _end(selection, index))]
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
    table = make_table("token", "piece", "logp", texts=(1,))
    for token in score.tokens:
        piece = token.spelling if token.spelling and not token.piece else quoted_bytes(token.piece)
        table.add_row(str(token.id), Text(piece), write_logp(token.logp, written_tolerance(score.signature)))
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


class Ranked:
    """A rich renderable: a table of ranked texts with bars that fits the width.

    Args:
        head: Names of the columns; the second one has the texts.
        rows: For each text its cells, its share, which the bar shows, and its style.
    """

    def __init__(self, head: Sequence[str], rows: Sequence[tuple[Sequence[str], float, str]]) -> None:
        self._head, self._rows = head, rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = self._head
        widths = [
            max(map(cell_len, column)) for column in zip(head, *(cells for cells, _, _ in self._rows), strict=True)
        ]
        free = options.max_width - sum(widths) - 2 * len(head) + widths[1]  # for text and bar
        widths[1] = min(widths[1], max(8, free - (10 if free >= 40 else 0)))
        n_cells = min(_BAR_CELLS, free - widths[1])
        table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for at, name in enumerate(head):
            table.add_column(
                name, width=widths[at], justify="left" if at == 1 else "right", no_wrap=True, overflow="ellipsis"
            )
            if at == 1 and n_cells >= _MIN_BAR_CELLS:
                table.add_column("", width=n_cells, no_wrap=True)
        for cells, share, style in self._rows:
            drawn = [bar(share, n_cells)] if n_cells >= _MIN_BAR_CELLS else []
            table.add_row(*map(Text, (*cells[:2], *drawn, *cells[2:])), style=style)
        yield table


def ranking(selection: Selection, top: int) -> RenderableType:
    """Return the best choices of a selection as a table, and the number of others."""
    shown = selection.top(top, distinct=True)
    has_scores = selection.rule != "joint" or any(choice.score != choice.logp for choice in shown)
    rows = []
    for rank, choice in enumerate(shown, start=1):
        cells = _cells(selection, choice)
        style = "bold green" if choice.index == selection.index else _GREY if choice.pruned else ""
        rows.append(((str(rank), *(cells if has_scores else cells[:3] + cells[4:])), choice.probability or 0.0, style))
    head = ("#", "choice", "p", "logp", *(["score"] if has_scores else []), "margin")
    more = int(selection.choices.distinct.sum()) - len(shown)
    return Group(Ranked(head, rows), *([Text(f"… {count(more, 'more choice')}", _GREY)] if more else []))


def _cells(selection: Selection, choice: ChoiceScore) -> tuple[str, ...]:
    """Return a choice's text, share, log-probability, score and margin as text."""
    twins = selection.choices.duplicates(choice.index)
    text = quoted(choice.text) + (f" (also {', '.join(map(str, twins[1:]))})" if len(twins) > 1 else "")
    logp = logp_words(selection, choice)
    if choice.score is None:
        return text, "pruned", logp, "", ""
    behind, error = selection.score - choice.score, error_of(selection, selection.index, choice.index)
    margin = "" if choice.index == selection.index else write_logp(-behind, error) if behind else "tie"
    return text, set_words(selection, choice.index), logp, score_words(selection, choice), margin


def bar(p: float, cells: int) -> str:
    """Return a bar of at most `cells` characters for a probability, in eighths.

    It is at least an eighth of a character long if p > 0.
    """
    eighths = min(8 * cells, max(round(p * 8 * cells), int(p > 0)))
    return "█" * (eighths // 8) + (_PARTS[eighths % 8] if eighths % 8 else "")


def _end(selection: Selection, index: int) -> str:
    """Return what stands in the tree where a choice ends."""
    choice = selection.choices[index]
    return f"= {quoted(choice.text)}  {share_words(selection, choice)}"


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
    logp = write_logp(best.logp, written_tolerance(result.signature))
    facts = [("best", f"{quoted(best.text)} logp {logp}, {count(len(best.tokens), 'token')}")]
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
        spelled = f"{quoted_bytes(result.healed)} of the prompt is written again by every path"
        facts.append(("healed", f"{spelled} ({healing_words(result, 'every text')})"))
    return facts


def _dropped_sentence(result: BeamResult) -> str:
    """Return how many paths of a beam search were dropped, and why; "" for none."""
    words = [
        f"{count(n, noun)} {what}"
        for n, noun, what in (
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
    scored, grouped = bool(result.beam.length_penalty), result.beam.groups > 1
    names = ("logp", *(["score"] if scored else []), "tokens", "paths", *(["group"] if grouped else []))
    table = make_table("#", "text", *names, texts=(1,))
    tolerance = written_tolerance(result.signature)
    for rank, found in enumerate((*result.hypotheses, *result.incomplete), start=1):
        text = quoted(found.text) + ("" if found.complete else " …")
        logp = write_logp(found.logp, tolerance)
        score = [write_logp(found.score, tolerance)] if scored else []
        group = [str(found.group)] if grouped else []
        cells = (str(rank), text, logp, *score, str(len(found.tokens)), str(found.n_paths), *group)
        table.add_row(*map(Text, cells), style="" if found.complete else _GREY)
    return table


_MAX_ROWS = 10
"""Maximum number of options shown for each question."""


def decision_report(decision: Decision, *, unnamed: str | None = None) -> RenderableType:
    """Return the report of a decision: its answers, then the options of each.

    Args:
        unnamed: Name of the default model if the caller named none, else None.
    """
    table = make_table("question", "answer", "p", "confidence", "label mass", "margin", "", texts=(0, 1, 6))
    words = {name: answer.in_words() for name, answer in decision.items()}
    for name, answer in decision.items():
        tolerance, notes = written_tolerance(answer), list(words[name].notes)
        notes += [f"spread {percent(answer.spread, tolerance)}"] if answer.spread else []
        notes += ["orders disagree"] if answer.order_dependent else []
        thought = answer.rationales
        notes += [f"{thought.n_cut} of {len(thought.texts)} rationales cut"] if thought and thought.n_cut else []
        notes += [f"by {answer.decided_by.model}"] if answer.decided_by else []
        table.add_row(
            Text(name),
            Text(words[name].text),
            words[name].probability,
            words[name].confidence,
            words[name].label_mass,
            write_logp(answer.margin, tolerance),
            Text("; ".join(notes)),
        )
    parts: list[RenderableType] = [table, Text()]
    for name, answer in decision.items():
        options, tolerance = words[name].options, written_tolerance(answer)
        if not isinstance(answer, PredicateAnswer):
            table = make_table(name, "p", texts=(0,))
            for label, p, _ in options[:_MAX_ROWS]:
                table.add_row(Text(label), percent(p, tolerance))
            more = len(options) - _MAX_ROWS
            parts += [table, *([Text(f"… {more} more")] if more > 0 else []), Text()]
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
    values = make_table("value", "p", texts=(0,))
    for extracted in found.top(top):
        values.add_row(Text(extracted.text), found.share_words(extracted))
    parts: list[RenderableType] = [values, Text()]
    for name, marginal in found.marginals.items():
        table = make_table(name, "p", texts=(0,))
        for value in sorted(marginal, key=lambda value: -(marginal[value] or marginal.low[value]))[:_MAX_ROWS]:
            table.add_row(Text(str(jsonable(value))), marginal.share_words(value))
        parts += [table, Text()]
    proved = "no other value is more probable" if found.is_proved else "other values may be more probable"
    if found.is_tie:
        proved += ", but for a near tie: another may be as probable within rounding (--rescore)"
    facts = [
        *advice_facts(found.warnings),
        ("proof", proved),
        ("coverage", belief_sentence(found.coverage_words(), "type")),
        ("cost", count(found.cost.rows, "row")),
        *unnamed_model(unnamed),
    ]
    return Group(*parts, facts_table(facts))


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
    facts_of_page = advice_facts([advice for advice in page.warnings if not advice.where])  # slots have theirs above
    shape = f"{count(len(page.slots), 'slot')}, {count(len(page.text), 'character')}, seed {page.seed}"
    facts = [("page", shape), *facts_of_page, ("cost", cost_sentence(page.cost)), *unnamed_model(unnamed)]
    return Group(*parts, facts_table(facts))


def _slot_block(slot: SlotEvent, top: int) -> Iterator[RenderableType]:
    """Yield the heading, the facts and the candidates of a slot."""
    record = slot.record
    if isinstance(record, JointSelection):
        yield _heading(" + ".join(record.names), "joint", slot)
        yield facts_table(_joint_facts(record))
        texts = ((" · ".join(map(quoted, found.texts)), found.probability, found.logp) for found in record.top(top))
        yield _candidates(texts, written_tolerance(record.signature))
        return
    yield _heading(slot.path or slot.name, slot.kind, slot)
    if isinstance(record, SampledChoice):
        drawn = ("drawn", f"{record.in_words()}, seed {record.seed}")
        yield facts_table([drawn, *slot_facts(record.selection, winner="most likely")])
        yield ranking(record.selection, top)
    elif isinstance(record, Selection):
        yield facts_table(slot_facts(record))
        yield ranking(record, top)
    elif isinstance(record, BeamResult):
        facts = dict(beam_facts(record, remedy="a select of the same texts can"))
        yield facts_table([("chosen", facts.pop("best")), *facts.items()])
        texts = ((quoted(found.text), math.exp(found.logp), found.logp) for found in record.shown[:top])
        yield _candidates(texts, written_tolerance(record.signature))
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
    tolerance = written_tolerance(record.signature)
    ahead = ahead_words(record.margin, record.margin_words(), is_joint=True, error=joint_error(record))
    ahead = ahead if math.isfinite(record.margin) else "no other assignment"
    chosen = f"{', '.join(map(quoted, record.best.texts))} p {percent(record.probability, tolerance)}, {ahead}"
    proof = (
        f"proved, {count(record.n_assignments, 'assignment')}" if certificate.proved else "not proved: budget used up"
    )
    return [
        ("chosen", chosen),
        *advice_facts(record.warnings),
        ("coverage", belief_sentence(record.coverage_words(), "set")),
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
    facts = []
    for at, drawn in enumerate(record):
        logp = "" if drawn.logp is None else f" logp {write_logp(drawn.logp, written_tolerance(record))}"
        facts.append(("drawn" if at else "chosen", f"{quoted(drawn.text)}{logp}, {count(len(drawn.tokens), 'token')}"))
    first = record[0]
    ended = (
        f"the text {quoted(first.stop)}" if first.stop is not None else _FINISH_WORDS.get(first.finish, first.finish)
    )
    return [*facts, ("ended by", ended), ("cost", cost_sentence(record.cost))]


def _candidates(texts: Iterable[tuple[str, float, float]], tolerance: float) -> RenderableType:
    """Return texts with their probabilities and log-probabilities as a table."""
    rows = [
        ((str(rank), text, percent(p, tolerance), write_logp(logp, tolerance)), p, "" if rank > 1 else "bold green")
        for rank, (text, p, logp) in enumerate(texts, start=1)
    ]
    return Ranked(("#", "choice", "p", "logp"), rows)


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
    table = make_table("slot", "kind", "position", texts=(0, 1, 2))
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
