"""Says in sentences what a selection decided, for terminal, notebook and page alike."""

from __future__ import annotations

import math

import numpy as np

from selectrie.core.notation import (
    count,
    nats,
    percent,
    percent_between,
    quoted,
    ratio_words,
    thousands,
    write_logp,
    written_tolerance,
)
from selectrie.core.types import Cost
from selectrie.results.drawing.inputs import HasCoverage, SelectionLike
from selectrie.results.records import ChoiceScore


def selection_sentences(selection: SelectionLike) -> dict[str, str | None]:
    """Return the sentences on a selection by name; None where one does not apply.

    They are `winner`, `margin`, `share_of_set`, `share_of_all`, `coverage`, `proof`,
    `work`, `greedy`, `agreement` and `tie`.
    """
    at = selection.index
    return {
        "winner": winner_sentence(selection),
        "margin": margin_words(selection),
        "share_of_set": set_words(selection, at),
        "share_of_all": all_words(selection, at),
        "coverage": coverage_sentence(selection),
        "proof": proof_sentence(selection),
        "work": cost_sentence(selection.cost),
        "greedy": greedy_sentence(selection),
        "agreement": agreement_sentence(selection),
        "tie": next((advice.text for advice in selection.warnings if advice.code == "tie"), None),
    }


def notebook_lines(selection: SelectionLike) -> list[str]:
    """Return the lines above a drawing in a notebook: what a terminal says, too."""
    differs = selection.greedy_index is None or not selection.agrees_with_greedy
    return [
        winner_sentence(selection),
        coverage_sentence(selection),
        *([f"greedy {greedy_sentence(selection)}"] if differs else []),
        *(f"! {advice}" for advice in selection.warnings),
    ]


def error_of(selection: SelectionLike, *choices: int) -> float:
    """Return by how many nats batching may move the joints of choices, or their sum.

    It is 0 where the tolerance is not known.
    """
    trie = selection.choices.trie
    n_rows = sum(int(trie.depth[trie.path_node[trie.path_of[choice]]]) + 1 for choice in choices)
    return (selection.signature.tolerance or 0.0) * math.sqrt(n_rows)


def joint_error(result: HasCoverage) -> float:
    """Return by how many nats batching may move the margin of a joint block."""
    return result.certificate.near_margin or written_tolerance(result.signature)


def set_words(selection: SelectionLike, choice: int) -> str:
    """Return the share of a choice in the set as text."""
    return percent_between(*share_of_set(selection, choice), _share_tolerance(selection))


def all_words(selection: SelectionLike, choice: int) -> str:
    """Return the probability that the model writes a choice as text."""
    return percent_between(*share_of_all(selection, choice), written_tolerance(selection.signature))


def logp_words(selection: SelectionLike, choice: ChoiceScore) -> str:
    """Return the log-probability of a choice as text, or its bounds."""
    return write_logp(choice.logp_lower, written_tolerance(selection.signature), choice.logp_upper)


def share_words(selection: SelectionLike, choice: ChoiceScore) -> str:
    """Return the share of a choice in the set; of a pruned one, what is known."""
    pruned = f"pruned, logp {logp_words(selection, choice)}"
    return pruned if choice.pruned else f"p {set_words(selection, choice.index)}"


def score_words(selection: SelectionLike, choice: ChoiceScore) -> str:
    """Return the score of a choice as text; "" for a pruned choice."""
    return "" if choice.score is None else write_logp(choice.score, written_tolerance(selection.signature))


def margin_words(selection: SelectionLike) -> str:
    """Return the margin as text: "0.5 nats", "at least 0.5 nats" or "unknown".

    The margin is a lower bound if rows are partial, or if a pruned choice may be the
    runner-up. It is unknown if such a bound is not above 0.
    """
    is_bound = selection.choices.has_unread or selection.margin < selection.choices.margin(selection.index)
    if is_bound and selection.margin <= 0:
        return "unknown"
    runner = next_choice(selection)
    error = error_of(selection, selection.index, *([] if runner is None else [runner]))
    return nats(selection.margin, error, is_least=is_bound)


def _share_tolerance(selection: SelectionLike) -> float:
    """Return the tolerance of shares of the set; a single choice has exactly 1."""
    return written_tolerance(selection.signature) if int(selection.choices.distinct.sum()) > 1 else 0.0


def share_of_set(selection: SelectionLike, choice: int) -> tuple[float, float]:
    """Return bounds on the probability of a choice in the set."""
    choices = selection.choices
    return float(choices.probability_low[choice]), float(choices.probability_high[choice])


def share_of_all(selection: SelectionLike, choice: int) -> tuple[float, float]:
    """Return bounds on the probability that the model writes a choice."""
    choices = selection.choices
    low, high = float(choices.logp_lower[choice]), float(choices.logp_upper[choice])
    return math.exp(min(0.0, low)), math.exp(min(0.0, high)) if not math.isnan(high) else 1.0


def winner_sentence(selection: SelectionLike) -> str:
    """Return the winner and how far it is ahead of the next choice."""
    name, ahead = quoted(selection.text), lead_words(selection)
    if selection.is_tie:
        return f"{name} shares the first place"
    return f"{name}, {ahead}" if ahead.startswith("no ") else f"{name} is {ahead}"


def lead_words(selection: SelectionLike) -> str:
    """Return how far the winner is ahead; its name and "is" or a comma go before."""
    runner = next_choice(selection)
    if runner is None:
        has_others = int(selection.choices.distinct.sum()) > 1 or selection.certificate.open_mass > 0
        return "no other choice" + (" was scored" if has_others else "")
    return ahead_words(
        selection.margin,
        margin_words(selection),
        is_joint=selection.score == selection.logp,
        other=quoted(selection.choices.texts[runner]),
        error=error_of(selection, selection.index, runner),
    )


def ahead_words(margin: float, words: str, *, is_joint: bool, other: str = "", error: float = 0.0) -> str:
    """Return a margin in words, as a ratio of probabilities if scores are joints.

    Args:
        margin: The margin in nats.
        words: The margin as text: "0.5 nats", "at least 0.5 nats" or "unknown".
        is_joint: Whether scores are log-probabilities, so that the margin is a ratio.
        other: Name of the next one; "" to leave it out.
        error: By how much batching may move the margin, in nats.
    """
    if words == "unknown":
        return "not certainly ahead"
    if not is_joint or not 0 < margin < math.inf:
        return f"ahead by {words}"
    following = f"the next, {other}" if other else "the next"
    if margin <= error:
        return f"as likely as {following}, within the tolerance ({words})"
    is_least = words.startswith("at least")
    ratio = ratio_words(math.exp(min(margin, 700.0)), error, is_least=is_least)
    return f"{ratio} {following} ({words})"


def next_choice(selection: SelectionLike) -> int | None:
    """Return the best choice on another path than the winner's, or None."""
    choices = selection.choices
    others = choices.finished & (choices.trie.path_of != choices.trie.path_of[selection.index])
    if not others.any():
        return None
    return int(np.argmax(np.where(others, choices.score, -np.inf)))


def is_tied(selection: SelectionLike, choice: int) -> bool:
    """Return whether a choice shares the first place of a tie."""
    return selection.is_tie and float(selection.choices.score[choice]) == selection.score


def likeliest_sampled(selection: SelectionLike) -> int | None:
    """Return the choice that masked sampling draws most often, or None if not known.

    Masked sampling draws each token among those that a choice goes on with. Ties go to
    the pick of masked greedy decoding.
    """
    local = selection.choices.logp_local
    if np.isnan(local).any():
        return None
    best, greedy = int(np.argmax(local)), selection.greedy_index
    return greedy if greedy is not None and local[greedy] == local[best] else best


def step_words(selection: SelectionLike, choice: int) -> str:
    """Return the probability of a choice that is chosen step by step, as text."""
    p = math.exp(min(0.0, float(selection.choices.logp_local[choice])))
    return "not known" if math.isnan(p) else percent(p, _share_tolerance(selection))


def agreement_sentence(selection: SelectionLike) -> str | None:
    """Return whether choosing step by step comes to the same; None if not known."""
    greedy, sampled = selection.greedy_index, likeliest_sampled(selection)
    if selection.rule != "joint" or greedy is None or sampled is None:
        return None
    choices = selection.choices
    path_of, name = choices.trie.path_of, quoted(selection.text)
    is_same = [path_of[pick] == path_of[selection.index] or is_tied(selection, pick) for pick in (greedy, sampled)]
    if all(is_same) and selection.is_tie:
        return "Step by step comes to the same tie."
    if all(is_same):
        return f"Step by step comes to the same: masked greedy decoding and masked sampling prefer {name} too."
    p = step_words(selection, sampled)
    picks, draws = (quoted(choices.texts[choice]) for choice in (greedy, sampled))
    if is_same[0]:
        return (
            f"Masked greedy decoding picks {name} too, but masked sampling draws {draws} most often, {p} of the time."
        )
    if path_of[greedy] == path_of[sampled]:
        also = f"which masked sampling draws {p} of the time"
    else:
        also = f"and masked sampling draws {draws} most often, {p} of the time"
    return f"Step by step it comes out differently: masked greedy decoding picks {picks}, {also}."


def coverage_sentence(selection: SelectionLike) -> str:
    """Return how much of the model's probability the choices cover."""
    return belief_sentence(coverage_words(selection), "set")


def belief_sentence(share: str, whole: str) -> str:
    """Return a sentence on a share of the model's belief that is in the set or type."""
    of = f"of the model's belief is in the {whole}"
    return f"how much {of} is not known" if share == "not known" else f"{share} {of}"


def coverage_words(result: HasCoverage) -> str:
    """Return the coverage, or its bounds, as text."""
    high = result.coverage_high
    high = result.coverage + result.certificate.open_mass if high is None else high
    return percent_between(result.coverage, high, written_tolerance(result.signature))


def greedy_sentence(selection: SelectionLike) -> str:
    """Return whether masked greedy decoding agrees with the winner."""
    if selection.agrees_with_greedy:
        return "agrees: masked greedy decoding picks the same"
    if selection.greedy_index is None and selection.choices.has_unread:
        return "not known: rows that it depends on were not read in full"
    if selection.greedy_index is None:
        return "disagrees: masked greedy decoding writes something else"
    other = selection.greedy_index
    p = "" if math.isnan(selection.choices.score[other]) else f" (p {set_words(selection, other)})"
    return f"disagrees: masked greedy decoding picks {quoted(selection.choices.texts[other])}{p}"


def proof_sentence(selection: SelectionLike) -> str:
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
        words = f"proved with {nodes}{gap_words(certificate.bound_gap, written_tolerance(selection.signature))}"
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


def gap_words(bound_gap: float, tolerance: float) -> str:
    """Return how far behind the rest is, after a comma; "" if there is no rest."""
    return f", the rest {nats(bound_gap, tolerance, is_least=True)} behind" if math.isfinite(bound_gap) else ""


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
