"""Summaries of results as facts: pairs of a name and a sentence.

Names of warnings begin with "!".
"""

from __future__ import annotations

from collections.abc import Sequence

from selectrie.cli.arguments import long_flag
from selectrie.core.output import count, interval, quoted, quoted_bytes, thousands
from selectrie.options.selection import TERMINATOR_MEANINGS
from selectrie.results import Selection, Spellings, TextScore, TokenPlan
from selectrie.results.advice import Advice
from selectrie.results.drawing.sentences import (
    cost_sentence,
    coverage_sentence,
    greedy_sentence,
    lead_words,
    proof_sentence,
    share_of_set,
)
from selectrie.results.plain import format_bounds


def advice_facts(warnings: Sequence[Advice]) -> list[tuple[str, str]]:
    """Return warnings as facts, in which remedies are options of the command."""
    return [(f"! {one.code.replace('_', ' ')}", _advice_sentence(one)) for one in warnings]


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
            *_healing_facts(selection.healed, selection.log_heal, selection.heal_gap),
        ]
    return facts


def slot_facts(selection: Selection, *, winner: str = "chosen") -> list[tuple[str, str]]:
    """Return the facts of a template slot that selects among choices.

    They are winner, warnings, masked greedy decoding, terminator and cost.

    Args:
        winner: The name of the fact that holds the winner.
    """
    return [
        (winner, _winner_sentence(selection)),
        *advice_facts(selection.advice(on_page=True)),
        ("greedy", greedy_sentence(selection)),
        ("ended by", terminator_words(selection.terminator)),
        ("cost", cost_sentence(selection.cost)),
    ]


def terminator_words(name: str) -> str:
    """Return a terminator's name and what it means on a page."""
    return f"{name}: {TERMINATOR_MEANINGS[name]}"


def text_score_facts(score: TextScore) -> list[tuple[str, str]]:
    """Return log-probability, tokens and cost of a scored text as facts."""
    mean = score.logp / max(1, len(score.tokens))
    logp = format_bounds(score.logp, score.logp_upper, 4)
    return [
        ("text", quoted(score.text)),
        (
            "logp",
            f"{logp} nats over {count(len(score.tokens), 'token')} ({mean:.4f} a token)",
        ),
        (
            "greedy",
            {
                True: "every token was the most probable one",
                False: "greedy decoding would write something else",
                None: "the rows that were read leave open whether every token was the most probable one",
            }[score.is_greedy],
        ),
        *([] if score.spellings is None else _spellings_facts(score.spellings)),
        ("cost", cost_sentence(score.cost)),
        ("precision", score.signature.precision),
        *advice_facts(score.warnings),
        *_healing_facts(score.healed, score.log_heal, score.heal_gap),
    ]


_EVENT_WORDS = {"ends": "spell the text and end", "begins": "begin with the text"}


def _spellings_facts(one: Spellings) -> list[tuple[str, str]]:
    """Return the bounds on the sum over all token sequences of a text, as a fact."""
    low, high = one.canonical_share
    event = _EVENT_WORDS[one.event]
    bounds = f"logp {one.logp_low:.4f} to {one.logp_high:.4f} nats for all tokens that {event}"
    return [("spellings", f"{bounds}; canonical tokens have {100 * low:.3g} to {100 * high:.3g} % of it")]


def plan_facts(plan: TokenPlan) -> list[tuple[str, str]]:
    """Return the facts of a `TokenPlan`: its tokenization, and the rows it needs."""
    shared = f"{plan.rows_prompt} for the context, {plan.rows_inner} for the trie"
    moved = sum(shift > 0 for shift in plan.boundary_shift)
    facts = [
        ("BOS", "none: the model says that none is added" if plan.bos is None else f"token {plan.bos}, put first"),
        (
            "boundary",
            plan.boundary + (f"; {count(moved, 'choice')} would change the prompt's own tokens" if moved else ""),
        ),
        ("terminator", plan.terminator),
        ("trie", f"{count(plan.n_trie_nodes, 'node')} for {count(len(plan.choices), 'choice')}"),
        ("rows", f"{thousands(plan.rows_prompt + plan.rows_inner)}: {shared}; one by one {thousands(plan.rows_naive)}"),
    ]
    return facts + _healing_facts(plan.healed, None, 0.0)


def unnamed_model(name: str | None) -> list[tuple[str, str]]:
    """Return a fact that names the default model; no fact if `name` is None.

    It keeps a caller who named no model from mistaking it for another.
    """
    return [] if name is None else [("model", f"{name}, which comes with selectrie; -m names another")]


def _winner_sentence(selection: Selection) -> str:
    """Return a selection's winner, its probability, and how far it is ahead."""
    low, high = share_of_set(selection, selection.index)
    return f"{quoted(selection.text)} p {interval(low, high)}, {lead_words(selection)}"


def _healing_facts(healed: bytes, log_heal: float | None, heal_gap: float) -> list[tuple[str, str]]:
    """Return a fact about the prompt bytes that are tokenized with the choices."""
    if not healed:
        return []
    logp = "" if log_heal is None else f" (logp {log_heal:.3f}, taken off every choice"
    gap = f", within {heal_gap:.2g}" if heal_gap else ""
    return [
        (
            "healed",
            f"{quoted_bytes(healed)} of the prompt is encoded again with the choices{logp}{gap}{')' if logp else ''}",
        )
    ]
