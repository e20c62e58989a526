"""Answers from a trace, without the model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from selectrie.backends.remote.vocabulary import read_tokenizer
from selectrie.core.model import ModelDescription
from selectrie.core.path_model import Answer, RowReader
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import Capacity, Cost, IntArray, SelfCheck
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.task import Ask, Task
from selectrie.decoding.trie.prompt_rows import KnownValues, ReadRows, RowValues
from selectrie.engine.engine import Engine
from selectrie.engine.path_driver.job_paths import JobPaths
from selectrie.engine.path_driver.path_scheduler import PathThread
from selectrie.engine.requests.canonical_memory import CanonicalMemory
from selectrie.engine.requests.loglikelihood import (
    LogLikelihoods,
    PathScorer,
    ScoresSequences,
    Sequences,
    loglikelihoods_told,
)
from selectrie.engine.requests.session import Session
from selectrie.engine.runtimes import Runtime
from selectrie.engine.scheduler.job import Job
from selectrie.engine.scheduler.observer import reads_whole_rows
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.engine.sources import download_tokenizer, is_hub_source
from selectrie.engine.tracing.described import RecordedModel, check_of, identity_of, limits_of, searches_of
from selectrie.engine.tracing.recorded_rows import RecordedRows, Rescoring
from selectrie.engine.tracing.replayed_vocabulary import replayed_vocabulary
from selectrie.engine.tracing.script import HasPrompt, ImmediateReader, Script, run_alone
from selectrie.engine.tracing.subjects import subject_digest
from selectrie.errors import ClosedError, InternalError, ModelError, OptionError, WholeRowsError, words
from selectrie.traces.reader import RecordedRequest, Trace, read_trace
from selectrie.traces.records import Context, Lookup

if TYPE_CHECKING:
    from selectrie.engine.decision_scorer import ScoresDecisions
    from selectrie.engine.decisions import DecisionMaker

R = TypeVar("R")

_ANY = 1 << 30
_NO_PROMPT: IntArray = np.empty(0, dtype=np.int32)


def replay(path: Path, *, tokenizer: object = None, max_waiting: int | None = None) -> Engine:
    """Return an engine that answers from a trace, as `load` describes it.

    Raises:
        TraceFileError: If the file is no trace of this version, or is damaged.
        OptionError: If a tokenizer is missing, or is another one.
    """
    trace = read_trace(path)
    return Engine(ReplayRuntime(trace, _vocabulary(tokenizer), max_waiting=max_waiting))


def _vocabulary(tokenizer: object) -> Vocabulary | None:
    if tokenizer is None or isinstance(tokenizer, Vocabulary):
        return tokenizer
    if isinstance(tokenizer, Engine):
        return tokenizer.vocabulary
    if is_hub_source(tokenizer):
        return read_tokenizer(download_tokenizer(tokenizer))
    if isinstance(tokenizer, str | os.PathLike):
        return read_tokenizer(Path(os.fspath(tokenizer)))
    raise OptionError("tokenizer", tokenizer, "a GGUF file, a folder with a tokenizer, hf:owner/repo, or an engine")


class ReplayRuntime(Runtime):
    """What an engine runs on that answers from a trace.

    Args:
        trace: The trace.
        tokenizer: The vocabulary of the model that was recorded; None for the trace's.
        max_waiting: Maximum number of tasks that wait to begin; None for no limit.

    Raises:
        TraceFileError: If what the trace says about the model is damaged.
        OptionError: If a tokenizer is missing, or is another one.
    """

    def __init__(self, trace: Trace, tokenizer: Vocabulary | None, *, max_waiting: int | None = None) -> None:
        model = RecordedModel(replayed_vocabulary(trace, tokenizer), limits_of(trace), identity_of(trace))
        self.trace, self.model, self.check = trace, model, check_of(trace)
        self._searches = searches_of(trace)
        observer = Replaying(RecordedRows(trace), model)
        # No time passes for deadlines, since the trace says where they passed.
        self.thread: PathThread = PathThread(
            _NoReader(),
            model.limits,
            max_active=_ANY,
            max_waiting=max_waiting,
            clock=lambda: 0.0,
            reader_of=_reader_of,
        )
        self.thread.observer = self._observer = observer

    def session(self, group: TaskGroup, model: ModelDescription) -> Session:
        n_together, max_named = self._searches["n_together"], self._searches["max_named"]
        return Session(group, model, self.check, memories=self._observer, n_together=n_together, max_named=max_named)

    def sequences_scorer(self, check: SelfCheck | None, nodes: int, *, keep: object) -> ScoresSequences:
        del check
        return _ReplayedScorer(PathScorer(self.thread, self.model, nodes, keep=keep), self._observer)

    def decision_scorer(self, check: SelfCheck | None, maker: DecisionMaker, *, keep: object) -> ScoresDecisions:
        from selectrie.engine.decision_scorer import PathDecisionScorer  # as in LocalRuntime

        def session(group: TaskGroup, model: ModelDescription) -> Session:
            return replace(self.session(group, model), check=check)

        return PathDecisionScorer(self.thread, session, maker, keep=keep)

    def require_whole_rows(self, what: str, *, instead: str = "") -> None:
        """Do nothing: a task that reads whole rows is refused when it begins."""
        del what, instead


def _reader_of(job: Job) -> RowReader:
    return cast("Script", job.observer)


class Replaying:
    """The `Observer` of an engine that answers from a trace.

    It gives tasks their scripts, and opens memories for near ties.
    """

    def __init__(self, rows: RecordedRows, model: RecordedModel) -> None:
        self.rows, self._model = rows, model

    def begin(self, task: Task[Any], subject: object, *, is_canonical: bool = False) -> Script:
        if not self.rows.trace.header.full_rows and reads_whole_rows(task):
            raise WholeRowsError("this request", words("record the trace with `full_rows=True`"))
        context = Context.CANONICAL if is_canonical else Context.MAIN
        return self.script(task, subject, context, type(task).__name__)

    def script(self, task: HasPrompt, subject: object, context: Context, kind: str) -> Script:
        """Return the script of a task."""
        prompt = np.ascontiguousarray(task.prompt, dtype=np.int32)
        return Script(
            task,
            self.rows.task(subject_digest(subject), context, kind, prompt),
            context=context,
            rows=self.rows,
            vocabulary=self._model.vocabulary,
            limits=self._model.limits,
        )

    def begin_sequences(self, subject: object) -> None:
        """Do nothing; `_ReplayedScorer` asks for the script itself."""
        del subject

    def known_values(self, subject: object, known: KnownValues) -> KnownValues:
        del known
        request = self.rows.looking_up(subject_digest(subject))
        return ReadRows() if request is None else _ReplayedLookups(request)

    def context_cost(self, subject: object, context: IntArray, cost: Cost) -> None:
        """Do nothing."""

    @contextmanager
    def opened(self, context: IntArray, subject: object) -> Iterator[CanonicalMemory]:
        """Yield a memory in which near ties of a request are scored after a context.

        Raises `ModelError` if the request was recorded and they were not scored, since
        they could not be.
        """
        digest = subject_digest(subject)
        recorded = self.rows.rescorings(digest, context)
        if recorded is not None:
            rescoring = recorded.take()
        else:
            rescoring = Rescoring(Cost(), has_failed=self.rows.has_request(digest))
        if rescoring.has_failed:
            raise ModelError("near ties were not scored again when this request was recorded")
        yield _ReplayedMemory(self, subject, rescoring.cost)


class _ReplayedMemory:
    """A `CanonicalMemory` whose rows are in a trace."""

    def __init__(self, replaying: Replaying, subject: object, cost: Cost) -> None:
        self._replaying, self._subject, self._cost = replaying, subject, cost

    def evaluate(self, context: IntArray) -> Cost:
        del context
        return self._cost

    def work(self, task: Task[R]) -> tuple[R, Cost]:
        return run_alone(task, self._replaying.begin(task, self._subject, is_canonical=True))

    def leave(self) -> None:
        """Do nothing."""


class _ReplayedLookups:
    """What a request found of earlier ones, in the order in which it looked."""

    def __init__(self, request: RecordedRequest) -> None:
        self._left = {key: iter(several) for key, several in request.lookups.items()}

    def get(self, key: bytes) -> RowValues | None:
        lookup = next(self._left.get(key, iter(())), None)
        return None if lookup is None else _row_values(lookup)

    def put(self, key: bytes, values: RowValues) -> None:
        """Do nothing: what a request finds was recorded."""


def _row_values(lookup: Lookup) -> RowValues:
    logp = dict(zip(lookup.ids.tolist(), lookup.logp.tolist(), strict=True))
    top = tuple(zip(lookup.top_ids.tolist(), lookup.top_logp.tolist(), strict=True))
    return RowValues(lookup.best, logp, lookup.n_top, top)


class _ReplayedScorer:
    """Computes log-likelihoods of sequences from a trace (`ScoresSequences`).

    Sequences that were scored together when they were recorded have the same bits.
    Others are scored by the rows of their paths.
    """

    def __init__(self, others: PathScorer, replaying: Replaying) -> None:
        self._others, self._replaying = others, replaying
        self._is_closed = False

    def __enter__(self) -> _ReplayedScorer:  # noqa: PYI034 - Self is not in typing before Python 3.11, and the class is final
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def loglikelihoods(self, sequences: Sequences) -> LogLikelihoods:
        """See `ScoresSequences`."""
        if self._is_closed:
            raise ClosedError("the scorer")
        script = self._replaying.script(_EmptyContext(), sequences, Context.LOGLIKELIHOOD, "Sequences")
        if not script.is_followed:
            return self._others.loglikelihoods(sequences)
        return loglikelihoods_told(sequences, _ToldSequences(script))

    def close(self) -> None:
        """Refuse further sequences. May be called twice."""
        self._is_closed = True
        self._others.close()


class _ToldSequences:
    """What tells the rows of sequences, by their script (`TellsSequences`)."""

    def __init__(self, script: Script) -> None:
        self._script, self._paths = script, JobPaths(_NO_PROMPT)
        script.answer([], Reads(0))  # row 0 is not read

    def capacity(self, floor: Capacity) -> Capacity:
        return self._script.capacity(floor)

    def rows(self, capacity: Capacity, ask: Ask, reads: Reads) -> Rows:
        self._script.asked(capacity, ask)
        return self._script.answer(self._paths.add(ask), reads).rows


class _EmptyContext:
    """What sequences begin with."""

    prompt = _NO_PROMPT


class _NoReader(ImmediateReader):
    """The reader of a thread whose tasks have readers of their own."""

    def capacity(self, floor: Capacity) -> Capacity:
        return floor

    def answer(self, paths: Sequence[IntArray], reads: Reads) -> Answer:
        del paths, reads
        raise InternalError("a task of a trace has no script")
