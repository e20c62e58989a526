"""What an engine remembers of near ties that it has settled."""

from __future__ import annotations

from selectrie.engine.engine import Engine
from selectrie.engine.requests.canonical_memory import JointCache


def forget_settled(engine: Engine) -> None:
    """Make an engine settle its next near tie anew, in a new memory."""
    kept = engine._runtime._kept
    engine._model_thread.call(kept.close)
    kept.cached_joints = JointCache()
