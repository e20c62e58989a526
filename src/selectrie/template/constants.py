"""What tags say outright, without a name that stands for a value: wrong before any value is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from selectrie.errors import TemplateError
from selectrie.template.arguments import check_argument, check_prior, kind_of_tag
from selectrie.template.expressions import Constant, Expression, ListOf
from selectrie.template.forms import check_range
from selectrie.template.places import error_at
from selectrie.template.scope import Scope, evaluate
from selectrie.template.segments import Body, Document, GenEach, Literal, Output, Segment, Slot
from selectrie.template.sources import Sources
from selectrie.template.values import Option, items_of, options_of, shown, text_of, truth
from selectrie.template.walking import expressions_of, parts_of, paths_in

_NOTHING = Scope()
_NONE = Constant(None)
_T = TypeVar("_T")


def check_constants(segment: Segment, document: Document, sources: Sources) -> None:
    """Raise where a constant is not what is wanted, or constants cannot be compared. Bodies are not looked into."""
    values: dict[str, object] = {}
    for name, expression in expressions_of(segment):
        if any(paths_in(expression)):
            _check_parts(expression, document)
            _check_listed(name, expression, document)
        else:
            value = evaluate(expression, _NOTHING, document)
            check_value(segment, name, value, sources, at=(document, expression))
            values[name] = value
    if isinstance(segment, GenEach):
        check_range(segment, document, values)
    if isinstance(segment, Slot):
        _check_choices(segment, document)
        options = options_of(values["options"]) if values.get("prior") is not None and "options" in values else None
        check_weights(segment, document, values.get("prior"), options)


def check_value(
    segment: Segment, name: str, value: object, sources: Sources, *, at: tuple[Document, Expression]
) -> None:
    """Raise where a tag cannot take this value: as an argument, a text, a condition, what a loop goes through.

    name: as `walking.expressions_of` says what the expression is for. at: where the value is written.
    """
    if name == "condition":
        placed(lambda: truth(value), *at)
    elif name == "items":
        placed(lambda: items_of(value), *at)
    elif isinstance(segment, Output):
        placed(lambda: text_of(value), *at)
    elif kind_of_tag(segment):
        placed(lambda: check_argument(kind_of_tag(segment), name, value, sources), *at)


def check_weights(slot: Slot, document: Document, prior: object, options: tuple[Option, ...] | None) -> None:
    """Raise where the prior is not one of the options; None: there is none, or the options are not known."""
    if options is not None:
        at = dict(slot.arguments).get("prior", _NONE)
        placed(lambda: check_prior(options, prior), document, at)


def placed(made: Callable[[], _T], document: Document, expression: Expression) -> _T:
    """What is made of an expression's value; a reason without a place gets the expression's."""
    try:
        return made()
    except TemplateError as error:
        if error.line is not None:
            raise
        raise error_at(document, expression.span, error.reason) from error.__cause__


def _check_parts(expression: Expression, document: Document) -> None:
    """Evaluate what is constant within an expression that is not."""
    for part in parts_of(expression):
        if any(paths_in(part)):
            _check_parts(part, document)
        else:
            evaluate(part, _NOTHING, document)


def _check_listed(name: str, expression: Expression, document: Document) -> None:
    """The constants among options, of which others are named."""
    if name != "options" or not isinstance(expression, ListOf):
        return
    fixed = [item for item in expression.items if not any(paths_in(item))]
    if fixed:
        placed(lambda: options_of([evaluate(item, _NOTHING, document) for item in fixed]), document, expression)


def _check_choices(slot: Slot, document: Document) -> None:
    """Two choices of a block that are one text."""
    seen: set[str] = set()
    for body in slot.choices or ():
        if all(isinstance(segment, Literal) for segment in body):
            text = "".join(segment.text for segment in body if isinstance(segment, Literal))
            note_choice(text, seen, at=(slot, body, document))


def note_choice(text: str, seen: set[str], *, at: tuple[Slot, Body, Document]) -> None:
    """Raise where a choice of a block is one of those seen; else it is one of them from here on."""
    slot, body, document = at
    if text in seen:
        span = body[0].span if body else slot.span
        raise error_at(document, span, f"the choice {shown(text)} stands there twice; leave one out")
    seen.add(text)
