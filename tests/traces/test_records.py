"""Records as bytes: what is read is what was written, and nothing else is read."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.traces.records import (
    FIELDS,
    KINDS,
    MAX_LINES_BYTES,
    Note,
    PayloadError,
    ReadStep,
    WholeRow,
    decode,
    encode,
)
from tests.support.trace_twin import from_lines, same, to_lines

SCALARS = {
    bool: st.booleans(),
    int: st.integers(0, 2**40),
    str: st.text(max_size=8),
    float: st.floats(allow_nan=False, allow_infinity=False),
}


def values_of(kind):
    """A strategy for a field of a type."""
    if not isinstance(kind, np.dtype):
        return SCALARS[kind]
    size = kind.itemsize  # any bits, which `arrays` of numbers would take ten times as long to draw
    return st.binary(max_size=4 * size).map(lambda data: np.frombuffer(data[: len(data) // size * size], dtype=kind))


def records_of(kind):
    """A strategy for records of a kind."""
    return st.builds(kind, **{name: values_of(of) for name, of in FIELDS[kind]})


RECORDS = st.one_of([records_of(kind) for kind in KINDS.values()])


@given(st.lists(RECORDS, max_size=6))
def test_what_is_read_is_what_was_written(records):
    """Any records come back to the last bit, NaN and -0 included, as from the twin."""
    read = list(decode(encode(records)))
    twin = from_lines(to_lines(records))
    assert len(read) == len(twin) == len(records)
    assert all(map(same, read, twin))
    assert all(map(same, read, records))


def test_the_comparison_can_fail():
    """The twin's comparison sees one bit, one element and another type."""
    row = WholeRow(1.0, np.array([1, 2], dtype=np.float32))
    assert same(row, WholeRow(1.0, np.array([1, 2], dtype=np.float32)))
    assert not same(row, WholeRow(np.nextafter(1.0, 2), row.logits))
    assert not same(row, WholeRow(1.0, np.array([1, np.nextafter(np.float32(2), np.float32(3))], dtype=np.float32)))
    assert not same(row, Note("a", "b"))


def payload(*lines, arrays=b""):
    """A payload of these lines and bytes, right or wrong."""
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines).encode()
    return len(text).to_bytes(4, "little") + text + arrays


def wide_step(**changed):
    """The line of a step without elements."""
    empty = {"n_rows": 0, "task": 0, "has_best": False}
    names = [name for name, _ in FIELDS[ReadStep]]
    return ["step", *((empty | changed).get(name, 0) for name in names)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "its lines of 0 bytes do not fit"),
        (b"\x01\x00", "its lines of 1 bytes do not fit"),
        (b"\xff\xff\xff\xff", "its lines of 4294967295 bytes do not fit"),
        ((MAX_LINES_BYTES + 1).to_bytes(4, "little") + bytes(MAX_LINES_BYTES + 1), "do not fit"),
        (payload("no JSON"), "a line is not JSON"),
        (payload("[" * 100_000), "a line is not JSON"),
        (payload('["note","a",' + "9" * 5000 + "]"), "is not"),
        (payload('["row",NaN,0]'), "a line is not JSON"),
        (payload({"note": 1}), "a line is not a record of this version"),
        (payload([]), "a line is not a record of this version"),
        (payload([["note"]]), "a line is not a record of this version"),
        (payload(["knot", "a", "b"]), "a line is not a record of this version"),
        (payload(["note", "a"]), "a record 'note' has 1 fields, not 2"),
        (payload(["note", "a", 1]), "text is not what it must be"),
        (payload(["row", True, 0]), "normaliser is not what it must be"),
        (payload(["row", 0.5, 1]), "logits has a length that does not fit"),
        (payload(["row", 0.5, 1], arrays=b"123"), "logits has a length that does not fit"),
        (payload(["row", 0.5, -1], arrays=b"1234"), "logits has a length that does not fit"),
        (payload(["row", 0.5, True], arrays=b"1234"), "logits has a length that does not fit"),
        (payload(["row", 0.5, 10**30]), "logits has a length that does not fit"),
        (payload(["row", 0.5, 1], arrays=b"12345"), "1 bytes belong to no record"),
        (payload(wide_step(task=-1)), "task is not what it must be"),
        (payload(wide_step(task=2**62)), "task is not what it must be"),
        (payload(wide_step(owner=2**31)), "owner has a length that does not fit"),
        (payload(wide_step(has_best=1)), "has_best is not what it must be"),
    ],
)
def test_other_bytes_are_refused(data, reason):
    """Wrong lines, fields and lengths raise the one error before anything is made."""
    with pytest.raises(PayloadError, match=reason):
        list(decode(data))


@given(st.binary(max_size=200))
def test_any_bytes_give_records_or_the_error(data):
    """No bytes end in another error."""
    with suppress(PayloadError):
        list(decode(data))
