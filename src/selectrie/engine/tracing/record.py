"""Records a trace of an engine: the values its tasks read, and the tokens of texts."""

from __future__ import annotations

import json
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from selectrie.core.model import DescribedModel
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import Capacity, IntArray, Limits
from selectrie.core.vocabulary import TIME_ARGUMENT
from selectrie.decoding.task import Ask, Task
from selectrie.decoding.trie.exhaustive import ReadRows
from selectrie.engine.engine import Engine
from selectrie.engine.requests.served_generate import ServedTask
from selectrie.engine.requests.session import time_args
from selectrie.engine.scheduler.job import RowObserver
from selectrie.engine.scheduler.task_group import task_group
from selectrie.engine.tracing.texts import Journal
from selectrie.errors import IncompatibleOptionsError, NonFiniteLogitsError, OptionError, OptionRef, words
from selectrie.options import flag
from selectrie.traces.records import FORMAT, Begin, MemoryKind, Note, TraceHeader, TraceRecord
from selectrie.traces.values import AllowedSets, copy_step
from selectrie.traces.vocabulary import vocabulary_records
from selectrie.traces.writer import TraceWriter
from selectrie.version import __version__

logger = logging.getLogger(__name__)

_MAX_OFFERED = np.iinfo(np.int32).max
_NO_IDS: IntArray = np.empty(0, dtype=np.int32)
_ROW_0: dict[str, Any] = dict.fromkeys(("parents", "tokens", "offered"), _NO_IDS) | {
    "wanted": np.empty(0, dtype=np.uint8)
}


@contextmanager
def record(
    engine: Engine, path: str | os.PathLike[str], *, full_rows: bool = False, vocabulary: bool = True
) -> Iterator[Recording]:
    """Record an engine's requests in the `with` block, so that `load` can replay them.

    Results are the same as without recording, to the last bit. The file holds the
    prompts and texts of all requests, and only its owner can read it. It is written
    while requests run: if the process is killed, the part written so far can be
    replayed.

    Requests that begin in the `with` block are recorded, whichever thread makes them,
    and those of a `loglikelihood_scorer` too. Requests of a `decision_scorer` that was
    made before the block are recorded without the tokens of their texts.

    Args:
        engine: The engine.
        path: The file to write. An existing trace is replaced; any other existing file
            raises `OptionError`.
        full_rows: Whether requests are allowed that read all values of a row, such as
            sampling. Each row then takes up to 4 bytes for each token of the
            vocabulary. If False, such requests raise `IncompatibleOptionsError`.
        vocabulary: Whether the vocabulary is stored. Without it, the trace is smaller,
            and `load` needs the model's tokenizer.

    Raises:
        OptionError: If the file cannot be written, or the engine is already being
            recorded. At the end of the `with` block: if the trace could not be written
            in full.
        ClosedError: If the engine was closed.
    """
    flag("full_rows", full_rows)
    flag("vocabulary", vocabulary)
    if not isinstance(engine, Engine):
        raise OptionError("engine", engine, "an Engine, as `load` returns it")
    if engine._model_thread.observer is not None:
        raise OptionError("engine", engine, "an engine on a model, not on a trace, that is not being recorded")
    chat_time = time_args(engine.vocabulary).get(TIME_ARGUMENT, "")
    first = list(_first_records(engine, chat_time, full_rows=full_rows, vocabulary=vocabulary))
    model = engine._model
    writer = TraceWriter(Path(path), first)
    try:
        journal = Journal(writer.add, chat_time)
        described = DescribedModel(journal.recording_vocabulary(model.vocabulary), model.limits, model.identity)
        engine._observe(described, Recorder(writer, full_rows=full_rows))
        yield Recording(writer)
    finally:
        engine._observe(model, None)
        writer.close()


class Recording:
    """A trace that is being recorded."""

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        return self._writer.path

    def note(self, name: str, text: str) -> None:
        """Add a text about the trace; it replaces an earlier one of the same name."""
        self._writer.add(Note(name, text))


def _first_records(engine: Engine, chat_time: str, *, full_rows: bool, vocabulary: bool) -> Iterator[TraceRecord]:
    """Yield the header of a trace and, with `vocabulary`, the records of that."""
    own = engine.vocabulary
    with task_group(engine._model_thread) as group:
        session = engine._session(group)
    check, searches = session.check, {"n_together": session.n_together, "max_named": session.max_named}
    versions = {"selectrie": __version__, "numpy": np.__version__, "python": platform.python_version()}
    yield TraceHeader(
        format=FORMAT,
        versions=json.dumps({**versions, **({"chat_time": chat_time} if chat_time else {})}),
        identity=json.dumps(asdict(engine.identity)),
        limits=json.dumps(_plain_limits(engine.limits)),
        check=json.dumps(None if check is None else asdict(check)),
        searches=json.dumps(searches),
        n_tokens=own.n_tokens,
        vocabulary_digest=own.digest,
        has_vocabulary=vocabulary,
        full_rows=full_rows,
    )
    if vocabulary:
        yield from vocabulary_records(own)


def _plain_limits(limits: Limits) -> dict[str, object]:
    """Return limits as an object of JSON, which `replay.limits_of` reads."""
    plain = asdict(limits) | {"kind": limits.kind.value}
    del plain["copies_paths"]  # a trace has no memory
    return plain


class Recorder:
    """An `Observer` that adds the values that tasks read of rows to a trace.

    Args:
        writer: The trace.
        full_rows: Whether tasks may read whole rows.

    Attributes:
        read_rows: Cache of row values, used during the recording in place of the
            engine's, because values that were read before it are not in the trace.
    """

    def __init__(self, writer: TraceWriter, *, full_rows: bool) -> None:
        self._writer, self._full_rows = writer, full_rows
        self._allowed = AllowedSets()
        self.read_rows = ReadRows()

    def begin(self, task: Task[Any], *, is_canonical: bool = False) -> RowObserver:
        """Add the beginning of a task, and return the function that adds its steps.

        Args:
            task: The task.
            is_canonical: Whether its scores are too close to call and are evaluated
                again.

        Raises:
            IncompatibleOptionsError: If the text is drawn by a server, or the task
                reads whole rows and must not.
        """
        if isinstance(task, ServedTask):
            remedy = "the text is drawn by the server, and no rows of it are read; call it outside the block"
            raise IncompatibleOptionsError("generate", "recording a trace", remedy)
        name = type(task).__name__
        context = MemoryKind.CANONICAL if is_canonical else MemoryKind.MAIN
        if not len(task.prompt):  # there is no first row
            context = MemoryKind.LOGLIKELIHOOD
        else:
            self._check_whole_rows(name, task.reads())
        return self._start_task(context, name, np.array(task.prompt, dtype=np.int32))

    def _check_whole_rows(self, name: str, reads: Reads) -> None:
        """Raise `IncompatibleOptionsError` if a task reads whole rows and must not."""
        if len(reads.whole) and not self._full_rows:
            raise IncompatibleOptionsError(
                OptionRef("full_rows", value=False),
                f"a request that reads whole rows ({name})",
                words(
                    "record with `full_rows=True`; each row then takes up to 4 bytes for each token of the vocabulary"
                ),
            )

    def _start_task(self, context: MemoryKind, name: str, prompt: IntArray) -> RowObserver:
        """Add the beginning of a task, and return the function that adds its steps."""
        writer, is_broken = self._writer, False
        task = writer.begin(Begin(context, name, prompt))

        def add_step(ask: Ask | None, offered: Capacity | None, reads: Reads, rows: Rows) -> None:
            nonlocal is_broken
            self._check_whole_rows(name, reads)
            if is_broken:
                return
            try:
                writer.step(task, copy_step(_position_fields(ask, offered), rows, reads, self._allowed))
            except NonFiniteLogitsError:  # the task will raise it
                is_broken = True
            except Exception:
                logger.exception("a task is not recorded any further")
                is_broken = True

        return add_step


def _position_fields(ask: Ask | None, offered: Capacity | None) -> dict[str, Any]:
    """Return the fields of a `ReadStep` that place the rows of an ask; None: row 0."""
    if ask is None or offered is None:
        return _ROW_0
    sizes = offered.rows, offered.nodes, offered.sequences
    return {
        "parents": np.array(ask.parents, dtype=np.int32),
        "tokens": np.array(ask.tokens, dtype=np.int32),
        "wanted": np.array(ask.wanted, dtype=np.uint8),
        "offered": np.minimum(sizes, _MAX_OFFERED).astype(np.int32),
    }
