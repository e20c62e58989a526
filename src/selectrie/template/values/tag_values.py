"""Evaluates and checks the expressions of a tag.

This is done before values are given, when they are given, and while a page is rendered.
"""

from __future__ import annotations

from selectrie.errors import TemplateError
from selectrie.template.syntax.ast import (
    Body,
    Comment,
    Document,
    Expression,
    GenEach,
    ListOf,
    Literal,
    Output,
    Role,
    Segment,
    Slot,
)
from selectrie.template.syntax.source_positions import error_at, reported_at
from selectrie.template.syntax.visitors import expressions_of, parts_of, paths_in
from selectrie.template.values.arguments import Grammars, check_argument, kind_of_tag, weights_of
from selectrie.template.values.scope import UNKNOWN, Scope, Undecided, evaluate, text_at
from selectrie.template.values.tag_checks import check_range
from selectrie.template.values.values import Option, items_of, option_of, options_of, plain, shown, text_of


def check_constants(segment: Segment, document: Document, grammars: Grammars) -> None:
    """Raise `TemplateError` if constants in a tag are invalid or cannot be compared.

    Constants are expressions without names. Bodies are not checked.
    """
    known_values(segment, UNKNOWN, document, grammars)
    for name, expression in expressions_of(segment):
        if any(paths_in(expression)):
            _check_parts(expression, document)
            _check_listed(name, expression, document)


def known_values(segment: Segment, scope: Scope, document: Document, grammars: Grammars) -> dict[str, object]:
    """Return the values of a tag's expressions by purpose, checked singly and together.

    Values that depend on an undecided slot are left out.
    """
    values: dict[str, object] = {}
    for name, expression in expressions_of(segment):
        try:
            value = evaluate(expression, scope, document)
        except Undecided:
            continue
        values[name] = _fitting(segment, (name, expression), value, document, grammars)
    if isinstance(segment, GenEach):
        check_range(segment, document, values)
    if isinstance(segment, Slot):
        options = options_of(values["options"]) if values.get("prior") is not None and "options" in values else None
        options = options if segment.choices is None else choices_at(segment, scope, document)
        if options is not None and values.get("prior") is not None:
            with reported_at(document, dict(segment.arguments)["prior"].span):
                weights_of(values["prior"], options)
    return values


def values_at(segment: Segment, scope: Scope, document: Document, grammars: Grammars) -> dict[str, object]:
    """Return the checked values of a tag's expressions by purpose.

    Raises `Undecided` if one depends on an undecided slot.
    """
    return {name: value_at(segment, (name, one), scope, document, grammars) for name, one in expressions_of(segment)}


def value_at(
    segment: Segment, named: tuple[str, Expression], scope: Scope, document: Document, grammars: Grammars
) -> object:
    """Return the value of one expression of a tag.

    Raises `TemplateError` at the expression if the tag does not allow the value.
    `named` is the pair (purpose, expression), as in `visitors.expressions_of`.
    """
    return _fitting(segment, named, evaluate(named[1], scope, document), document, grammars)


def _fitting(
    segment: Segment, named: tuple[str, Expression], value: object, document: Document, grammars: Grammars
) -> object:
    """Return the value if the tag allows it, else raise `TemplateError`."""
    (name, expression), kind = named, kind_of_tag(segment)
    with reported_at(document, expression.span):
        if name == "items":
            items_of(value)
        elif isinstance(segment, Output):
            text_of(value)
        elif isinstance(segment, Role):
            role_named(value)
        elif kind:
            check_argument(kind, name, value, grammars)
    return value


def role_named(value: object) -> str:
    """Return the name of a role.

    Raises `TemplateError` (without a position) if it is not a text, or is blank.
    """
    name = plain(value)
    if not isinstance(name, str) or not name.strip():
        raise TemplateError(f"a role must be a text such as 'user', not {shown(value)}")
    return text_of(name)


def choices_at(slot: Slot, scope: Scope, document: Document) -> tuple[Option, ...] | None:
    """Return the options of a slot in block form.

    Returns None if a choice depends on an undecided slot. Raises `TemplateError` if two
    choices have the same text.
    """
    options: dict[str, Option] = {}
    is_known = True
    for body in slot.choices or ():
        try:
            option = _choice(body, scope, document)
        except Undecided:
            is_known = False
            continue
        if option.text in options:
            span = body[0].span if body else slot.span
            raise error_at(document, span, f"the choice {shown(option.text)} occurs twice; leave one out")
        options[option.text] = option
    return tuple(options.values()) if is_known else None


def _choice(body: Body, scope: Scope, document: Document) -> Option:
    """Return one choice of a slot in block form as an option.

    A choice that is a single value keeps its type; text and values together are a text.
    """
    parts = [part for part in body if not isinstance(part, Comment)]
    if len(parts) == 1 and isinstance(parts[0], Output):
        value = evaluate(parts[0].value, scope, document)
        with reported_at(document, parts[0].value.span):
            return option_of(value)
    texts = (
        part.text if isinstance(part, Literal) else text_at(part.value, scope, document)
        for part in parts
        if isinstance(part, Literal | Output)
    )
    whole = "".join(texts)
    return Option(whole, whole)


def _check_parts(expression: Expression, document: Document) -> None:
    """Raise `TemplateError` for constant parts that cannot be evaluated."""
    for part in parts_of(expression):
        if any(paths_in(part)):
            _check_parts(part, document)
        else:
            evaluate(part, UNKNOWN, document)


def _check_listed(name: str, expression: Expression, document: Document) -> None:
    """Raise `TemplateError` for invalid constants in a list of options with names."""
    if name != "options" or not isinstance(expression, ListOf):
        return
    fixed = [item for item in expression.items if not any(paths_in(item))]
    if fixed:
        with reported_at(document, expression.span):
            options_of([evaluate(item, UNKNOWN, document) for item in fixed])
