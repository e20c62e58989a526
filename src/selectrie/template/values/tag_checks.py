"""Check what a tag must contain and what it may not contain twice.

These checks do not depend on values. Errors are `TemplateError`s at their position.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from selectrie.template.syntax.ast import Document, GenEach, Joint, Segment, Slot
from selectrie.template.syntax.expressions import Constant, Expression
from selectrie.template.syntax.source_positions import error_at
from selectrie.template.values.values import plain

_ALONE = MappingProxyType(
    {
        "k": "the joint itself takes it",
        "temperature": "a joint takes the best assignment and draws none",
        "seed": "a joint draws nothing",
        "logprobs": "the log-probability of one slot alone is not asked for; see the assignments of the joint",
        "rule": "a joint compares log-probabilities of the whole block's text",
        "prior": "a joint compares log-probabilities of the whole block's text",
        "terminator": "what follows the whole block ends it",
        "hidden": "the joint is decided as text that stands on the page",
        "grammar": "a joint compares listed texts; give options=",
        "regex": "a joint compares listed texts; give options=",
    }
)
"""Arguments of a select that mean nothing within a joint, with the reason."""


def check_form(segment: Segment, document: Document) -> None:
    """Raise `TemplateError` for missing or conflicting arguments."""
    if isinstance(segment, Slot):
        _check_slot(segment, document)
    elif isinstance(segment, GenEach):
        _check_geneach(segment, document)
    elif isinstance(segment, Joint):
        for name, expression in (one for part in segment.body if isinstance(part, Slot) for one in part.arguments):
            if name in _ALONE:
                raise error_at(document, expression.span, f"{name}= has no meaning within a joint: {_ALONE[name]}")


def _check_slot(slot: Slot, document: Document) -> None:
    """Raise if the choices of a slot are defined twice, or not at all."""
    given = dict(slot.arguments)
    said = [name for name in given if name in ("options", "grammar", "regex", "json")]
    if slot.choices is not None and said:
        reason = f"the block's choices say what may stand here; leave {said[0]}= out, or the choices"
        raise error_at(document, given[said[0]].span, reason)
    if len(said) > 1:
        reason = f"{said[0]}= and {said[1]}= both say what may stand here; give one of them"
        raise error_at(document, given[said[1]].span, reason)
    if not said and slot.choices is None and slot.kind != "gen":
        block = ", or choices parted by `or`" if slot.kind == "select" else ""
        reason = f"nothing says what may stand in the {slot.kind}; give options=, grammar=, regex={block}"
        raise error_at(document, slot.span, reason)


def _check_geneach(block: GenEach, document: Document) -> None:
    """Raise if the number of items is missing, or given twice."""
    given = dict(block.arguments)
    for other in ("min", "max", "stop"):
        if "num" in given and other in given:
            raise error_at(document, given[other].span, f"num= says how many items there are; leave {other}= out")
    if "num" not in given and "stop" not in given:
        reason = "nothing says how many items there are; give num=, or stop= (with min= and max=)"
        raise error_at(document, block.span, reason)


def check_range(block: GenEach, document: Document, values: Mapping[str, object]) -> None:
    """Raise if `min` is above `max`.

    values: the known values of the arguments.
    """
    least, most = (plain(values.get(name)) for name in ("min", "max"))
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise error_at(document, dict(block.arguments)["min"].span, f"min={least} is above max={most}")


def constant_name(expression: Expression, document: Document) -> str:
    """Return the name in `logprobs=`.

    It must be a constant text, because names must be known before anything is decided.
    """
    if not isinstance(expression, Constant) or not isinstance(expression.value, str) or not expression.value:
        raise error_at(document, expression.span, "expected a name in quotes: logprobs='name'")
    return expression.value
