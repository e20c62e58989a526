"""What the header of a trace says about the model, checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from selectrie.core.path_model import REMOTE
from selectrie.core.types import BatchSizes, CallCost, Limits, ModelIdentity, ModelKind, Precision, SelfCheck
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import OptionError, TraceFileError
from selectrie.traces.reader import Trace

_MAX_COUNT = 1 << 48
_IDENTITY = {
    **dict.fromkeys(("name", "digest", "tokenizer_digest", "backend", "build", "processor", "precision"), str),
    "n_parameters": int,
    "weights": str,
}
_CHECK = {"batch_multiple": int, "moved": float, "tolerance": float, "n_rows": int}
_LIMITS = {
    **dict.fromkeys(("nodes", "sequences", "rows_per_call", "prefix_tokens"), int),
    "kind": str,
    "can_interrupt": bool,
    "larger_context": str,
}


@dataclass(frozen=True, slots=True)
class RecordedModel:
    """The model of a trace as requests see it (`core.model.ModelDescription`)."""

    vocabulary: Vocabulary
    limits: Limits
    identity: ModelIdentity


def identity_of(trace: Trace) -> ModelIdentity:
    """Return the identity of the model; raise `TraceFileError` if it is no identity."""
    fields = _checked(trace, "identity", _object(trace, "identity"), _IDENTITY)
    if fields["precision"] not in (REMOTE, *(one.value for one in Precision)):
        raise _wrong(trace, "precision")
    return ModelIdentity(**fields)


def check_of(trace: Trace) -> SelfCheck | None:
    """Return the self-check of the model, if it had one."""
    found = _parsed(trace, "check")
    if found is None:
        return None
    try:
        return SelfCheck(**_checked(trace, "check", found, _CHECK))
    except OptionError as error:
        raise _wrong(trace, "check") from error


def limits_of(trace: Trace) -> Limits:
    """Return the limits of the model."""
    found = dict(_object(trace, "limits"))
    sizes, cost, idle = (found.pop(name, None) for name in ("batch_sizes", "call_cost", "max_idle_rows"))
    plain = _checked(trace, "limits", found, _LIMITS)
    try:
        _counts(trace, [idle] if idle is not None else [])
        pairs = [(rows, seconds) for rows, seconds in sizes["buckets"]]
        _counts(trace, [sizes["multiple"], *(rows for rows, _ in pairs), *cost.values()])
        return Limits(
            **plain | {"kind": ModelKind(plain["kind"])},
            max_idle_rows=idle,
            batch_sizes=BatchSizes(sizes["multiple"], tuple(pairs)),
            call_cost=CallCost(**cost),
        )
    except (AttributeError, KeyError, TypeError, ValueError, OptionError) as error:
        raise _wrong(trace, "limits") from error


def searches_of(trace: Trace) -> dict[str, int | None]:
    """Return how searches ask, as arguments of a `Session`."""
    found = _object(trace, "searches")
    if found.keys() != {"n_together", "max_named"}:
        raise _wrong(trace, "searches")
    _counts(trace, [value for value in found.values() if value is not None])
    return found


def _parsed(trace: Trace, name: str) -> Any:
    try:
        return json.loads(getattr(trace.header, name))
    except (ValueError, RecursionError) as error:
        raise _wrong(trace, name) from error


def _object(trace: Trace, name: str) -> dict[str, Any]:
    found = _parsed(trace, name)
    if not isinstance(found, dict):
        raise _wrong(trace, name)
    return found


def _checked(trace: Trace, name: str, found: Any, kinds: dict[str, type]) -> dict[str, Any]:
    """Return the fields of an object if they are those of `kinds`, with these types."""
    if not isinstance(found, dict) or {key: type(value) for key, value in found.items()} != kinds:
        raise _wrong(trace, name)
    _counts(trace, [value for value in found.values() if type(value) is int])
    return found


def _counts(trace: Trace, values: list[Any]) -> None:
    if not all(type(value) is int and 0 <= value <= _MAX_COUNT for value in values):
        raise _wrong(trace, "header")


def _wrong(trace: Trace, name: str) -> TraceFileError:
    return TraceFileError(str(trace.path), f"what its header says about the model is no {name}")
