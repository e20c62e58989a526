"""`Session` and `Prepared`: the model for a request, and a request that it can run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar, cast

from selectrie.core.model import CopiesPaths, Model, ModelDescription
from selectrie.core.path_model import REMOTE
from selectrie.core.types import Cost, IntArray, SelfCheck
from selectrie.core.vocabulary import TIME_ARGUMENT, Vocabulary
from selectrie.decoding.search_state import FILL_ROWS
from selectrie.decoding.trie.prompt_rows import ReadRows
from selectrie.engine.requests.canonical_memory import (
    CHUNK,
    CanonicalMemory,
    Claim,
    KeptMemories,
    SettledJoints,
    evaluated,
    n_common,
    new_memory,
)
from selectrie.engine.scheduler.job import not_reused
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import DecodeInterrupted, InternalError, ModelError
from selectrie.options import PromptParams


def time_args(vocabulary: Vocabulary, time: str | None = None) -> dict[str, str]:
    """Return the argument that fixes the time, {} for a template that reads none.

    It is `time`, that of the vocabulary's trace, or the present local time, in ISO 8601
    to the second.
    """
    if vocabulary.chat_template is None or TIME_ARGUMENT not in vocabulary.chat_source:
        return {}
    if time is None:
        time = vocabulary.chat_time
    if time is None:
        time = datetime.now().isoformat(timespec="seconds")  # noqa: DTZ005 - the user's own time is meant
    return {TIME_ARGUMENT: time} if time else {}


def at_one_time(vocabulary: Vocabulary, prompting: PromptParams, *prompts: object) -> PromptParams:
    """Return the options with the time, if a prompt is a chat and no time is given."""
    if TIME_ARGUMENT in prompting.template_args or (prompting.system is None and not any(map(_is_chat, prompts))):
        return prompting
    args = time_args(vocabulary)
    return replace(prompting, template_args={**prompting.template_args, **args}) if args else prompting


def _is_chat(prompt: object) -> bool:
    if not isinstance(prompt, Sequence) or isinstance(prompt, str | bytes | bytearray):
        return False
    return len(prompt) > 0 and isinstance(prompt[0], Mapping)


logger = logging.getLogger(__name__)


class BaselineCache(Protocol):
    """What requests need of `baselines.BaselineStore`."""

    def of(self, group: TaskGroup, requests: Sequence[Any]) -> Mapping[tuple[bytes, ...], Any]: ...


class MemoryOpener(Protocol):
    """Opens memories in which near ties are scored, in place of the model."""

    def opened(self, context: IntArray) -> AbstractContextManager[CanonicalMemory]:
        """Return a block with a memory, as of `Session.canonical_memory`."""
        ...


R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """The model and the task group of one request.

    Attributes:
        group: The group in which the tasks of the request are started and cancelled.
        model: The model.
        check: The self-check of the model; None if it was not made.
        read_rows: Values that were read from rows of the model before.
        kept: Memories for near ties, and what was scored in them; None for a new memory
            each time.
        baselines: Baselines that are kept from one request to the next; None for none.
        memories: What opens memories for near ties; None for the model itself.
        local: The model that runs here, if `model` only describes it.
        n_together: Number of rows that searches ask for at once at no further cost;
            None to take it from the sizes of the model's calls.
        max_named: Maximum number of tokens of a row that may be named, where whole rows
            cannot be read; None where they can.
        max_top: Maximum number of the most probable tokens of a row that can be read;
            None for all tokens.
    """

    group: TaskGroup
    model: ModelDescription
    check: SelfCheck | None
    read_rows: ReadRows = field(default_factory=ReadRows)
    kept: KeptMemories | None = None
    baselines: BaselineCache | None = None
    n_together: int | None = None
    max_named: int | None = None
    max_top: int | None = None
    memories: MemoryOpener | None = None
    local: Model | None = None

    @property
    def is_served(self) -> bool:
        """Return whether others serve the model, so that nothing is scored again."""
        return self.model.identity.precision == REMOTE

    @property
    def local_model(self) -> Model:
        """Return the model, which runs here; near ties are scored on contexts of it.

        Raises `InternalError` for a served model.
        """
        if self.is_served:
            raise InternalError("a model that others serve has no memory of its own")
        return self.local or cast("Model", self.model)

    def copy_prompts(self, contexts: Sequence[IntArray]) -> Cost:
        """Let the model have what prompts have in common, in the bits of a memory.

        Nothing is done where that is of no use: the tasks then evaluate all of it, and
        a near tie evaluates the prompt again. Returns the cost.
        """
        kept = self.kept
        if kept is None or self._is_watched or not self.model.limits.copies_paths or not contexts:
            return Cost()
        common = contexts[0][: min(n_common(contexts[0], other) for other in contexts)]
        model, claim, cost = cast("CopiesPaths", self.local_model), Claim(), Cost()
        done = len(common) < 2 * CHUNK

        def turn() -> tuple[bool, Cost]:
            is_last, spent = kept.copy_chunks(model, common, claim)
            not_reused(spent.rows)
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
        """Make the next call of a long context for near ties (`KeptMemories.advance`).

        None where that is not done: tasks that are watched are evaluated at once.
        """
        if self.kept is None or claim is None or self._is_watched:
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
            claim: That of the request.
        """
        if self.memories is not None:
            with self.memories.opened(context) as memory:
                yield memory
            return
        model, observer = self.local_model, self.group.observer
        if self.kept is None:
            with new_memory(model, n_nodes) as solo, evaluated(solo, context, observer) as memory:
                yield memory
            return
        with (
            self.kept.opened(model, context, n_nodes, claim) as (solo, spent),
            evaluated(solo, context, observer, spent) as memory,
        ):
            yield memory

    @property
    def known_values(self) -> ReadRows:
        """Return the values that were read before, or since tasks are watched."""
        observer = self.group.observer
        return self.read_rows if observer is None else observer.read_rows

    @property
    def settled(self) -> SettledJoints:
        """Return the scores of near ties that are remembered.

        There are none where tasks are watched, since every value has to be seen.
        """
        return SettledJoints() if self.kept is None or self._is_watched else self.kept.settled

    @property
    def _is_watched(self) -> bool:
        """Return whether tasks are watched: all that they evaluate has to be seen."""
        return self.group.observer is not None or self.memories is not None

    @property
    def tolerance(self) -> float | None:
        """Return the tolerance of a row (`SelfCheck`); None in `fast` precision."""
        return None if self.check is None else self.check.tolerance

    @property
    def fill_rows(self) -> int:
        """Return the number of rows to a multiple of which searches fill their asks.

        Less would only be padding, or many small programs.
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
