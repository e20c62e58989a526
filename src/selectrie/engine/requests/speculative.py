"""Drafts that guess the next tokens, so that the model verifies several in one call.

The idea is that of Leviathan, Kalman and Matias, "Fast inference from transformers via
speculative decoding" (2023), with trees of guesses as in Miao et al., "SpecInfer"
(2024). Here a guess is only compared with the tokens that are drawn. The text is
therefore the same as without a draft, whatever is guessed.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from selectrie.core.model import ModelDescription
from selectrie.core.types import IntArray
from selectrie.decoding.sampling.task import Drafter, GuessTask
from selectrie.decoding.task import NOTHING
from selectrie.engine.scheduler.model_thread import Handle, JobThread
from selectrie.errors import OptionError, UnsupportedModelError, words
from selectrie.options import at_least

_NOTHING = NOTHING, NOTHING


class Drafting(Protocol):
    """The attributes of an `Engine` that `EngineDrafter` uses."""

    @property
    def _model(self) -> ModelDescription: ...
    @property
    def _model_thread(self) -> JobThread[Any]: ...


class EngineDrafter:
    """Guesses the next tokens with a second, smaller engine.

    It proposes the `branching` most probable continuations at each of `depth` levels. A
    proposal takes `depth` calls, after those that evaluate new text. They run on the
    thread of the second engine while the thread of the main model waits. Nothing is
    proposed if the text does not fit the second engine's context. Two engines must not
    draft for each other at the same time: each would wait for the other.
    """

    def __init__(self, engine: Drafting, depth: int = 4, branching: int = 1) -> None:
        at_least("depth", depth, 1, optional=False)
        at_least("branching", branching, 1, optional=False)
        self._engine, self._depth, self._branching = engine, depth, branching

    @property
    def engine(self) -> Drafting:
        """Return the second engine."""
        return self._engine

    @property
    def model(self) -> ModelDescription:
        """Return the model of the second engine."""
        return self._engine._model

    def propose(self, tokens: IntArray, max_tokens: int) -> tuple[IntArray, IntArray]:
        """Return guesses (see `Drafter.propose`); pass on the engine's errors."""
        task = GuessTask(
            np.array(tokens, dtype=np.int32),
            max_tokens=max_tokens,
            depth=self._depth,
            branching=self._branching,
            barred=self.model.vocabulary.eog,
        )
        limits, floor = self.model.limits, task.floor
        n_branches = 2 if limits.kind.is_recurrent else floor.sequences + 1
        if (
            len(tokens) + floor.nodes > limits.nodes
            or n_branches > limits.sequences
            or floor.rows > limits.rows_per_call
        ):
            return _NOTHING
        handle: Handle[tuple[IntArray, IntArray]] = self._engine._model_thread.submit(task)
        return handle.result()


class LookupDrafter:
    """Guesses that a text repeats itself.

    It finds an earlier occurrence of the last tokens and proposes the tokens that
    followed there. The longest match of at most `n_gram` tokens is used; of matches of
    one length, the latest. `n_tokens` tokens are proposed, in one unbranched sequence.
    If fewer follow the match, they are repeated. No model is needed, only one pass over
    the text for each length.
    """

    def __init__(self, n_gram: int = 3, n_tokens: int = 8) -> None:
        at_least("n_gram", n_gram, 1, optional=False)
        at_least("n_tokens", n_tokens, 1, optional=False)
        self._n_gram, self._n_tokens = n_gram, n_tokens

    def propose(self, tokens: IntArray, max_tokens: int) -> tuple[IntArray, IntArray]:
        """Return guesses; see `Drafter.propose`."""
        for n in range(min(self._n_gram, len(tokens) - 1), 0, -1):
            windows = np.lib.stride_tricks.sliding_window_view(tokens[:-1], n)
            matches = np.flatnonzero((windows == tokens[len(tokens) - n :]).all(axis=1))
            if len(matches):
                start, n_guessed = int(matches[-1]) + n, min(self._n_tokens, max_tokens)
                guessed = np.resize(tokens[start : start + n_guessed], n_guessed)
                return np.arange(-1, n_guessed - 1, dtype=np.int32), guessed.astype(np.int32)
        return _NOTHING


def check_draft(drafter: Drafter, model: ModelDescription) -> None:
    """Raise an error for a draft that cannot work for the model, without a model call.

    Raises:
        UnsupportedModelError: If the model keeps a state only at a sequence's tip, so
            that every guess would need a separate call and state, or if the second
            engine has other tokens.
        OptionError: If the draft is the engine itself or has no method `propose`.
    """
    if not callable(getattr(drafter, "propose", None)):
        raise OptionError("draft", drafter, "a second engine, or an object with a method `propose`")
    identity = model.identity
    if model.limits.kind.is_recurrent:
        raise UnsupportedModelError(
            identity.name,
            words(
                "a {} model has a state at the tip alone, so it cannot verify a draft in one call; "
                "generate without `draft`",
                model.limits.kind.value,
            ),
        )
    if not isinstance(drafter, EngineDrafter):
        return
    if drafter.model is model:
        raise OptionError("draft", "the engine itself", "a second engine: this one waits for the draft")
    if drafter.model.vocabulary.digest != model.vocabulary.digest:
        other = drafter.model.identity.name
        raise UnsupportedModelError(
            other, f"its tokens are not those of {identity.name}; draft with a model of its family"
        )
