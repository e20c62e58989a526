"""Checks the arguments of tags, each on its own.

Errors are `TemplateError`s without a position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import EnumMeta
from functools import partial
from types import MappingProxyType, NoneType
from typing import Protocol

from selectrie.errors import OptionError, PythonOnly, TemplateError, Words
from selectrie.grammar import Grammar
from selectrie.options import (
    BEAM_TERMINATORS,
    RULES,
    TERMINATORS,
    ScoringRule,
    StopParams,
    at_least,
    flag,
    number,
    one_of,
    seed,
    text,
)
from selectrie.template.syntax.ast import Block, Each, GenEach, Joint, Segment, Slot
from selectrie.template.values.sources import try_grammar
from selectrie.template.values.values import (
    MAX_OPTIONS,
    MAX_TURNS,
    Option,
    is_list,
    options_of,
    plain,
    shown,
    text_of,
)

UNLISTED_TERMINATORS = (*BEAM_TERMINATORS, "text")
"""Possible ends of a text of a grammar that is searched."""
_KEYS = "its keys are the texts of the options"
_KINDS = (str, int, float, Mapping, EnumMeta, ScoringRule, NoneType)


class Grammars(Protocol):
    """Resolves the grammars that tag arguments refer to; `Template` implements it.

    An unknown grammar raises `TemplateError` without a position, or another error.
    """

    def read_grammar(self, name: str) -> Grammar: ...
    def read_regex(self, pattern: str) -> Grammar: ...


Check = Callable[[str, object], object]
"""Checks a name and its value, which is not None.

Raises `OptionError` or `TemplateError`.
"""


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
    inner = plain(value)
    if (
        name != "options" and not isinstance(inner, _KINDS) and not is_list(inner)
    ):  # a message shows no value of another type
        raise TemplateError(f"{name}={shown(inner)}: expected a text, a number, true, false, a list or a mapping")
    try:
        _CHECKS[kind][name](name, inner)
    except OptionError as error:
        allowed = Words(error.allowed).worded(str)
        raise TemplateError(f"{error.name}={shown(error.value)}: expected {allowed}") from error


def _check_language(name: str, value: object, grammars: Grammars) -> None:
    """Raise an error unless a grammar or a regex can be read.

    `grammar` is a `Grammar` or the name of one; `regex` is a text.
    """
    if name == "grammar" and isinstance(value, Grammar):
        try_grammar(value)
        return
    if not isinstance(value, str):
        kind = Words(PythonOnly("a Grammar, or "), "the name of a file or of an installed one")
        raise TemplateError(Words(f"{name}={shown(value)}: expected ", kind if name == "grammar" else "a text"))
    (grammars.read_grammar if name == "grammar" else grammars.read_regex)(value)


def _number(name: str, value: object, *, max_value: float = float("inf")) -> None:
    remedy = "a number of at least 0" if max_value == float("inf") else f"a number from 0 to {max_value:g}"
    number(name, value, min_value=0, max_value=max_value, remedy=remedy)


def _text(_name: str, value: object) -> None:
    text_of(value)


def _name(name: str, value: object) -> None:
    text(name, value)
    _some_text(name, value)


def _some_text(name: str, value: object) -> None:
    if not text_of(value):
        raise OptionError(name, value, "a text that is not empty")


def _turns(name: str, value: object) -> None:
    number = plain(value)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_TURNS:
        raise OptionError(name, value, f"a whole number from 0 to {MAX_TURNS}")


def _rule(name: str, value: object) -> None:
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
        raise TemplateError(Words(f"{name}='calibrated' needs content-free prompts; ", advice, "use another rule"))
    one_of(name, rule, RULES)


def _stop(_name: str, value: object) -> None:
    StopParams(stop=value)  # type: ignore[arg-type]  # the check


def _options(_name: str, value: object) -> None:
    options_of(value)


def _prior(name: str, value: object) -> None:
    weights = list(value.values()) if isinstance(value, Mapping) else value
    if not is_list(weights):
        raise OptionError(name, value, "a list of weights, or a mapping from the texts to weights")
    if len(weights) > MAX_OPTIONS:
        raise OptionError(name, value, f"at most {MAX_OPTIONS} weights")
    for index, weight in enumerate(weights):
        number(f"{name}[{index}]", weight, min_value=0, remedy="finite weights of at least 0")


_COUNT = partial(at_least, min_value=1, optional=False)
_NATURAL = partial(at_least, min_value=0, optional=False)
_SHARE = partial(_number, max_value=1)
_HIDDEN: Mapping[str, Check] = {"hidden": flag}
_CHECKS: Mapping[str, Mapping[str, Check]] = MappingProxyType(
    {
        "select": {
            "options": _options,
            "rule": _rule,
            "terminator": partial(one_of, allowed=TERMINATORS),
            "prior": _prior,
            "k": _COUNT,
            "temperature": _number,
            "seed": seed,
            "logprobs": _name,
            **_HIDDEN,
        },
        "gen": {
            "max_tokens": _COUNT,
            "stop": _stop,
            "json": flag,
            "temperature": _number,
            "top_k": _NATURAL,
            "top_p": _SHARE,
            "min_p": _SHARE,
            "seed": seed,
            "n": _COUNT,
            **_HIDDEN,
        },
        "beam": {
            "options": _options,
            "width": _COUNT,
            "k": _COUNT,
            "max_tokens": _COUNT,
            "length_penalty": _number,
            "terminator": partial(one_of, allowed=UNLISTED_TERMINATORS),
            **_HIDDEN,
        },
        "geneach": {"num": _turns, "min": _turns, "max": _turns, "join": _text, "stop": _some_text, **_HIDDEN},
        "each": {"join": _text},
        "block": _HIDDEN,
        "joint": {"k": _COUNT, "budget": _COUNT},
    }
)
"""Checks by tag and argument.

`grammar` and `regex` are missing here: reading them needs the files.
"""


def rule_of(value: str | ScoringRule) -> ScoringRule:
    """Return the scoring rule of an argument that was checked."""
    return value if isinstance(value, ScoringRule) else ScoringRule(value)


def kind_of_tag(segment: Segment) -> str:
    """Return a tag's key in the table of tags, or "" if it takes no arguments."""
    if isinstance(segment, Slot):
        return segment.kind
    kinds: Mapping[type, str] = {GenEach: "geneach", Each: "each", Block: "block", Joint: "joint"}
    return kinds.get(type(segment), "")


def weights_of(prior: object, options: tuple[Option, ...]) -> tuple[float, ...]:
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
            raise TemplateError(f"the prior has no weight for {shown(missing)}; {_KEYS}")
        if unknown is not None:
            raise TemplateError(f"the prior has a weight for {shown(unknown)}, which is not an option; {_KEYS}")
        weights = [by_text[text] for text in texts]
    else:
        weights = list(prior) if is_list(prior) else []
        if len(weights) != len(options):
            raise TemplateError(f"the prior has {len(weights)} weights for {len(options)} options; give one for each")
    if not any(weights):
        raise TemplateError("every prior is 0, which leaves nothing to choose from")
    return tuple(map(float, weights))
