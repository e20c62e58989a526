"""Checks that a tag has all arguments that it needs, and none that conflict.

These checks do not depend on values. Errors are `TemplateError`s at their position.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from selectrie.template.syntax.ast import Constant, Document, Expression, GenEach, Joint, Segment, Slot
from selectrie.template.syntax.source_positions import error_at
from selectrie.template.values.values import plain

_ALONE = MappingProxyType(
    {
        "k": "set it on the joint itself",
        "temperature": "a joint takes the best assignment and does not sample",
        "seed": "a joint does not sample",
        "logprobs": "its slots are not scored alone; see the assignments in its record",
        "rule": "a joint compares log-probabilities of the whole block's text",
        "prior": "a joint compares log-probabilities of the whole block's text",
        "terminator": "the text after the whole block ends it",
        "hidden": "a joint is decided as text of the page",
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
                raise error_at(document, expression.span, f"{name}= cannot be used within a joint: {_ALONE[name]}")


def _check_slot(slot: Slot, document: Document) -> None:
    """Raise `TemplateError` if a slot's choices are defined twice, or not at all."""
    arguments = dict(slot.arguments)
    sources = [name for name in arguments if name in ("options", "grammar", "regex", "json")]
    if slot.choices is not None and sources:
        reason = f"the choices of the block and {sources[0]}= both define what is allowed; leave one of them out"
        raise error_at(document, arguments[sources[0]].span, reason)
    if len(sources) > 1:
        reason = f"{sources[0]}= and {sources[1]}= both define what is allowed; give one of them"
        raise error_at(document, arguments[sources[1]].span, reason)
    if not sources and slot.choices is None and slot.kind != "gen":
        block = ", or choices separated by `or`" if slot.kind == "select" else ""
        reason = f"nothing defines what is allowed in the {slot.kind}; give options=, grammar=, regex={block}"
        raise error_at(document, slot.span, reason)


def _check_geneach(block: GenEach, document: Document) -> None:
    """Raise `TemplateError` if the number of items is missing, or given twice."""
    arguments = dict(block.arguments)
    for other in ("min", "max", "stop"):
        if "num" in arguments and other in arguments:
            reason = f"num= already defines the number of items; leave {other}= out"
            raise error_at(document, arguments[other].span, reason)
    if "num" not in arguments and "stop" not in arguments:
        reason = "nothing defines the number of items; give num=, or stop= (with min= and max=)"
        raise error_at(document, block.span, reason)


def check_range(block: GenEach, document: Document, values: Mapping[str, object]) -> None:
    """Raise `TemplateError` if `min` is above `max`.

    `values` are the known values of the arguments.
    """
    minimum, maximum = (plain(values.get(name)) for name in ("min", "max"))
    if isinstance(minimum, int) and isinstance(maximum, int) and minimum > maximum:
        raise error_at(document, dict(block.arguments)["min"].span, f"min={minimum} is above max={maximum}")


def constant_name(expression: Expression, document: Document) -> str:
    """Return the name in the argument `logprobs=`.

    It must be a constant text, because names must be known before a slot is decided.
    """
    if not isinstance(expression, Constant) or not isinstance(expression.value, str) or not expression.value:
        raise error_at(document, expression.span, "expected a name in quotes: logprobs='name'")
    return expression.value
