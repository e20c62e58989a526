"""Sequences as they grow.

The model's thread puts chunks into an unbounded queue; the reader takes them out.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from types import TracebackType

from selectrie.core.types import ModelIdentity
from selectrie.decoding.sampling.task import SampleTask
from selectrie.engine.requests import generate
from selectrie.engine.requests.generate import PreparedGenerate
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import CancelledError, of_request
from selectrie.results import Chunk, Completion, Generation


class _Outlet:
    """Receives chunks, and the number of each sequence that has ended.

    The model's thread writes to it and never waits for the reader. `listener` is called
    after each item. The outlet holds no reference to the stream, which could otherwise
    not be garbage-collected while the model works.
    """

    def __init__(self) -> None:
        self.queue: SimpleQueue[Chunk | int] = SimpleQueue()
        self.listener: Callable[[], None] = _nobody

    def put(self, item: Chunk | int) -> None:
        self.queue.put(item)
        self.listener()

    def watch(self, prompt_index: int, index: int, task: SampleTask) -> Callable[[], None]:
        """Return a callback for after each of a sequence's model calls.

        The end of a sequence is reported separately, with the rest of its text.
        """
        n_told = 0

        def tell() -> None:
            nonlocal n_told
            if task.n_tokens > n_told and task.finish is None:
                tokens = task.drawn(n_told)
                n_told += len(tokens)
                self.put(Chunk(prompt_index, index, task.new_text(), tokens))

        return tell


def _nobody() -> None:
    pass


class Stream(Iterator[Chunk]):
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
        self._kept, self._owner = keep, group.owner
        self._plan, self._identity, self._tolerance = plan, identity, tolerance
        self._outlet = outlet = _Outlet()
        self._n_told = [0] * len(plan.specs)
        self._completions: dict[int, Completion] = {}
        self._is_closed = False
        self._drawings = generate.begin(group, plan, tolerance, outlet.watch)
        self._finalizer = weakref.finalize(self, group.cancel)
        for drawing in self._drawings:
            drawing.handle.when_done(_teller(outlet, drawing.number))

    def __iter__(self) -> Stream:
        return self

    def __enter__(self) -> Stream:  # noqa: PYI034 - Self is not in typing before Python 3.11, and the class is final
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> Chunk:
        """Wait for the next chunk.

        Ctrl-C cancels the sequences and is raised again. Raises `ForkedError` in a
        child process.
        """
        if self.is_finished:
            raise StopIteration
        try:
            self._owner.check_process()
            return self._chunk(self._outlet.queue.get())
        except BaseException:
            self.close()
            raise

    @property
    def is_finished(self) -> bool:
        """Return whether no further chunk will come."""
        return self._is_closed or len(self._completions) == len(self._drawings)

    def generation(self) -> Generation:
        """Return all sequences, as `Engine.generate` does.

        Reads the rest of the stream first. Raises `CancelledError` if the stream was
        closed before its end.
        """
        for _ in self:
            pass
        if len(self._completions) < len(self._drawings):
            raise CancelledError
        return generate.generation(
            self._plan,
            [self._completions[number] for number in range(len(self._drawings))],
            self._identity,
            self._tolerance,
        )

    def close(self) -> None:
        """Cancel the sequences that have not ended. May be called twice."""
        self._is_closed = True
        self._outlet.listener = _nobody
        self._finalizer()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function on the model's thread whenever `arrived` may have a chunk."""
        self._outlet.listener = listener

    def arrived(self) -> Iterator[Chunk]:
        """Yield the chunks that are there, without waiting."""
        while not self.is_finished:
            try:
                item = self._outlet.queue.get_nowait()
            except Empty:
                return
            yield self._chunk(item)

    def _chunk(self, item: Chunk | int) -> Chunk:
        """Return the chunk for an item of the queue.

        For a sequence that has ended, it holds the rest of the text and the completion.
        """
        if isinstance(item, Chunk):
            self._n_told[item.prompt_index * self._plan.wanted.n_drawn + item.index] += len(item.tokens)
            return item
        drawing = self._drawings[item]
        with of_request(drawing.prompt_index if self._plan.n_prompts > 1 else None):
            whole = generate.completion(drawing, self._tolerance)
        self._completions[item] = whole
        return Chunk(
            drawing.prompt_index, drawing.index, drawing.task.new_text(), whole.tokens[self._n_told[item] :], whole
        )


def _teller(outlet: _Outlet, number: int) -> Callable[[], None]:
    return lambda: outlet.put(number)
