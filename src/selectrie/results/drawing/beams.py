"""Draws the texts of a beam search, and says in words what is known of them."""

from __future__ import annotations

import math
from collections.abc import Collection

from selectrie.core.notation import count, percent, quoted, write_logp, written_tolerance
from selectrie.results.beam import BeamResult
from selectrie.results.drawing.sentences import cost_sentence, gap_words


def draw_beam(result: BeamResult, *, fold: Collection[int] = ()) -> dict[str, object]:
    """Return the drawings of a beam search and the sentences on it, ready for JSON.

    Args:
        result: The result.
        fold: Numbers of nodes of the trie below which nothing is drawn.
    """
    p = percent(math.exp(min(0.0, result.logp)), written_tolerance(result.signature))
    return {
        "strip": None,
        "trie": result.draw("trie", fold=fold).to_dict(),
        "sentences": {
            "winner": f"{quoted(result.text)}, {p} of everything",
            "proof": beam_proof_sentence(result),
            "work": cost_sentence(result.cost),
            "greedy": beam_greedy_sentence(result),
        },
    }


def beam_greedy_sentence(result: BeamResult) -> str:
    """Return what masked greedy decoding writes, compared with the best text."""
    if result.agrees_with_greedy:
        return "masked greedy decoding writes the same"
    if result.greedy is not None:
        logp = write_logp(result.greedy.logp, written_tolerance(result.signature))
        return f"masked greedy decoding writes {quoted(result.greedy.text)} (logp {logp})"
    return "masked greedy decoding writes something else" if result.agrees_with_greedy is False else "not known"


def beam_proof_sentence(result: BeamResult, remedy: str = "") -> str:
    """Return how a beam search was proved, or why it was not.

    Args:
        result: The result.
        remedy: Names the search that proves more; "" to name none.
    """
    certificate = result.certificate
    nodes = count(certificate.nodes_evaluated, "node")
    if not certificate.proved:
        helps = remedy and certificate.method == "beam" and certificate.bound_gap <= 0
        return f"not proved, after {nodes}: {certificate.reason}{f'; {remedy}' if helps else ''}"
    gap = gap_words(certificate.bound_gap, written_tolerance(result.signature))
    return f"proved with {nodes}{gap}; of {certificate.about}"
