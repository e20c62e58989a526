"""Records of a trace as lines of JSON: slow, large and obvious, beside the real format."""

from __future__ import annotations

import json

import numpy as np

from selectrie.traces.records import FIELDS, KINDS, NAMES


def to_lines(records) -> str:
    """Return one JSON object a line, with numbers as text that loses no bit."""
    return "\n".join(json.dumps(_plain(record)) for record in records)


def from_lines(text: str) -> list:
    """Return the records of `to_lines`."""
    return [_record(json.loads(line)) for line in text.splitlines()]


def same(one, other) -> bool:
    """Return whether two records have the same fields, to the last bit."""
    return type(one) is type(other) and _plain(one) == _plain(other)


def _plain(record) -> dict:
    values = {name: getattr(record, name) for name, _ in FIELDS[type(record)]}
    return {"record": NAMES[type(record)]} | {name: _value(value) for name, value in values.items()}


def _value(value):
    if isinstance(value, np.ndarray):
        return [value.dtype.str, [_value(one) for one in value.tolist()]]
    return float(value).hex() if isinstance(value, float) else value


def _record(line: dict):
    kind = KINDS[line.pop("record")]
    arguments = {}
    for name, of in FIELDS[kind]:
        value = line[name]
        if isinstance(of, np.dtype):
            items = [float.fromhex(one) if isinstance(one, str) else one for one in value[1]]
            arguments[name] = np.array(items, dtype=value[0])
        else:
            arguments[name] = float.fromhex(value) if of is float else value
    return kind(**arguments)
