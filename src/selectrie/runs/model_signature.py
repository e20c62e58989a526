"""What the numbers of a run depend on besides its units: the model and its build."""

from __future__ import annotations

from dataclasses import asdict

from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import assumed
from selectrie.results import Signature

_OF_A_REQUEST = ("rule", "premise", "terminator", "following_bytes", "time")
"""Fields of a signature that a single request has, and a run has not."""


def signature_of(llm: Engine) -> dict[str, object]:
    """Return the facts that an engine's log-probabilities depend on, ready for JSON.

    `rows_per_call` is included because it decides how the work of a recurrent model is
    divided into calls, which changes the last bits. Threads and the size of the context
    do not. The self-check is the one that is assumed, since a process that goes on with
    a run may know another.
    """
    check = None if llm.self_check is None else assumed(llm.identity, llm.limits)
    signature = Signature.of(llm.identity, check, rule="joint", terminator="none", boundary="harness")
    own = {name: value for name, value in asdict(signature).items() if name not in _OF_A_REQUEST}
    return {**own, "rows_per_call": llm.limits.rows_per_call}
