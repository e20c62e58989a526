"""Streams sequences in chunks while they are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from selectrie.decoding.sampling.task import SampleTask
from selectrie.engine.queue_stream import Outlet, QueueStream
from selectrie.engine.requests import generate
from selectrie.engine.requests.generate import PreparedGenerate
from selectrie.engine.requests.session import Session
from selectrie.errors import CancelledError
from selectrie.results import Chunk, Completion, Generation


class Stream(QueueStream[Chunk]):
    """An iterator over the chunks of all sequences of a request; see `Engine.stream`.

    The sequences are drawn whether or not the stream is read. `close`, leaving a `with`
    block, an error, and garbage collection of the stream cancel those that have not
    ended. An error of one sequence is raised to the reader and cancels the others. Only
    one thread may read at a time.
    """

    def __init__(
        self,
        session: Session,
        prepared: PreparedGenerate,
        *,
        keep: object = None,
    ) -> None:
        """Queue every sequence; `keep` is kept alive as long as the stream."""
        outlet: Outlet[Chunk] = Outlet()
        super().__init__(outlet, len(prepared.specs), session.group.model_thread.check_process, session.group.cancel)
        self._kept, self._session, self._prepared = keep, session, prepared
        self._n_sent = [0] * len(prepared.specs)
        self._completions: dict[int, Completion] = {}
        watch = partial(_watch, outlet, self._n_sent, prepared.request.n_drawn)
        self._drawings = generate.begin(session, prepared, watch)
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
        return generate.generation(self._session, self._prepared, completions)

    def _ended(self, number: int) -> Chunk:
        """Return a sequence's last chunk: the rest of its text, its `Completion`."""
        drawing = self._drawings[number]
        with self._prepared.errors_of(drawing):
            whole = generate.completion(self._session, drawing)
        self._completions[number] = whole
        self._n_running -= 1
        n_sent = self._n_sent[number]
        text, rest = drawing.task.new_text(), whole.tokens[n_sent:]
        alternatives, named = whole.alternatives[n_sent:], whole.named[n_sent:]
        return Chunk(drawing.prompt_index, drawing.index, text, rest, whole, alternatives, named)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedStream:
    """A request whose sequences are streamed; the stream keeps `keep` alive."""

    generate: PreparedGenerate
    keep: object

    def run(self, session: Session) -> Stream:
        """Start the sequences and return their stream."""
        return Stream(session, self.generate, keep=self.keep)


def _watch(  # noqa: PLR0917 - of the stream, then those of `generate.Watch`
    outlet: Outlet[Chunk], n_sent: list[int], n_drawn: int, prompt_index: int, index: int, task: SampleTask
) -> Callable[[], None]:
    """Return a callback to be called after each model call of a sequence.

    It sends the new text and tokens of the sequence as a chunk, and counts the tokens
    in `n_sent`. The end of a sequence is reported separately, with the rest of its
    text.
    """
    number = prompt_index * n_drawn + index

    def send() -> None:
        if task.n_tokens > n_sent[number] and task.finish is None:
            start = n_sent[number]
            tokens, alternatives, named = task.drawn(start), task.alternatives(start), task.named(start)
            n_sent[number] += len(tokens)
            outlet.put(Chunk(prompt_index, index, task.new_text(), tokens, alternatives=alternatives, named=named))

    return send
