"""A trace is a stranger's file: whatever it holds, reading ends in a trace or in one error."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import selectrie
from selectrie.errors import TraceFileError
from selectrie.traces import reader
from selectrie.traces.blocks import BlockReader, BlockWriter, is_trace
from selectrie.traces.reader import read_trace
from selectrie.traces.records import (
    FORMAT,
    Begin,
    Encoding,
    Note,
    ReadStep,
    TokenIds,
    TraceHeader,
    WholeRow,
    decode,
    encode,
)
from tests.support.traced import ASKED, engine_of, hash_model

HEADER = TraceHeader(FORMAT, "{}", "{}", "{}", "null", "{}", 4, "", has_vocabulary=False, full_rows=False)


def ints(*values):
    """int32[]."""
    return np.array(values, dtype=np.int32)


def flags(*values):
    """uint8[]."""
    return np.array(values, dtype=np.uint8)


ROW_0 = ReadStep(
    0, ints(), ints(), flags(), ints(), 1, ints(0), ints(3), np.array([0.5]), np.array([0.0], "f4"), np.empty(0)
)
ASK = replace(ROW_0, parents=ints(0, ~0), tokens=ints(1, 2), wanted=flags(0, 1), offered=ints(8, 64, 4))
TOP = {
    "top_rows": ints(0),
    "top_counts": ints(2),
    "top_sets": ints(-1),
    "top_lengths": ints(2),
    "top_ids": ints(1, 2),
    "top_logits": np.zeros(2, dtype=np.float32),
}
KNOWN = {
    "known_lengths": ints(2),
    "known_ids": ints(1, 2),
    "known_logp": np.array([-1.0, -2.0]),
    "rest_low": np.array([-3.0]),
    "rest_high": np.array([0.0]),
    "rest_max": np.array([-2.0]),
    "known_reads": flags(*range(8)),
}
GOOD = (HEADER, Begin(0, "ScoreTask", ints(1, 2)), ROW_0, replace(ASK, **TOP))


def written(path, records, *, end=True):
    """Write a trace of these records in one block; right or wrong."""
    file = io.BytesIO()
    blocks = BlockWriter(file)
    blocks.write(encode(records), 1)
    if end:
        blocks.end()
    path.write_bytes(file.getvalue())
    return path


def test_a_trace_by_hand(tmp_path):
    """Two rows of a task: row 0, and the second of two that it asks for."""
    trace = read_trace(written(tmp_path / "t", GOOD))
    [task] = trace.tasks
    assert (task.up, task.token) == ([-1, 0, 1], [-1, 1, 2])
    assert task.rows == [[0], [2]]
    assert task.steps[0].logp(np.array([0]), ints(3))[0].tolist() == [-0.5]
    assert task.steps[1].tops[0, b""][1].tolist() == [1, 2]
    assert is_trace(tmp_path / "t")


WRONG = {
    "has format 1": (replace(HEADER, format=1),),
    "impossible number of tokens": (replace(HEADER, n_tokens=0),),
    "impossible number of tokens, large": (replace(HEADER, n_tokens=2**40),),
    "has no header": (GOOD[1],),
    "has a second header": (HEADER, HEADER),
    "belongs to no task": (HEADER, ROW_0),
    "unknown context": (HEADER, Begin(3, "", ints(1))),
    "has no prompt": (HEADER, Begin(0, "", ints())),
    "token does not exist": (HEADER, Begin(0, "", ints(4))),
    "token does not exist, an encoding": (HEADER, Encoding(False, flags(1), ints(-1))),
    "a set has no digest": (HEADER, TokenIds(1, flags(1))),
    "another number of tokens": (HEADER, WholeRow(0.0, np.zeros(3, dtype=np.float32))),
    "is not finite": (HEADER, WholeRow(0.0, np.full(4, np.nan, dtype=np.float32))),
    "is not finite, infinite": (HEADER, WholeRow(0.0, np.full(4, np.inf, dtype=np.float32))),
}
WRONG_STEPS = {
    "the rows are not those that were asked for": (replace(ROW_0, n_rows=2),),
    "columns of an ask do not match": (ROW_0, replace(ASK, tokens=ints(1))),
    "a row has no parent": (ROW_0, replace(ASK, parents=ints(0, 1))),
    "a row has no parent, far": (ROW_0, replace(ASK, parents=ints(0, -3))),
    "comes before its parent": (ROW_0, replace(ASK, parents=ints(0, ~1))),
    "an ask has no capacity": (ROW_0, replace(ASK, offered=ints())),
    "an ask has no capacity, negative": (ROW_0, replace(ASK, offered=ints(1, -1, 1))),
    "neither wanted nor unwanted": (ROW_0, replace(ASK, wanted=flags(0, 2))),
    "the rows are not those that were asked for, two": (ROW_0, replace(ASK, wanted=flags(1, 1))),
    "pairs of row and token do not match": (replace(ROW_0, owner=ints(0, 0)),),
    "a value belongs to no row": (replace(ROW_0, owner=ints(1)),),
    "tokens and values do not match": (replace(ROW_0, logits=np.zeros(2, dtype=np.float32)),),
    "tokens and values do not match, both": (replace(ROW_0, logp=np.zeros(1)),),
    "rows and normalisers do not match": (replace(ROW_0, normaliser=np.zeros(2)),),
    "a value is not finite": (replace(ROW_0, normaliser=np.array([np.nan])),),
    "a value is not finite, logits": (replace(ROW_0, logits=np.array([np.inf], dtype=np.float32)),),
    "sums and their sets do not match": (replace(ROW_0, mass_rows=ints(0)),),
    "no sum over a set": (replace(ROW_0, mass_rows=ints(0), mass_sets=ints(0), masses=np.zeros(1)),),
    "most probable tokens do not match the rows": (replace(ROW_0, best=ints(1)),),
    "most probable tokens do not match": (replace(ROW_0, **(TOP | {"top_counts": ints()})),),
    "an allowed set does not exist": (replace(ROW_0, **(TOP | {"top_sets": ints(0)})),),
    "a list has an impossible length": (replace(ROW_0, **(TOP | {"top_lengths": ints(2**31 - 1)})),),
    "lengths of lists do not add up": (replace(ROW_0, **(TOP | {"top_lengths": ints(1)})),),
    "more most probable tokens than asked for": (replace(ROW_0, **(TOP | {"top_counts": ints(1)})),),
    "bounds and rows do not match": (replace(ROW_0, rest_max=np.zeros(1)),),
    "bounds and what was read do not match": (replace(ROW_0, **(KNOWN | {"known_reads": flags(1)})),),
    "known tokens and values do not match": (replace(ROW_0, **(KNOWN | {"known_logp": np.zeros(1)})),),
    "known tokens do not ascend": (replace(ROW_0, **(KNOWN | {"known_ids": ints(2, 1)})),),
    "a bound is no log-probability": (replace(ROW_0, **(KNOWN | {"rest_max": np.array([np.nan])})),),
    "a bound is above the other": (replace(ROW_0, **(KNOWN | {"rest_low": np.array([0.5])})),),
    "a whole row is missing": (replace(ROW_0, whole_rows=ints(0), whole=ints(0)),),
}


@pytest.mark.parametrize("reason", [*WRONG, *WRONG_STEPS])
def test_wrong_records_are_refused(reason, tmp_path):
    """Each record that no recording writes is named in the one error."""
    records = WRONG.get(reason) or (*GOOD[:2], *WRONG_STEPS[reason])
    with pytest.raises(TraceFileError, match=reason.partition(",")[0]) as caught:
        read_trace(written(tmp_path / "t", records))
    assert caught.value.path == str(tmp_path / "t")
    assert caught.value.exit_code == 3


def test_what_is_no_trace_is_refused(tmp_path):
    """Missing and empty files, folders, pipes and other files."""
    (tmp_path / "empty").touch()
    (tmp_path / "other").write_bytes(b"GGUF" + bytes(100))
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "empty", "other", "pipe", "."):
        with pytest.raises(TraceFileError):
            read_trace(tmp_path / name)
        assert not is_trace(tmp_path / name)
    with pytest.raises(TraceFileError, match="ends before its header"):
        read_trace(written(tmp_path / "torn", (), end=False))


def test_a_trace_that_is_too_large_is_refused(tmp_path, monkeypatch):
    """The payloads of all blocks together are bounded."""
    path = written(tmp_path / "t", GOOD)
    monkeypatch.setattr(reader, "MAX_TRACE_BYTES", 100)
    with pytest.raises(TraceFileError, match="holds more than"):
        read_trace(path)


def test_a_block_of_too_many_records_is_refused(tmp_path):
    """Records that compress too well would take more memory than the file allows."""
    several = [Note("", "ab"[bit]) for bit in np.random.default_rng(1).integers(0, 2, 2_000).tolist()]
    with pytest.raises(TraceFileError, match="more records than its size allows"):
        read_trace(written(tmp_path / "t", (HEADER, *several)))


@cache
def recorded() -> tuple[bytes, list]:
    """A trace of several requests, as bytes and as records."""
    with TemporaryDirectory() as folder:
        with engine_of(hash_model()) as engine, selectrie.record(engine, f"{folder}/t", full_rows=True):
            for name in ("select, healed", "select, near tie", "generate", "prompt_logprobs", "chat", "loglikelihoods"):
                ASKED[name](engine)
        data = Path(folder, "t").read_bytes()
    return data, [record for payload, _ in BlockReader(io.BytesIO(data)) for record in decode(payload)]


def outcome(path, data) -> str:
    """Read bytes as a trace: "trace", or "error" for the one that reading may end in."""
    path.write_bytes(data)
    try:
        read_trace(path)
    except TraceFileError:
        return "error"
    return "trace"


@given(st.data())
def test_changed_and_cut_bytes(tmp_path_factory, data):
    """Any byte changed, and any end cut off, gives a trace or the error."""
    whole = bytearray(recorded()[0])
    path = tmp_path_factory.getbasetemp() / "changed.trace"
    assert outcome(path, whole) == "trace"
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    outcome(path, whole[: data.draw(st.integers(0, len(whole)))])


def changed(record, data):
    """The record with one field changed to something of its type."""
    name = data.draw(st.sampled_from([one.name for one in fields(record)]))
    value = getattr(record, name)
    if isinstance(value, np.ndarray):
        new = np.resize(value, data.draw(st.integers(0, len(value) + 2))).copy() if len(value) else value.copy()
        if len(new):
            at = data.draw(st.integers(0, len(new) - 1))
            numbers = (
                [-1.0, 1e300, np.nan, np.inf, -np.inf] if new.dtype.kind == "f" else [-(2**31), -1, 0, 7, 2**31 - 1]
            )
            with np.errstate(over="ignore"):
                new[at] = np.array(data.draw(st.sampled_from(numbers))).astype(new.dtype)
    elif isinstance(value, bool):
        new = not value
    elif isinstance(value, int):
        new = data.draw(st.sampled_from([0, 1, 3, 2**31, 2**61]))
    elif isinstance(value, float):
        new = data.draw(st.sampled_from([0.0, -1.0, 1e308]))
    else:
        new = data.draw(st.sampled_from(["", "[" * 5000, "{}", "null", '{"a": 1e999}', "\ud800", value[1:]]))
    return replace(record, **{name: new})


@given(st.data())
def test_changed_records(tmp_path_factory, data):
    """Any field of any record changed, with right digests, gives a trace or the error."""
    records = list(recorded()[1])
    at = data.draw(st.integers(0, len(records) - 1))
    records[at] = changed(records[at], data)
    if data.draw(st.booleans()):
        del records[data.draw(st.integers(0, len(records) - 1))]
    path = tmp_path_factory.getbasetemp() / "records.trace"
    with suppress(UnicodeEncodeError):
        written(path, records)
    with suppress(TraceFileError):
        read_trace(path)
