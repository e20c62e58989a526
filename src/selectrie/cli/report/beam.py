"""The report of a beam search for people at a terminal."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from selectrie.cli.report.summaries import advice_facts, cost_sentence, unnamed_model
from selectrie.cli.report.terminal import facts_table
from selectrie.cli.report.tree import GREEDY_MARK, WINNER_MARK, tree_lines
from selectrie.core.output import count, quoted, quoted_bytes
from selectrie.results import BeamResult, Hypothesis

_GREY = "bright_black"
_LEGEND = f"{WINNER_MARK} best   {GREEDY_MARK} masked greedy   numbers: log-probabilities"


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
    parts: list[RenderableType] = [_table(result), Text(), facts_table(facts)]
    if explain:
        shown = result.shown
        lines = tree_lines(result.trie(limit), lambda index: f"= {quoted(shown[index].text)}", root="(context)")
        parts += [Text(), Text(_LEGEND, _GREY), *lines]
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
    facts += [("greedy", _greedy(result)), ("proof", _proof(result, remedy))]
    if not explain:
        return facts
    dropped = _dropped(result)
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


def _greedy(result: BeamResult) -> str:
    if result.agrees_with_greedy:
        return "masked greedy decoding writes the same"
    if result.greedy is not None:
        return f"masked greedy decoding writes {quoted(result.greedy.text)} (logp {result.greedy.logp:.4f})"
    return "masked greedy decoding writes something else" if result.agrees_with_greedy is False else "not known"


def _proof(result: BeamResult, remedy: str) -> str:
    certificate = result.certificate
    nodes = count(certificate.nodes_evaluated, "node")
    if not certificate.proved:
        helps = certificate.method == "beam" and certificate.bound_gap <= 0
        return f"not proved, after {nodes}: {certificate.reason}{f'; {remedy}' if helps else ''}"
    gap = f", the rest at least {certificate.bound_gap:.3f} nats behind" if math.isfinite(certificate.bound_gap) else ""
    return f"proved with {nodes}{gap}; of {certificate.about}"


def _dropped(result: BeamResult) -> str:
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


def _table(result: BeamResult) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    scored = bool(result.beam.length_penalty)
    grouped = result.beam.groups > 1
    table.add_column("#", justify="right")
    table.add_column("text", overflow="fold")
    for name in ("logp", *(["score"] if scored else []), "tokens", "paths", *(["group"] if grouped else [])):
        table.add_column(name, justify="right")
    for rank, one in enumerate((*result.hypotheses, *result.incomplete), start=1):
        table.add_row(*_cells(rank, one, scored=scored, grouped=grouped), style="" if one.complete else _GREY)
    return table


def _cells(rank: int, one: Hypothesis, *, scored: bool, grouped: bool) -> list[Text]:
    text = quoted(one.text) + ("" if one.complete else " …")
    score = [f"{one.score:.3f}"] if scored else []
    group = [str(one.group)] if grouped else []
    return [
        Text(cell)
        for cell in (str(rank), text, f"{one.logp:.3f}", *score, str(len(one.tokens)), str(one.n_paths), *group)
    ]
