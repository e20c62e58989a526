"""Defines the model as a request sees it (`Session`), and requests (`Prepared`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar, cast

from selectrie.core.model import CopiesPaths, Model, ModelDescription
from selectrie.core.numerics import common_length
from selectrie.core.path_model import REMOTE
from selectrie.core.types import Cost, IntArray, SelfCheck
from selectrie.core.vocabulary import TIME_ARGUMENT, Vocabulary
from selectrie.decoding.search_state import FILL_ROWS
from selectrie.decoding.trie.exhaustive import ReadRows
from selectrie.engine.requests.canonical_memory import (
    CHUNK,
    CanonicalMemories,
    CanonicalMemory,
    Claim,
    JointCache,
    evaluate_context,
    new_memory,
)
from selectrie.engine.scheduler.job import discount_reuse
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import DecodeInterrupted, InternalError, ModelError
from selectrie.options import PromptParams


def time_args(vocabulary: Vocabulary, time: str | None = None) -> dict[str, str]:
    """Return the template argument that fixes the time; {} for a template without one.

    The time is `time`, else that of the vocabulary's trace, else the present local time
    in ISO 8601 to the second.
    """
    if vocabulary.chat_template is None or TIME_ARGUMENT not in vocabulary.chat_source:
        return {}
    if time is None:
        time = vocabulary.chat_time
    if time is None:
        time = datetime.now().isoformat(timespec="seconds")  # noqa: DTZ005 - the user's own time is meant
    return {TIME_ARGUMENT: time} if time else {}


def fix_time(vocabulary: Vocabulary, prompting: PromptParams, *prompts: object) -> PromptParams:
    """Return the options with a fixed time, if a prompt is a chat and has no time yet.

    All prompts of a request then show the same time.
    """
    if TIME_ARGUMENT in prompting.template_args or (prompting.system is None and not any(map(_is_chat, prompts))):
        return prompting
    args = time_args(vocabulary)
    return replace(prompting, template_args={**prompting.template_args, **args}) if args else prompting


def _is_chat(prompt: object) -> bool:
    """Return whether a prompt is a sequence of messages."""
    if not isinstance(prompt, Sequence) or isinstance(prompt, str | bytes | bytearray):
        return False
    return len(prompt) > 0 and isinstance(prompt[0], Mapping)


logger = logging.getLogger(__name__)


class BaselineCache(Protocol):
    """The part of `select.BaselineStore` that requests use."""

    def of(self, group: TaskGroup, requests: Sequence[Any]) -> Mapping[tuple[bytes, ...], Any]: ...


class MemoryOpener(Protocol):
    """Opens memories in which near ties are scored, in place of the model."""

    def open_memory(self, context: IntArray) -> AbstractContextManager[CanonicalMemory]:
        """Return a context manager for a memory; see `Session.canonical_memory`."""
        ...


R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """The model and the task group of one request.

    Attributes:
        group: The group in which the tasks of the request are started and cancelled.
        model: The model.
        check: The self-check of the model; None if it was not made.
        read_rows: Cached values of rows that were read before.
        kept: Memories for near ties, with cached scores; None for a new memory each
            time.
        baselines: A cache of baselines across requests; None for no cache.
        memories: Opens memories for near ties; None to open contexts of the model.
        rescores: Whether near ties of selections are scored again. If not, searches
            do not look for all of them either; certificates have `near_margin`.
        local: The model that runs here, if `model` only describes it.
        n_together: Number of rows that searches may ask for at once without further
            cost; None to take it from the sizes of the model's calls.
        max_named: Maximum number of tokens of a row that may be named, where whole rows
            cannot be read; None where they can.
        max_top: Maximum number of the most probable tokens of a row that can be read;
            None for all tokens.
    """

    group: TaskGroup
    model: ModelDescription
    check: SelfCheck | None
    read_rows: ReadRows = field(default_factory=ReadRows)
    kept: CanonicalMemories | None = None
    baselines: BaselineCache | None = None
    n_together: int | None = None
    max_named: int | None = None
    max_top: int | None = None
    memories: MemoryOpener | None = None
    rescores: bool = True
    local: Model | None = None

    @property
    def is_served(self) -> bool:
        """Return whether a server runs the model; nothing is then scored again."""
        return self.model.identity.precision == REMOTE

    @property
    def local_model(self) -> Model:
        """Return the model in this process, whose contexts near ties are scored in.

        Raises `InternalError` for a served model.
        """
        if self.is_served:
            raise InternalError("a model that others serve has no memory of its own")
        return self.local or cast("Model", self.model)

    def copy_prompts(self, contexts: Sequence[IntArray]) -> Cost:
        """Evaluate the common prefix of prompts in a memory and copy it to the model.

        Near ties of these prompts can then reuse it. If this is of no use, nothing is
        done: the tasks evaluate the prompts, and a near tie evaluates its prompt again.
        Returns the cost.
        """
        kept = self.kept
        if kept is None or self._is_observed or not self.model.limits.copies_paths or not contexts:
            return Cost()
        common = contexts[0][: min(common_length(contexts[0], other) for other in contexts)]
        model, claim, cost = cast("CopiesPaths", self.local_model), Claim(), Cost()
        done = len(common) < 2 * CHUNK

        def turn() -> tuple[bool, Cost]:
            is_last, spent = kept.copy_chunks(model, common, claim)
            discount_reuse(spent.rows)
            return is_last, spent

        try:
            while not done and not self.group.late_s:
                done, more = self.group.call(turn)
                cost += more
        except DecodeInterrupted:
            raise
        except ModelError as error:  # e.g. no memory for a second context
            logger.debug("a prompt of %d tokens is not evaluated apart: %s", len(common), error)
        return cost

    def advance_memory(self, context: IntArray, n_nodes: int, claim: Claim | None) -> Cost | None:
        """Make the next call of a long context in which near ties are scored.

        Returns the cost; None if the context is evaluated at once, as for observed
        tasks (see `CanonicalMemories.advance`).
        """
        if self.kept is None or claim is None or self._is_observed:
            return None
        return self.kept.advance(self.local_model, context, n_nodes, claim)

    @contextmanager
    def canonical_memory(
        self, context: IntArray, n_nodes: int, claim: Claim | None = None
    ) -> Iterator[CanonicalMemory]:
        """Yield a memory in which near ties of a request are scored after a context.

        It is opened on the model's thread.

        Args:
            context: int32[T], the context.
            n_nodes: Number of nodes for which it has room.
            claim: The claim of the request.
        """
        if self.memories is not None:
            with self.memories.open_memory(context) as memory:
                yield memory
            return
        model, observer = self.local_model, self.group.observer
        if self.kept is None:
            with new_memory(model, n_nodes) as solo, evaluate_context(solo, context, observer) as memory:
                yield memory
            return
        with (
            self.kept.open_memory(model, context, n_nodes, claim) as (solo, spent),
            evaluate_context(solo, context, observer, spent) as memory,
        ):
            yield memory

    @property
    def known_values(self) -> ReadRows:
        """Return the cache of row values; the observer's own cache if there is one."""
        observer = self.group.observer
        return self.read_rows if observer is None else observer.read_rows

    @property
    def cached_joints(self) -> JointCache:
        """Return the cache of near-tie scores.

        While tasks are observed it is empty, since the observer must see every value.
        """
        return JointCache() if self.kept is None or self._is_observed else self.kept.cached_joints

    @property
    def _is_observed(self) -> bool:
        """Return whether tasks are observed, so that no cached value may be used."""
        return self.group.observer is not None or self.memories is not None

    @property
    def tolerance(self) -> float | None:
        """Return the tolerance of a row (`SelfCheck`); None in `fast` precision."""
        return None if self.check is None else self.check.tolerance

    @property
    def fill_rows(self) -> int:
        """Return the number of rows to a multiple of which searches fill their asks.

        The model would otherwise pad its calls, or run many small programs.
        """
        if self.n_together is not None:
            return self.n_together
        sizes = self.model.limits.batch_sizes
        if sizes.is_fixed:
            return next((rows for rows, _ in sizes.buckets if rows > 1), 1)
        return sizes.multiple if sizes.multiple > 1 else FILL_ROWS


class Prepared(Protocol[R_co]):
    """A request that was checked and tokenized, without a model call."""

    def run(self, session: Session) -> R_co:
        """Run the tasks of the request and return its result."""
        ...
