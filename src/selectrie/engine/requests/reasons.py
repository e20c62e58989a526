"""Words the reasons for which a search does not prove that its result is the best.

The text becomes the `reason` of a certificate with `proved=False`.
"""

from __future__ import annotations

import math

from selectrie.options import BeamSearchParams, SearchParams


def reason_bounds_overlap() -> str:
    """Return the reason for choices whose order the known probabilities leave open."""
    return "the probabilities that were not read may change the order of the first choices"


def reason_heal_unknown(width: float) -> str:
    """Return the reason for scores that depend on the healed bytes' probability."""
    return f"the probability of the healed bytes is known to {width:.2g} nats only"


def reason_heal_in_callable(width: float) -> str:
    """Return the reason for a callable rule whose logp are known as intervals."""
    return f"{reason_heal_unknown(width)}, and a callable rule does not say how it uses that"


def reason_rescored_lower() -> str:
    """Return the reason for near ties whose new scores are within reach of a bound."""
    return "scored again, one of the first choices is no better than a choice without a score may be"


def reason_too_close(tolerance: float) -> str:
    """Return the reason for scores within the tolerance of a served model."""
    return f"scores are closer than they may differ when they are read again ({tolerance:.2g} nats a row)"


def lower_gap(gap: float, heal_width: float) -> float:
    """Return a gap between means that holds for every probability of the healed bytes.

    Args:
        gap: The gap for the lowest one; inf if no other text is possible.
        heal_width: Nats by which their log-probability may be higher.
    """
    return gap if gap == math.inf else gap - heal_width


def max_gap_change(tolerance: float, n_steps: int) -> float:
    """Return by how many nats two scores of a served model may approach each other.

    Args:
        tolerance: Nats by which the model may move a log-probability.
        n_steps: Number of tokens of the longer text, without its end.
    """
    return 2 * tolerance * (n_steps + 1)


def reason_search_ended(search: SearchParams, n_evaluated: int) -> str:
    """Return why a best-first search ended although a better text may exist."""
    has_budget_left = search.budget_nodes is None or n_evaluated < search.budget_nodes
    if search.stop == "mass" and has_budget_left:
        return f"the search ended when {search.mass:g} of the probability was found (stop='mass')"
    return reason_budget_ended(n_evaluated)


def reason_budget_ended(n_evaluated: int) -> str:
    """Return the reason for a search whose budget ended after `n_evaluated` nodes."""
    return f"the budget ended after {n_evaluated} {'node' if n_evaluated == 1 else 'nodes'}"


def reason_tokens_unread() -> str:
    """Return the reason for a search in which the model reported only likely tokens."""
    return "a text may be better whose tokens are among those that the model does not tell"


def reason_beam_ended(beam: BeamSearchParams, stopped: str, n_evaluated: int) -> str:
    """Return why a beam search, or the exact search in its place, proves nothing.

    `stopped` is `BeamResult.stopped`.
    """
    if beam.groups > 1:
        return "a search in groups bounds nothing that is not among them"
    if beam.expand is not None:
        return "a callback chose the extensions"
    if stopped == "budget":
        return reason_budget_ended(n_evaluated)
    if stopped == "deadline":
        return "time ran out"
    if stopped == "length":
        return f"a text of more than {beam.max_tokens} tokens may be better (max_tokens)"
    return "a beginning that was left aside may lead to a better text"
