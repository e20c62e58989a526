"""Summaries of results as facts: pairs of a name and a sentence.

Names of warnings begin with "!".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from selectrie.cli.arguments import long_flag
from selectrie.core.output import count, interval, probability, quoted, quoted_bytes, thousands
from selectrie.core.types import Cost
from selectrie.options.selection import TERMINATOR_MEANINGS
from selectrie.results import Selection, Spellings, TextScore, TokenPlan
from selectrie.results.advice import Advice
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
        ("coverage", _coverage_sentence(selection)),
    ]
    if explain or not selection.agrees_with_greedy:
        facts.append(("greedy", _greedy_sentence(selection)))
    if explain:
        facts += [
            ("proof", _proof_sentence(selection)),
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
        ("greedy", _greedy_sentence(selection)),
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


def cost_sentence(cost: Cost) -> str:
    """Return a sentence on the cost of a request.

    It has the number of rows and of model calls, the ratio of work to evaluating the
    prompt with each choice one by one, and the seconds spent in the model.
    """
    if not cost.rows:
        return f"no row: everything was held already; one by one, {thousands(cost.rows_naive)} rows"
    ratio = cost.rows_naive / cost.rows
    times = thousands(ratio) if ratio >= 100 else f"{ratio:.1f}"
    saved = f"{times} times less work than one by one; " if ratio > 1 else ""
    extra = f", {cost.rows_repeated} repeated" if cost.rows_repeated else ""
    extra += f", {cost.rows_padded} padded" if cost.rows_padded else ""
    work = f"{count(cost.rows, 'row')} in {count(cost.model_calls, 'call')}{extra}"
    return f"{work}; {saved}{cost.decode_s:.3f} s"


def ahead_words(margin: float, words: str, *, is_joint: bool) -> str:
    """Return the winner's margin in words, also as a ratio of probabilities.

    Args:
        margin: The margin in nats.
        words: The margin as text; "unknown" if it is not known.
        is_joint: Whether scores are log-probabilities, so that the margin is a ratio.
    """
    if words == "unknown":
        return "not certainly ahead"
    if not is_joint or not 0 < margin < math.inf:
        return f"ahead by {words}"
    ratio = math.exp(min(margin, math.log(_LARGE_RATIO)))
    times = f"{ratio:.1f}" if ratio < 10 else thousands(ratio)
    return f"{'over ' if ratio >= _LARGE_RATIO else ''}{times} times likelier than the next ({words})"


_LARGE_RATIO = 10_000.0
"""Largest ratio of probabilities that is written exactly."""


def _winner_sentence(selection: Selection) -> str:
    """Return a selection's winner, its probability, and how far it is ahead."""
    choices = selection.choices
    ahead = ahead_words(selection.margin, selection.margin_words(".3f"), is_joint=selection.score == selection.logp)
    if math.isinf(selection.margin):
        ahead = "no other choice" + (" was scored" if int(choices.distinct.sum()) > 1 else "")
    low, high = (float(ends[selection.index]) for ends in (choices.probability_low, choices.probability_high))
    return f"{quoted(selection.text)} p {interval(low, high)}, {ahead}"


def _coverage_sentence(selection: Selection) -> str:
    """Return how much of the model's probability the choices cover."""
    if selection.coverage_high is not None:
        share = interval(selection.coverage, min(selection.coverage_high, 1.0))
        return f"{share} of the model's belief is in the set"
    prefix = "at least " if selection.certificate.open_mass > 0 else ""
    return f"{prefix}{probability(selection.coverage)} of the model's belief is in the set"


def _greedy_sentence(selection: Selection) -> str:
    """Return whether masked greedy decoding agrees with the winner."""
    if selection.agrees_with_greedy:
        return "agrees: masked greedy decoding picks the same"
    if selection.greedy_index is None and selection.choices.has_unread:
        return "not known: rows that it depends on were not read in full"
    if selection.greedy_index is None:
        return "disagrees: masked greedy decoding writes something else"
    other = selection.choices[selection.greedy_index]
    p = "" if other.probability is None else f" (p {probability(other.probability)})"
    return f"disagrees: masked greedy decoding picks {quoted(other.text)}{p}"


def _proof_sentence(selection: Selection) -> str:
    """Return how a selection was proved, or why it was not."""
    certificate = selection.certificate
    nodes = f"{thousands(certificate.nodes_evaluated)} nodes"
    if certificate.nodes_inner is not None:
        nodes = f"{thousands(certificate.nodes_evaluated)} of {thousands(certificate.nodes_inner)} inner nodes"
    if certificate.method == "spellings":
        rows = f"{count(certificate.nodes_evaluated, 'row')} of all spellings"
        return f"proved with {rows}" if certificate.proved else f"none with {rows}: {certificate.reason}"
    if certificate.method == "exhaustive":
        words = f"every choice scored, {count(certificate.nodes_evaluated, 'inner node')}"
    elif certificate.proved:
        gap = (
            f", the rest at least {certificate.bound_gap:.3f} nats behind"
            if math.isfinite(certificate.bound_gap)
            else ""
        )
        words = f"proved with {nodes}{gap}"
    else:
        words = f"none with {nodes}"
    if certificate.near_margin:
        settled = f": {count(certificate.n_rescored, 'choice')} scored again" if certificate.n_rescored else ""
        words += f"; a near tie is closer than {certificate.near_margin:.2g} nats{settled}"
    if certificate.method == "exhaustive" and not certificate.proved:
        words += f", but not proved: {certificate.reason}"
    elif not certificate.rescored:
        is_fast = selection.signature.precision == "fast"
        why = "in fast precision" if is_fast else "it would take more rows than the request"
        if certificate.nodes_inner is None:
            why = "a grammar's texts are scored once"
        words += f"; near ties not settled ({why})"
    return words


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
