"""Sequences as they grow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from selectrie.core.types import ModelIdentity
from selectrie.decoding.sampling.task import SampleTask
from selectrie.engine.queue_stream import Outlet, QueueStream
from selectrie.engine.requests import generate
from selectrie.engine.requests.generate import PreparedGenerate
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import CancelledError, of_request
from selectrie.results import Chunk, Completion, Generation


class Stream(QueueStream[Chunk]):
    """The chunks of all sequences of a request, as they come; made by `Engine.stream`.

    The sequences grow whether or not they are read. `close`, leaving a `with` block, an
    error, and garbage collection of the stream cancel those that have not ended. An
    error of one sequence is raised to the reader and cancels the others. Only one
    thread may read at a time.
    """

    def __init__(
        self,
        group: TaskGroup,
        plan: PreparedGenerate,
        identity: ModelIdentity,
        tolerance: float | None,
        *,
        keep: object = None,
    ) -> None:
        """Queue every sequence; `keep` is kept alive as long as the stream."""
        outlet: Outlet[Chunk] = Outlet()
        super().__init__(outlet, len(plan.specs), group.owner.check_process, group.cancel)
        self._kept = keep
        self._plan, self._identity, self._tolerance = plan, identity, tolerance
        self._n_sent = [0] * len(plan.specs)
        self._completions: dict[int, Completion] = {}
        watch = partial(_watch, outlet, self._n_sent, plan.wanted.n_drawn)
        self._drawings = generate.begin(group, plan, tolerance, watch)
        for drawing in self._drawings:
            drawing.handle.when_done(partial(outlet.put, drawing.number))

    def generation(self) -> Generation:
        """Return all sequences, as `Engine.generate` does.

        Reads the rest of the stream first. Raises `CancelledError` if the stream was
        closed before its end.
        """
        for _ in self:
            pass
        if self._n_running:
            raise CancelledError
        completions = [self._completions[number] for number in range(len(self._drawings))]
        return generate.generation(self._plan, completions, self._identity, self._tolerance)

    def _ended(self, number: int) -> Chunk:
        """Return a chunk with the rest of a sequence's text, and its completion."""
        drawing = self._drawings[number]
        with of_request(drawing.prompt_index if self._plan.n_prompts > 1 else None):
            whole = generate.completion(drawing, self._tolerance)
        self._completions[number] = whole
        self._n_running -= 1
        rest = whole.tokens[self._n_sent[number] :]
        return Chunk(drawing.prompt_index, drawing.index, drawing.task.new_text(), rest, whole)


def _watch(  # noqa: PLR0917 - of the stream, then those of `generate.Watch`
    outlet: Outlet[Chunk], n_sent: list[int], n_drawn: int, prompt_index: int, index: int, task: SampleTask
) -> Callable[[], None]:
    """Return a callback for after each of a sequence's model calls.

    It sends what is new of the sequence and counts the tokens in `n_sent`. The end of a
    sequence is reported separately, with the rest of its text.
    """
    number = prompt_index * n_drawn + index

    def send() -> None:
        if task.n_tokens > n_sent[number] and task.finish is None:
            tokens = task.drawn(n_sent[number])
            n_sent[number] += len(tokens)
            outlet.put(Chunk(prompt_index, index, task.new_text(), tokens))

    return send
