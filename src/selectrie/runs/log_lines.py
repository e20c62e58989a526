"""Lines of a log: plan, unit and values as JSON, with a digest of the line itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, Protocol, TypeVar

UnitT_contra = TypeVar("UnitT_contra", contravariant=True)
ValuesT = TypeVar("ValuesT")


class TornLineError(Exception):
    """Raised for a line whose digest does not match its body.

    A process was killed while it wrote the line, or the disk is damaged.
    """


class LineFormat(Protocol[UnitT_contra, ValuesT]):
    """What the lines of one kind of run hold about a unit."""

    def encode(self, values: ValuesT) -> Mapping[str, object]:
        """Return the values as fields of JSON, without NaN and infinities.

        No field is called `plan` or `unit`.
        """
        ...

    def decode(self, fields: Mapping[str, Any]) -> ValuesT:
        """Return the values that `encode` wrote.

        Raises `ValueError`, `KeyError`, `TypeError` or `AttributeError` for other
        fields. Further fields need no check: a line must be as `encode` writes it.
        """
        ...

    def check(self, unit: UnitT_contra, values: ValuesT) -> None:
        """Raise `ValueError` if values that were read cannot belong to this unit."""
        ...


@dataclass(frozen=True, slots=True)
class LogLine(Generic[ValuesT]):
    """A line of a log.

    Attributes:
        plan: Digest of the plan that the unit belongs to.
        unit: The unit's number in the plan.
        values: What was found for the unit.
    """

    plan: str
    unit: int
    values: ValuesT

    def to_json(self, lines: LineFormat[Any, ValuesT]) -> str:
        """Return the line as text, without its line end: digest and body.

        Floats are written to the last bit.
        """
        own = {"plan": self.plan, "unit": self.unit, **lines.encode(self.values)}
        body = json.dumps(own, allow_nan=False, separators=(",", ":"))
        return f'{{"digest":"{_digest(body)}","body":{body}}}'

    @staticmethod
    def from_json(text: str, lines: LineFormat[Any, ValuesT]) -> LogLine[ValuesT]:
        """Return the line from the text that `to_json` wrote.

        Raises `TornLineError` if the digest is wrong, and `ValueError` for any other
        text that no run writes.
        """
        start, end = text.find('"body":') + len('"body":'), len(text) - 1
        body = text[start:end]
        if not text.startswith('{"digest":"') or not text.endswith("}") or text[11:43] != _digest(body):
            raise TornLineError
        try:
            fields = json.loads(body)
            line = LogLine(fields["plan"], fields["unit"], lines.decode(fields))
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"it holds no unit ({error!r})") from error
        if type(line.plan) is not str or type(line.unit) is not int:
            raise ValueError("plan or unit has the wrong type")
        # Other keys, another order, or numbers that are not floats.
        if line.to_json(lines) != text:
            raise ValueError("it is not written as a run writes it")
        return line


def _digest(body: str) -> str:
    return blake2b(body.encode(), digest_size=16).hexdigest()
