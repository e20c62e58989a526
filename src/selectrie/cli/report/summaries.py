"""The facts of a result, as pairs of a name and a sentence.

Warnings come first, marked by "!".
"""

from __future__ import annotations

import math

from selectrie.core.plain_text import count, interval, probability, quoted, quoted_bytes, thousands
from selectrie.core.types import ROOT, Cost
from selectrie.results import Certificate, Selection, Signature, Spellings, TextScore, TokenPlan
from selectrie.results.plain import between

LOW_COVERAGE = 0.01
"""Coverage below which something is usually wrong with prompt or choices.

The set then holds very little of the model's belief.
"""

LARGE_SHARE = 0.5
SPACE_CAUSE = (
    "The choices begin without the space that the model puts there: give it in each choice, or as --delimiter ' '."
)
CAUSES = (
    "Usual causes: choices without the leading space the prompt calls for; a chat model asked without its template "
    "(--system, --chat); a model that thinks before it answers."
)

PAGE_CAUSE = "Look at the text before the slot and after it: it may not be what the model has seen there."


def selection_facts(selection: Selection) -> list[tuple[str, str]]:
    """Return the facts of a selection.

    They are winner, warnings, coverage, greedy, proof, cost and scoring.
    """
    return [
        ("winner", _winner(selection)),
        *_warnings(selection),
        ("coverage", _coverage(selection)),
        ("greedy", _greedy(selection)),
        ("proof", _proof(selection.certificate, selection.signature)),
        ("cost", cost_sentence(selection.cost)),
        ("scored by", f"{selection.rule} · {selection.terminator} · {selection.signature.precision}"),
        *_healed(selection.healed, selection.log_heal, selection.heal_gap),
    ]


def slot_facts(selection: Selection, *, winner: str = "chosen") -> list[tuple[str, str]]:
    """Return the facts of a `select` on a page.

    They are winner, warnings, masked greedy, terminator and cost.

    Args:
        winner: The name of the pair that holds the winner.
    """
    return [
        (winner, _winner(selection)),
        *_warnings(selection, on_page=True),
        ("greedy", _greedy(selection)),
        ("ended by", terminator_words(selection.terminator)),
        ("cost", cost_sentence(selection.cost)),
    ]


def terminator_words(name: str) -> str:
    """Return the name of a terminator and its meaning on a page."""
    return _TERMINATOR_WORDS.get(name, name)


_TERMINATOR_WORDS = {
    "none": "none: the choice itself, whatever follows it",
    "eog": "eog: the end of the turn",
    "text": "text: what follows on the page",
    "unless-continued": "unless-continued: the text does not go on to a longer choice",
}


def text_score_facts(score: TextScore) -> list[tuple[str, str]]:
    """Return log-probability, tokens and cost of a `TextScore` as facts."""
    mean = score.logp / max(1, len(score.tokens))
    logp = between(score.logp, score.logp_upper, 4)
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
        *(("! note", note) for note in score.notes),
        *_healed(score.healed, score.log_heal, score.heal_gap),
    ]


_EVENT_WORDS = {"ends": "spell the text and end", "begins": "begin with the text"}


def _spellings_facts(one: Spellings) -> list[tuple[str, str]]:
    """Return what is known of the sum over all spellings."""
    low, high = one.canonical_share
    event = _EVENT_WORDS[one.event]
    bounds = f"logp {one.logp_low:.4f} to {one.logp_high:.4f} nats for all tokens that {event}"
    facts = [("spellings", f"{bounds}; canonical tokens have {100 * low:.3g} to {100 * high:.3g} % of it")]
    if not one.proved:
        facts.append(("! bounds", f"they are further apart than a factor of 2: {one.reason}"))
    return facts


def plan_facts(plan: TokenPlan) -> list[tuple[str, str]]:
    """Return the facts of a `TokenPlan`: how it is tokenized, and the rows it takes."""
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
    return facts + _healed(plan.healed, None, 0.0)


def unnamed_model(name: str | None) -> list[tuple[str, str]]:
    """Return the fact that names the default model; no fact if `name` is None.

    It keeps the caller who named no model from mistaking it for another.
    """
    return [] if name is None else [("model", f"{name}, which comes with selectrie; -m names another")]


def cost_sentence(cost: Cost) -> str:
    """Return a sentence on the cost of a request.

    It gives the number of rows and of model calls, the rows that evaluating the prompt
    with each choice one by one would take, and the seconds spent inside the model.
    """
    if not cost.rows:
        return f"no row: everything was held already; one by one {thousands(cost.rows_naive)}"
    ratio = cost.rows_naive / cost.rows
    times = f" ({thousands(ratio) if ratio >= 100 else f'{ratio:.1f}'} ×)" if cost.rows_naive else ""
    extra = f", {cost.rows_repeated} repeated" if cost.rows_repeated else ""
    extra += f", {cost.rows_padded} padded" if cost.rows_padded else ""
    work = f"{count(cost.rows, 'row')} in {count(cost.model_calls, 'call')}{extra}"
    return f"{work}; one by one {thousands(cost.rows_naive)}{times}; {cost.decode_s:.3f} s"


def _winner(selection: Selection) -> str:
    choices = selection.choices
    ahead = f"ahead by {selection.margin:.3f} nats"
    if choices.has_unread:  # the margin is a lower bound
        known = selection.margin > 0
        ahead = f"ahead by at least {selection.margin:.3f} nats" if known else "not certainly ahead"
    if math.isinf(selection.margin):
        ahead = "no other choice" + (" was scored" if int(choices.distinct.sum()) > 1 else "")
    low, high = (float(ends[selection.index]) for ends in (choices.probability_low, choices.probability_high))
    return f"{quoted(selection.text)} p {interval(low, high)}, {ahead}"


def _warnings(selection: Selection, *, on_page: bool = False) -> list[tuple[str, str]]:
    """Return warnings about ties, missing proof and low coverage.

    Args:
        on_page: Whether the choices belong to a template, whose slots are healed.
    """
    warnings = []
    if selection.is_tie and not selection.certificate.proved and not selection.certificate.rescored:
        warnings.append(("! tie", "the first place may be another's; the one with the higher lower bound was taken"))
    elif selection.is_tie:
        warnings.append(("! tie", "the first place is shared exactly; the lowest index was taken"))
    if not selection.certificate.proved:
        warnings.append(("! not proved", _open(selection.certificate)))
    warnings += [("! note", note) for note in selection.notes]
    highest = selection.coverage if selection.coverage_high is None else selection.coverage_high
    if highest < LOW_COVERAGE and selection.certificate.open_mass < LOW_COVERAGE:
        expected = ", ".join(
            f"{quoted(token.label)} {probability(math.exp(token.logp))}" for token in selection.top_tokens[:5]
        )
        instead = f"It expects {expected}. " if expected else ""
        cause = PAGE_CAUSE if on_page else SPACE_CAUSE if _lacks_space(selection) else CAUSES
        behind = " with the text after them" if on_page and selection.terminator == "text" else ""
        warnings.append(
            ("! coverage", f"the model expects something else than these choices{behind}. {instead}{cause}")
        )
    return warnings


def _lacks_space(selection: Selection) -> bool:
    """Return whether the model expects a space and no choice begins with one."""
    trie, pieces = selection.choices.trie, selection.choices.pieces
    first = trie.token[trie.child[trie.child_start[ROOT] : trie.child_start[ROOT + 1]]].tolist()
    spaced = sum(math.exp(token.logp) for token in selection.top_tokens if token.piece.startswith(b" "))
    return spaced > LARGE_SHARE and not any(pieces[token].startswith(b" ") for token in first)


def _coverage(selection: Selection) -> str:
    if selection.coverage_high is not None:
        share = interval(selection.coverage, min(selection.coverage_high, 1.0))
        return f"{share} of the model's belief is in the set"
    prefix = "at least " if selection.certificate.open_mass > 0 else ""
    return f"{prefix}{probability(selection.coverage)} of the model's belief is in the set"


def _greedy(selection: Selection) -> str:
    if selection.agrees_with_greedy:
        return "agrees: masked greedy decoding picks the same"
    if selection.greedy_index is None and selection.choices.has_unread:
        return "not known: rows that it depends on were not read in full"
    if selection.greedy_index is None:
        return "disagrees: masked greedy decoding writes something else"
    other = selection.choices[selection.greedy_index]
    p = "" if other.probability is None else f" (p {probability(other.probability)})"
    return f"disagrees: masked greedy decoding picks {quoted(other.text)}{p}"


def _open(certificate: Certificate) -> str:
    if certificate.bound_gap > 0:
        return certificate.reason
    gap = f" by {-certificate.bound_gap:.3f} nats" if math.isfinite(certificate.bound_gap) else ""
    return f"{certificate.reason}; a choice not scored to its end may be ahead{gap}"


def _proof(certificate: Certificate, signature: Signature) -> str:
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
        why = "in fast precision" if signature.precision == "fast" else "it would take more rows than the request"
        if certificate.nodes_inner is None:
            why = "a grammar's texts are scored once"
        words += f"; near ties not settled ({why})"
    return words


def _healed(healed: bytes, log_heal: float | None, heal_gap: float) -> list[tuple[str, str]]:
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
