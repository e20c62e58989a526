"""Evaluates and checks the expressions of a tag.

This is done before values are given, when they are given, and while a page is rendered.
`check_form` finds arguments that are missing or conflict, whatever their values are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import EnumMeta
from functools import partial
from types import NoneType
from typing import Protocol

from selectrie.errors import MessageText, OptionError, PythonOnly, TemplateError
from selectrie.grammar import Grammar
from selectrie.options import (
    BEAM_TERMINATORS,
    RULES,
    TERMINATORS,
    SamplingParams,
    ScoringRule,
    StopParams,
    at_least,
    flag,
    number,
    one_of,
    seed,
    text,
)
from selectrie.options.checks import numbers_of
from selectrie.template.syntax import ast
from selectrie.template.values.scope import UNKNOWN, Scope, Undecided, evaluate, text_at
from selectrie.template.values.sources import try_grammar
from selectrie.template.values.values import (
    MAX_OPTIONS,
    MAX_TURNS,
    SlotOption,
    describe,
    is_list,
    items_of,
    option_of,
    options_of,
    text_of,
    to_plain,
)

UNLISTED_TERMINATORS = (*BEAM_TERMINATORS, "text")
"""Possible ends of a text of a grammar that is searched."""
_KEYS = "its keys are the texts of the options"
_KINDS = (str, int, float, Mapping, EnumMeta, ScoringRule, NoneType)
ArgumentCheck = Callable[[str, object], object]
"""Checks a name and its value, which is not None.

Raises `OptionError` or `TemplateError`.
"""
_COUNT = partial(at_least, min_value=1, optional=False)
_HIDDEN: Mapping[str, ArgumentCheck] = {"hidden": flag}
_ALONE = {
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
"""Arguments of a select that mean nothing within a joint, with the reason."""


class Grammars(Protocol):
    """Resolves the grammars that tag arguments refer to; `Template` implements it.

    An unknown grammar raises `TemplateError` without a position, or another error.
    """

    def read_grammar(self, name: str) -> Grammar: ...
    def read_regex(self, pattern: str) -> Grammar: ...


def check_argument(kind: str, name: str, value: object, grammars: Grammars) -> None:
    """Raise an error without a position if a tag's argument cannot have this value.

    None is allowed for the arguments of a slot, except for those that define the
    choices of a select or beam.
    """
    is_language = name in ("options", "grammar", "regex") and kind != "gen"
    if value is None and kind in ("select", "gen", "beam") and not is_language:
        return
    if name in ("grammar", "regex"):
        _check_language(name, value, grammars)
        return
    inner = to_plain(value)
    if (
        name != "options" and not isinstance(inner, _KINDS) and not is_list(inner)
    ):  # a message shows no value of another type
        raise TemplateError(f"{name}={describe(inner)}: expected a text, a number, true, false, a list or a mapping")
    try:
        _CHECKS[kind][name](name, inner)
    except OptionError as error:
        allowed = MessageText(error.allowed).worded(str)
        raise TemplateError(f"{error.name}={describe(error.value)}: expected {allowed}") from error


def _check_language(name: str, value: object, grammars: Grammars) -> None:
    """Raise an error unless a grammar or a regular expression can be read.

    `grammar` is a `Grammar` or the name of one; `regex` is a text.
    """
    if name == "grammar" and isinstance(value, Grammar):
        try_grammar(value)
        return
    if not isinstance(value, str):
        kind = MessageText(PythonOnly("a Grammar, or "), "the name of a file or of an installed one")
        raise TemplateError(
            MessageText(f"{name}={describe(value)}: expected ", kind if name == "grammar" else "a text")
        )
    (grammars.read_grammar if name == "grammar" else grammars.read_regex)(value)


def _check_number(name: str, value: object) -> None:
    number(name, value, min_value=0, remedy="a number of at least 0")


def _check_text(_name: str, value: object) -> None:
    text_of(value)


def _check_name(name: str, value: object) -> None:
    text(name, value)
    _check_nonempty(name, value)


def _check_nonempty(name: str, value: object) -> None:
    if not text_of(value):
        raise OptionError(name, value, "a text that is not empty")


def _check_turns(name: str, value: object) -> None:
    """Raise `OptionError` unless the value is a number of passes of a loop."""
    number = to_plain(value)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_TURNS:
        raise OptionError(name, value, f"a whole number from 0 to {MAX_TURNS}")


def _check_rule(name: str, value: object) -> None:
    """Raise an error unless the value is a scoring rule that a slot can use.

    A name is allowed for rules that need no other data. A `ScoringRule` is allowed for
    any rule but "batch".
    """
    if not isinstance(value, str | ScoringRule):
        raise OptionError(name, value, f"one of {RULES}")
    rule = value.name if isinstance(value, ScoringRule) else value
    if rule == "batch":
        raise TemplateError(f"{name}='batch' compares several prompts, but a slot has only one; use another rule")
    if value == "calibrated":
        advice = PythonOnly('pass ScoringRule("calibrated", content_free=[…]) as a value, or ')
        raise TemplateError(
            MessageText(f"{name}='calibrated' needs content-free prompts; ", advice, "use another rule")
        )
    one_of(name, rule, RULES)


def _check_stop(_name: str, value: object) -> None:
    StopParams(stop=value)  # type: ignore[arg-type]  # the check


def _check_options(_name: str, value: object) -> None:
    options_of(value)


def _check_prior(name: str, value: object) -> None:
    """Raise `OptionError` for anything but a list or mapping of weights."""
    weights = list(value.values()) if isinstance(value, Mapping) else value
    if not is_list(weights):
        raise OptionError(name, value, "a list of weights, or a mapping from the texts to weights")
    if len(weights) > MAX_OPTIONS:
        raise OptionError(name, value, f"at most {MAX_OPTIONS} weights")
    for index, weight in enumerate(weights):
        number(f"{name}[{index}]", weight, min_value=0, remedy="finite weights of at least 0")


_SAMPLING = numbers_of(SamplingParams)
_CHECKS: Mapping[str, Mapping[str, ArgumentCheck]] = {
    "select": {
        "options": _check_options,
        "rule": _check_rule,
        "terminator": partial(one_of, allowed=TERMINATORS),
        "prior": _check_prior,
        "k": _COUNT,
        "temperature": _check_number,
        "seed": seed,
        "logprobs": _check_name,
        **_HIDDEN,
    },
    "gen": {
        "max_tokens": _COUNT,
        "stop": _check_stop,
        "json": flag,
        **{name: _SAMPLING[name].allowed.check for name in ("temperature", *SamplingParams.FILTERS)},
        "seed": seed,
        "n": _COUNT,
        **_HIDDEN,
    },
    "beam": {
        "options": _check_options,
        "width": _COUNT,
        "k": _COUNT,
        "max_tokens": _COUNT,
        "length_penalty": _check_number,
        "terminator": partial(one_of, allowed=UNLISTED_TERMINATORS),
        **_HIDDEN,
    },
    "geneach": {
        "num": _check_turns,
        "min": _check_turns,
        "max": _check_turns,
        "join": _check_text,
        "stop": _check_nonempty,
        **_HIDDEN,
    },
    "each": {"join": _check_text},
    "block": _HIDDEN,
    "joint": {"k": _COUNT, "budget": _COUNT},
}
"""Checks by tag and argument.

`grammar` and `regex` are missing here: reading them needs the files.
"""


def rule_of(value: str | ScoringRule) -> ScoringRule:
    """Return the scoring rule of a checked argument."""
    return value if isinstance(value, ScoringRule) else ScoringRule(value)


def kind_of_tag(segment: ast.Segment) -> str:
    """Return a tag's key in `tags.TAGS`, or "" if it takes no arguments."""
    if isinstance(segment, ast.Slot):
        return segment.kind
    kinds: Mapping[type, str] = {ast.GenEach: "geneach", ast.Each: "each", ast.Block: "block", ast.Joint: "joint"}
    return kinds.get(type(segment), "")


def weights_of(prior: object, options: tuple[SlotOption, ...]) -> tuple[float, ...]:
    """Return the weights of a checked prior in the order of the options.

    Raises `TemplateError` (without a position) if they do not match the options, or are
    all 0.
    """
    texts = dict.fromkeys(option.text for option in options)
    if isinstance(prior, Mapping):
        by_text = {text_of(key): weight for key, weight in prior.items()}
        unknown = next((text for text in by_text if text not in texts), None)
        missing = next((text for text in texts if text not in by_text), None)
        if missing is not None:
            raise TemplateError(f"the prior has no weight for {describe(missing)}; {_KEYS}")
        if unknown is not None:
            raise TemplateError(f"the prior has a weight for {describe(unknown)}, which is not an option; {_KEYS}")
        weights = [by_text[text] for text in texts]
    else:
        weights = list(prior) if is_list(prior) else []
        if len(weights) != len(options):
            raise TemplateError(f"the prior has {len(weights)} weights for {len(options)} options; give one for each")
    if not any(weights):
        raise TemplateError("every prior is 0, which leaves nothing to choose from")
    return tuple(map(float, weights))


def check_form(segment: ast.Segment, document: ast.Document) -> None:
    """Raise `TemplateError` for missing or conflicting arguments of a tag."""
    if isinstance(segment, ast.Slot):
        _check_slot(segment, document)
    elif isinstance(segment, ast.GenEach):
        _check_geneach(segment, document)
    elif isinstance(segment, ast.Joint):
        for name, expression in (one for part in segment.body if isinstance(part, ast.Slot) for one in part.arguments):
            if name in _ALONE:
                raise ast.error_at(document, expression.span, f"{name}= cannot be used within a joint: {_ALONE[name]}")


def _check_slot(slot: ast.Slot, document: ast.Document) -> None:
    """Raise `TemplateError` if a slot's choices are defined twice, or not at all."""
    arguments = dict(slot.arguments)
    sources = [name for name in arguments if name in ("options", "grammar", "regex", "json")]
    if slot.choices is not None and sources:
        reason = f"the choices of the block and {sources[0]}= both define what is allowed; leave one of them out"
        raise ast.error_at(document, arguments[sources[0]].span, reason)
    if len(sources) > 1:
        reason = f"{sources[0]}= and {sources[1]}= both define what is allowed; give one of them"
        raise ast.error_at(document, arguments[sources[1]].span, reason)
    if not sources and slot.choices is None and slot.kind != "gen":
        block = ", or choices separated by `or`" if slot.kind == "select" else ""
        reason = f"nothing defines what is allowed in the {slot.kind}; give options=, grammar=, regex={block}"
        raise ast.error_at(document, slot.span, reason)


def _check_geneach(block: ast.GenEach, document: ast.Document) -> None:
    """Raise `TemplateError` if the number of items is missing, or given twice."""
    arguments = dict(block.arguments)
    for other in ("min", "max", "stop"):
        if "num" in arguments and other in arguments:
            reason = f"num= already defines the number of items; leave {other}= out"
            raise ast.error_at(document, arguments[other].span, reason)
    if "num" not in arguments and "stop" not in arguments:
        reason = "nothing defines the number of items; give num=, or stop= (with min= and max=)"
        raise ast.error_at(document, block.span, reason)


def check_range(block: ast.GenEach, document: ast.Document, values: Mapping[str, object]) -> None:
    """Raise `TemplateError` if `min` is above `max`.

    `values` are the known values of the arguments.
    """
    minimum, maximum = (to_plain(values.get(name)) for name in ("min", "max"))
    if isinstance(minimum, int) and isinstance(maximum, int) and minimum > maximum:
        raise ast.error_at(document, dict(block.arguments)["min"].span, f"min={minimum} is above max={maximum}")


def constant_name(expression: ast.Expression, document: ast.Document) -> str:
    """Return the name in the argument `logprobs=`.

    It must be a constant text, because names must be known before a slot is decided.
    """
    if not isinstance(expression, ast.Constant) or not isinstance(expression.value, str) or not expression.value:
        raise ast.error_at(document, expression.span, "expected a name in quotes: logprobs='name'")
    return expression.value


def check_constants(segment: ast.Segment, document: ast.Document, grammars: Grammars) -> None:
    """Raise `TemplateError` if constants in a tag are invalid or cannot be compared.

    Constants are expressions without names. Bodies are not checked.
    """
    known_values(segment, UNKNOWN, document, grammars)
    for name, expression in ast.expressions_of(segment):
        if any(ast.paths_in(expression)):
            _check_parts(expression, document)
            _check_listed_constants(name, expression, document)


def known_values(segment: ast.Segment, scope: Scope, document: ast.Document, grammars: Grammars) -> dict[str, object]:
    """Return the checked values of a tag's expressions by purpose.

    Values that depend on an undecided slot are left out.
    """
    values: dict[str, object] = {}
    for name, expression in ast.expressions_of(segment):
        try:
            value = evaluate(expression, scope, document)
        except Undecided:
            continue
        values[name] = _check_value(segment, (name, expression), value, document, grammars)
    if isinstance(segment, ast.GenEach):
        check_range(segment, document, values)
    if isinstance(segment, ast.Slot):
        options = options_of(values["options"]) if values.get("prior") is not None and "options" in values else None
        options = options if segment.choices is None else choices_at(segment, scope, document)
        if options is not None and values.get("prior") is not None:
            with ast.report_at(document, dict(segment.arguments)["prior"].span):
                weights_of(values["prior"], options)
    return values


def values_at(segment: ast.Segment, scope: Scope, document: ast.Document, grammars: Grammars) -> dict[str, object]:
    """Return the checked values of a tag's expressions by purpose.

    Raises `Undecided` if one depends on an undecided slot.
    """
    return {
        name: value_at(segment, (name, one), scope, document, grammars) for name, one in ast.expressions_of(segment)
    }


def value_at(
    segment: ast.Segment, named: tuple[str, ast.Expression], scope: Scope, document: ast.Document, grammars: Grammars
) -> object:
    """Return the checked value of one expression of a tag.

    Raises `TemplateError` at the expression if the tag does not allow the value.
    `named` is the pair (purpose, expression), as in `ast.expressions_of`.
    """
    return _check_value(segment, named, evaluate(named[1], scope, document), document, grammars)


def _check_value(
    segment: ast.Segment, named: tuple[str, ast.Expression], value: object, document: ast.Document, grammars: Grammars
) -> object:
    """Return the value of a tag's expression if the tag allows it."""
    (name, expression), kind = named, kind_of_tag(segment)
    with ast.report_at(document, expression.span):
        if name == "items":
            items_of(value)
        elif isinstance(segment, ast.Output):
            text_of(value)
        elif isinstance(segment, ast.Role):
            check_role(value)
        elif kind:
            check_argument(kind, name, value, grammars)
    return value


def check_role(value: object) -> str:
    """Return the name of a role, checked.

    Raises `TemplateError` (without a position) if it is not a text, or is blank.
    """
    name = to_plain(value)
    if not isinstance(name, str) or not name.strip():
        raise TemplateError(f"a role must be a text such as 'user', not {describe(value)}")
    return text_of(name)


def choices_at(slot: ast.Slot, scope: Scope, document: ast.Document) -> tuple[SlotOption, ...] | None:
    """Return the options of a slot in block form.

    Returns None if a choice depends on an undecided slot. Raises `TemplateError` if two
    choices have the same text.
    """
    options: dict[str, SlotOption] = {}
    is_known = True
    for body in slot.choices or ():
        try:
            option = _make_option(body, scope, document)
        except Undecided:
            is_known = False
            continue
        if option.text in options:
            span = body[0].span if body else slot.span
            raise ast.error_at(document, span, f"the choice {describe(option.text)} occurs twice; leave one out")
        options[option.text] = option
    return tuple(options.values()) if is_known else None


def _make_option(body: ast.Body, scope: Scope, document: ast.Document) -> SlotOption:
    """Return one choice of a slot in block form as an option.

    A choice that is a single value keeps its type; text and values together are a text.
    """
    parts = [part for part in body if not isinstance(part, ast.Comment)]
    if len(parts) == 1 and isinstance(parts[0], ast.Output):
        value = evaluate(parts[0].value, scope, document)
        with ast.report_at(document, parts[0].value.span):
            return option_of(value)
    texts = (
        part.text if isinstance(part, ast.Literal) else text_at(part.value, scope, document)
        for part in parts
        if isinstance(part, ast.Literal | ast.Output)
    )
    whole = "".join(texts)
    return SlotOption(whole, whole)


def _check_parts(expression: ast.Expression, document: ast.Document) -> None:
    """Evaluate the constant parts of an expression, to raise their errors early."""
    for part in ast.parts_of(expression):
        if any(ast.paths_in(part)):
            _check_parts(part, document)
        else:
            evaluate(part, UNKNOWN, document)


def _check_listed_constants(name: str, expression: ast.Expression, document: ast.Document) -> None:
    """Raise `TemplateError` for invalid constants in a list of options."""
    if name != "options" or not isinstance(expression, ast.ListOf):
        return
    fixed = [item for item in expression.items if not any(ast.paths_in(item))]
    if fixed:
        with ast.report_at(document, expression.span):
            options_of([evaluate(item, UNKNOWN, document) for item in fixed])
