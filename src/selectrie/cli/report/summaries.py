"""Summaries of results as facts: pairs of a name and a sentence.

Names of warnings begin with "!".
"""

from __future__ import annotations

from collections.abc import Sequence

from selectrie.cli.arguments import long_flag
from selectrie.core.notation import (
    count,
    percent_between,
    quoted,
    quoted_bytes,
    thousands,
    write_logp,
    written_tolerance,
)
from selectrie.options.selection import TERMINATOR_MEANINGS
from selectrie.results import BeamResult, Selection, Spellings, TextScore, TokenPlan
from selectrie.results.advice import Advice
from selectrie.results.drawing.sentences import (
    cost_sentence,
    coverage_sentence,
    greedy_sentence,
    lead_words,
    proof_sentence,
    set_words,
)


def advice_facts(warnings: Sequence[Advice]) -> list[tuple[str, str]]:
    """Return warnings as facts, in which remedies are options of the command."""
    return [(f"! {advice.code.replace('_', ' ')}", _advice_sentence(advice)) for advice in warnings]


def _advice_sentence(advice: Advice) -> str:
    """Return a warning as a sentence, with its remedy as an option."""
    text = f"{advice.where}: {advice.text}" if advice.where else advice.text
    if advice.remedy is None:
        return text
    name, value = advice.remedy.option, advice.remedy.value
    option = long_flag(_OPTIONS.get(name, name))
    return f"{text} {f'See {option}' if value is None else f'Try {option} {quoted(str(value))}'}."


_OPTIONS = {"budget_nodes": "budget", "deadline_s": "deadline"}
"""Names of command options by the names that differ in Python."""


def selection_facts(selection: Selection, *, explain: bool = False) -> list[tuple[str, str]]:
    """Return the facts of a selection.

    They are winner, warnings, coverage, and masked greedy decoding (the most probable
    allowed token at each step) if it picks another choice.

    Args:
        explain: Whether to add masked greedy decoding in any case, and proof, cost and
            scoring.
    """
    facts = [
        ("winner", _winner_sentence(selection)),
        *advice_facts(selection.warnings),
        ("coverage", coverage_sentence(selection)),
    ]
    if explain or not selection.agrees_with_greedy:
        facts.append(("greedy", greedy_sentence(selection)))
    if explain:
        facts += [
            ("proof", proof_sentence(selection)),
            ("cost", cost_sentence(selection.cost)),
            ("scored by", f"{selection.rule} · {selection.terminator} · {selection.signature.precision}"),
            *_healing_facts(selection.healed, healing_words(selection)),
        ]
    return facts


def slot_facts(selection: Selection, *, winner: str = "chosen") -> list[tuple[str, str]]:
    """Return the facts of a template slot that selects among choices.

    They are winner, warnings, coverage, masked greedy decoding, terminator and cost.

    Args:
        winner: The name of the fact that holds the winner.
    """
    return [
        (winner, _winner_sentence(selection)),
        *advice_facts(selection.advice(on_page=True)),
        ("coverage", coverage_sentence(selection)),
        ("greedy", greedy_sentence(selection)),
        ("ended by", terminator_words(selection.terminator)),
        ("cost", cost_sentence(selection.cost)),
    ]


def terminator_words(name: str) -> str:
    """Return a terminator's name and what it means on a page."""
    return f"{name}: {TERMINATOR_MEANINGS[name]}"


def text_score_facts(score: TextScore) -> list[tuple[str, str]]:
    """Return log-probability, tokens and cost of a scored text as facts."""
    tolerance = written_tolerance(score.signature)
    mean = write_logp(score.logp / max(1, len(score.tokens)), tolerance)
    return [
        ("text", quoted(score.text)),
        ("logp", f"{score.logp_words()} nats over {count(len(score.tokens), 'token')} ({mean} a token)"),
        ("greedy", _GREEDY_WORDS[score.is_greedy]),
        *([] if score.spellings is None else _spellings_facts(score.spellings, tolerance)),
        ("cost", cost_sentence(score.cost)),
        ("precision", score.signature.precision),
        *advice_facts(score.warnings),
        *_healing_facts(score.healed, healing_words(score)),
    ]


_GREEDY_WORDS = {
    True: "every token was the most probable one",
    False: "greedy decoding would write something else",
    None: "the rows that were read leave open whether every token was the most probable one",
}
_EVENT_WORDS = {"ends": "spell the text and end", "begins": "begin with the text"}


def _spellings_facts(spellings: Spellings, tolerance: float) -> list[tuple[str, str]]:
    """Return the bounds on the sum over all token sequences of a text, as a fact."""
    logp = write_logp(spellings.logp_low, tolerance, spellings.logp_high)
    share = percent_between(*spellings.canonical_share, tolerance)
    event = _EVENT_WORDS[spellings.event]
    return [("spellings", f"logp {logp} nats for all tokens that {event}; canonical tokens have {share} of it")]


def plan_facts(plan: TokenPlan) -> list[tuple[str, str]]:
    """Return the facts of a `TokenPlan`: its tokenization, and the rows it needs."""
    shared = f"{plan.rows_prompt} for the context, {plan.rows_inner} for the trie"
    moved = sum(shift > 0 for shift in plan.boundary_shift)
    change = f"; {count(moved, 'choice')} would change the prompt's own tokens" if moved else ""
    facts = [
        ("BOS", "none: the model says that none is added" if plan.bos is None else f"token {plan.bos}, put first"),
        ("boundary", plan.boundary + change),
        ("terminator", plan.terminator),
        ("trie", f"{count(plan.n_trie_nodes, 'node')} for {count(len(plan.choices), 'choice')}"),
        ("rows", f"{thousands(plan.rows_prompt + plan.rows_inner)}: {shared}; one by one {thousands(plan.rows_naive)}"),
    ]
    return facts + _healing_facts(plan.healed, "")


def unnamed_model(name: str | None) -> list[tuple[str, str]]:
    """Return a fact that names the default model; no fact if `name` is None.

    It keeps a caller who named no model from mistaking it for another.
    """
    return [] if name is None else [("model", f"{name}, which comes with selectrie; -m names another")]


def _winner_sentence(selection: Selection) -> str:
    """Return a selection's winner, its probability, and how far it is ahead."""
    return f"{quoted(selection.text)} p {set_words(selection, selection.index)}, {lead_words(selection)}"


def _healing_facts(healed: bytes, log_heal: str) -> list[tuple[str, str]]:
    """Return a fact about the prompt bytes that are tokenized with the choices."""
    if not healed:
        return []
    words = f"{quoted_bytes(healed)} of the prompt is encoded again with the choices"
    return [("healed", f"{words} ({log_heal})" if log_heal else words)]


def healing_words(result: Selection | TextScore | BeamResult, of: str = "every choice") -> str:
    """Return the log-probability of the healed bytes; `of` names what lacks it."""
    gap = f", within {result.heal_gap:.2g}" if result.heal_gap else ""
    return f"logp {write_logp(result.log_heal, written_tolerance(result.signature))}, taken off {of}{gap}"
