"""Recording: it changes no answer, and the file holds what tasks were told."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

import numpy as np
import pytest

import selectrie
from selectrie import Grammar, SamplingParams, StopParams
from selectrie.core.rows import DenseRows
from selectrie.engine.connect import PathRuntime
from selectrie.engine.engine import Engine
from selectrie.engine.requests.loglikelihood import Sequences
from selectrie.engine.scheduler.task_group import task_group
from selectrie.errors import ClosedError, IncompatibleOptionsError, OptionError, TraceFileError
from selectrie.testing import HashModel, PathsOf
from selectrie.traces import writer
from selectrie.traces.blocks import MAGIC
from selectrie.traces.reader import read_trace
from selectrie.traces.records import MemoryKind
from tests.support.traced import ASKED, TIED, engine_of, hash_model, same_answer, same_values

CATS = [" cat", " bat", " car"]


@pytest.mark.parametrize("name", ASKED)
def test_recording_changes_no_answer_and_no_call(name, tmp_path):
    """Each kind of request has the same result, to the last bit, from the same calls."""
    plain, recorded = hash_model(), hash_model()
    with engine_of(plain) as engine:
        expected = ASKED[name](engine)
    with engine_of(recorded) as engine, selectrie.record(engine, tmp_path / "run.trace", full_rows=True):
        answer = ASKED[name](engine)
    assert same_answer(answer, expected)
    assert recorded.call_sizes == plain.call_sizes
    assert recorded.program_sizes == plain.program_sizes


def test_the_comparison_of_answers_can_fail():
    """Another model, another prompt and another option give other answers."""
    with engine_of(hash_model()) as engine, Engine(HashModel(8)) as other:
        answer = engine.select("a cat", CATS)
        assert same_answer(answer, engine.select("a cat", CATS)) is False  # it was cached, so it cost less
        engine.trim()
        assert same_answer(answer, engine.select("a cat", CATS))
        assert not same_answer(answer, other.select("a cat", CATS))
    assert not same_answer([1.0], [1.0, 2.0])
    assert not same_answer({"a": 1.0}, {"a": np.nextafter(1.0, 2.0)})


@pytest.mark.parametrize("name", ASKED)
def test_every_value_is_that_of_the_models_row(name, tmp_path):
    """Each recorded value is what the model's row after the recorded path says."""
    model = hash_model()
    with engine_of(model) as engine, selectrie.record(engine, tmp_path / "run.trace", full_rows=True):
        ASKED[name](engine)
    trace = read_trace(tmp_path / "run.trace")
    n_rows = 0
    for task in trace.tasks:
        paths = [task.prompt.tolist()]
        for parent, token in zip(task.up[1:], task.token[1:], strict=True):
            paths.append([*paths[parent], token])
        for values, local in zip(task.steps, task.rows, strict=True):
            step = values.step
            rows = [DenseRows(model.row(paths[row])[None]) for row in local]
            n_rows += len(rows)
            logp, is_known = values.logp(step.owner.astype(np.int64), step.ids)
            assert is_known.all()
            assert logp.tolist() == [
                rows[row].logp(0, [token])[0] for row, token in zip(step.owner, step.ids, strict=True)
            ]
            for (row, _), (k, ids, logp) in values.tops.items():
                assert logp.tolist() == rows[row].logp(0, ids).tolist()
                assert len(ids) <= k
            assert step.best.tolist() == [int(row.best()[0]) for row in rows[: len(step.best)]]
            for row in step.whole_rows.tolist():
                assert (values.whole(row).logits == rows[row].logits(0)).all()
    assert n_rows


def test_contexts_are_told_apart(tmp_path):
    """Near ties are scored again in a context of their own, and so are log-likelihoods."""
    with engine_of(hash_model()) as engine, selectrie.record(engine, tmp_path / "run.trace"):
        engine.select(TIED, ["a", "b"])
        with engine.loglikelihood_scorer(8) as scorer:
            scorer.loglikelihoods(Sequences.of([([3, 4], [5, 6])]))
    trace = read_trace(tmp_path / "run.trace")
    contexts = [(task.context, task.kind) for task in trace.tasks]
    assert contexts == [
        (MemoryKind.MAIN, "ScoreTask"),
        (MemoryKind.CANONICAL, "ScoreTask"),
        (MemoryKind.CANONICAL, "ScoreTask"),
        (MemoryKind.LOGLIKELIHOOD, "ScoreTask"),
    ]


def test_the_header_says_what_was_recorded(tmp_path):
    """Identity, limits, self-check and vocabulary are those of the engine."""
    with engine_of(hash_model()) as engine:
        for name, has_vocabulary in (("with", True), ("without", False)):
            with selectrie.record(engine, tmp_path / name, vocabulary=has_vocabulary) as recording:
                recording.note("command", "selectrie select")
        digest = engine.vocabulary.digest
    trace, without = read_trace(tmp_path / "with"), read_trace(tmp_path / "without")
    assert trace.header.vocabulary_digest == without.header.vocabulary_digest == digest
    assert (trace.header.has_vocabulary, without.header.has_vocabulary) == (True, False)
    assert (len(trace.tokens), without.tokens, without.specials) == (1, [], None)
    assert trace.notes == {"command": "selectrie select"}
    assert trace.tail.is_complete
    assert '"batch_multiple": 8' in trace.header.check


def test_sampling_is_refused_before_it_runs(tmp_path):
    """Without full rows, a request that reads them raises, and no call is made for it."""
    model = hash_model()
    with engine_of(model) as engine:
        engine.score("a cat", " cat")
        with selectrie.record(engine, tmp_path / "run.trace"):
            before = model.calls
            for ask in (
                lambda: engine.generate("a cat", seed=1),
                lambda: engine.generate("a cat", n=2, seed=1, sampling=SamplingParams(temperature=0.5)),
                lambda: engine.beam_search("a", Grammar.from_regex(" [a-c]+t")),
                lambda: engine.sample("a", Grammar.from_choices(CATS), exact=False, seed=1),
            ):
                with pytest.raises(IncompatibleOptionsError, match="record with full_rows=True"):
                    ask()
            assert model.calls == before
            greedy = SamplingParams(temperature=0)
            assert engine.generate("a cat", seed=1, sampling=greedy, stopping=StopParams(max_tokens=3)).completions


def test_only_the_owner_may_read_a_trace(tmp_path):
    """A new file and a replaced one have mode 0600; other things are left alone."""
    path, other = tmp_path / "run.trace", tmp_path / "notes.txt"
    other.write_text("mine")
    with engine_of(hash_model()) as engine:
        for _ in range(2):
            with selectrie.record(engine, path):
                engine.select("a cat", CATS)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            path.chmod(0o644)
        (tmp_path / "link").symlink_to(path)
        for wrong in (other, tmp_path, tmp_path / "link", tmp_path / "none" / "run.trace"):
            with pytest.raises(OptionError, match="trace="), selectrie.record(engine, wrong):
                pass
    assert other.read_text() == "mine"


def test_an_engine_is_recorded_once_at_a_time(tmp_path):
    """A second recording is refused, and one after the first is not."""
    with engine_of(hash_model()) as engine:
        with selectrie.record(engine, tmp_path / "a"), pytest.raises(OptionError, match="not being recorded"):
            selectrie.record(engine, tmp_path / "b").__enter__()
        with selectrie.record(engine, tmp_path / "b"):
            assert engine.select("a cat", CATS).text
        assert engine._model_thread.observer is None
    with pytest.raises(ClosedError), selectrie.record(engine, tmp_path / "c"):
        pass
    with pytest.raises(OptionError, match="an Engine"), selectrie.record("model.gguf", tmp_path / "c"):
        pass
    assert not (tmp_path / "c").exists()


def test_a_file_has_one_writer(tmp_path):
    """A second recording to a file is refused before it harms the first one."""
    path = tmp_path / "run.trace"
    with engine_of(hash_model()) as engine, engine_of(hash_model()) as other:
        with selectrie.record(engine, path):
            before = engine.select("The", CATS)
            with pytest.raises(OptionError, match="is being recorded"), selectrie.record(other, path):
                pass
            after = engine.select("A", CATS)
        with selectrie.load(path) as replay:
            assert same_values([replay.select("The", CATS), replay.select("A", CATS)], [before, after])
        with selectrie.record(other, path):  # the first one has left it
            pass


def test_a_removed_file_is_said_at_the_end(tmp_path):
    """Whether it is gone or another one has its name, the trace was not kept."""
    path, other = tmp_path / "run.trace", tmp_path / "other.trace"
    with engine_of(hash_model()) as engine:
        for spoil in (path.unlink, lambda: other.replace(path)):
            other.write_bytes(b"")
            with pytest.raises(OptionError, match="removed or replaced"), selectrie.record(engine, path):
                spoil()


@pytest.mark.parametrize("n_bytes", [1, 10, 15])
def test_the_beginning_of_a_trace_is_one(n_bytes, tmp_path):
    """What a full disk left can be replaced, and is called a damaged trace."""
    path = tmp_path / "run.trace"
    path.write_bytes(MAGIC[:n_bytes])
    with pytest.raises(TraceFileError):
        selectrie.load(path)
    with engine_of(hash_model()) as engine, selectrie.record(engine, path):
        expected = engine.select("The", CATS)
    with selectrie.load(path) as replay:
        assert same_values(replay.select("The", CATS), expected)


def test_a_killed_process_leaves_what_was_written(tmp_path, monkeypatch):
    """Before its end a trace is torn, and holds the complete blocks."""
    monkeypatch.setattr(writer, "BLOCK_BYTES", 1)
    monkeypatch.setattr(writer, "BLOCK_S", 0.01)
    cut = tmp_path / "cut.trace"

    def has_note(data: bytes) -> bool:
        cut.write_bytes(data)
        with suppress(TraceFileError):
            return bool(read_trace(cut).notes)
        return False

    with engine_of(hash_model()) as engine, selectrie.record(engine, tmp_path / "run.trace") as recording:
        engine.select("a cat", CATS)
        recording.note("a", "b")
        while not has_note(copy := (tmp_path / "run.trace").read_bytes()):
            pass
    assert len(read_trace(cut).tasks) == 1
    whole = (tmp_path / "run.trace").read_bytes()
    assert whole.startswith(copy)
    n_tasks = []
    for size in range(len(whole) - 200, len(whole), 7):
        cut.write_bytes(whole[:size])
        trace = read_trace(cut)
        assert not trace.tail.is_complete
        assert trace.tail.n_bytes + trace.tail.n_torn == size
        n_tasks.append(len(trace.tasks))
    assert set(n_tasks) == {1}


def test_a_full_disk_is_said_at_the_end(tmp_path, monkeypatch):
    """Requests go on; leaving the block raises, and what was written can be read."""

    class Full:
        """A file on a disk that is full from the second block on."""

        def __init__(self, file):
            self._file, self._n = file, 0

        def write(self, data):
            self._n += 1
            if self._n > 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self._file.write(data)

        def __getattr__(self, name):
            return getattr(self._file, name)

        def __enter__(self):
            return self

        def __exit__(self, *args):
            self._file.close()

    open_trace = writer._open_trace
    monkeypatch.setattr(writer, "_open_trace", lambda path: Full(open_trace(path)))
    monkeypatch.setattr(writer, "BLOCK_BYTES", 1)
    monkeypatch.setattr(writer, "MAX_WAITING_BYTES", 1)
    with engine_of(hash_model()) as engine:
        recording = selectrie.record(engine, tmp_path / "run.trace")
        recording.__enter__()
        for prompt in ("a cat", "a bat", "a car"):
            assert engine.select(prompt, CATS).text
        with pytest.raises(OptionError, match="No space left"):
            recording.__exit__(None, None, None)
        assert engine.select("a", CATS).text
    assert read_trace(tmp_path / "run.trace").header.n_tokens == 258


def test_a_large_trace_waits_for_the_disk(tmp_path, monkeypatch):
    """If much is not written yet, rows wait for it; nothing is lost."""
    monkeypatch.setattr(writer, "MAX_WAITING_BYTES", 1)
    with engine_of(hash_model()) as engine, selectrie.record(engine, tmp_path / "run.trace", full_rows=True):
        made = engine.generate("a cat", n=3, seed=1, stopping=StopParams(max_tokens=6))
    trace = read_trace(tmp_path / "run.trace")
    assert sum(len(task.steps) for task in trace.tasks) == sum(len(one.tokens) for one in made.completions)


def test_rows_that_a_server_told_are_recorded_with_their_bounds(tmp_path):
    """An engine on rows by path is recorded too, with the same answer."""
    with Engine(PathRuntime(PathsOf(hash_model()))) as engine:
        expected = engine.select("a cat", CATS)
        engine.trim()
        with selectrie.record(engine, tmp_path / "run.trace"):
            assert same_answer(engine.select("a cat", CATS), expected)
    [task] = read_trace(tmp_path / "run.trace").tasks
    assert all(len(values.step.rest_max) == values.step.n_rows for values in task.steps)


def test_near_ties_are_scored_on_the_model_itself(tmp_path):
    """A model that copies paths has to be asked itself, and not what describes it while it is recorded."""
    model = hash_model()
    with engine_of(model) as engine, selectrie.record(engine, tmp_path / "run.trace"):
        with task_group(engine._model_thread) as group:
            session = engine._session(group)
        assert session.local_model is model
        assert session.model is not model
