"""What the arguments of tags may be, each by itself. Errors are `TemplateError`s without a place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from selectrie.errors import OptionError, TemplateError
from selectrie.grammar import Grammar
from selectrie.options import (
    BEAM_TERMINATORS,
    RULES,
    TERMINATORS,
    Rule,
    Stopping,
    at_least,
    flag,
    number,
    one_of,
    seed,
)
from selectrie.template.segments import Block, Each, GenEach, Joint, Segment, Slot
from selectrie.template.sources import Sources
from selectrie.template.values import Option, is_list, options_of, plain, shown, text_of

MOST_TURNS = 100_000
"""Of one loop."""

Check = Callable[[str, object], None]
"""Of a name and a value that is not None; raises `OptionError` or `TemplateError`."""


def check_argument(kind: str, name: str, value: object, sources: Sources) -> None:
    """Raise `TemplateError` (without a place) where a tag's argument cannot be this value. None: a slot goes without it."""
    if value is None and kind in ("select", "gen", "beam"):
        return
    if name in ("grammar", "regex"):
        _check_language(name, value, sources)
        return
    try:
        _CHECKS[kind][name](name, value)
    except OptionError as error:
        raise TemplateError(f"{name}={shown(value)}: expected {error.allowed}") from error


def _check_language(name: str, value: object, sources: Sources) -> None:
    """grammar: a `Grammar`, or the name of one that can be read. regex: a text that is one."""
    if name == "grammar" and isinstance(value, Grammar):
        return
    inner = plain(value)
    if not isinstance(inner, str):
        allowed = "a Grammar, or the name of a file or of an installed one" if name == "grammar" else "a text"
        raise TemplateError(f"{name}={shown(value)}: expected {allowed}")
    (sources.grammar if name == "grammar" else sources.regex)(inner)


def _whole(name: str, value: object, *, least: int) -> None:
    at_least(name, plain(value), least, optional=False)


def _number(name: str, value: object, *, most: float = float("inf")) -> None:
    remedy = "a number of at least 0" if most == float("inf") else f"a number from 0 to {most:g}"
    number(name, plain(value), least=0, most=most, remedy=remedy)


def _text(_name: str, value: object) -> None:
    text_of(value)


def _some_text(name: str, value: object) -> None:
    if not text_of(value):
        raise OptionError(name, value, "a text that is not empty")


def _turns(name: str, value: object) -> None:
    number = plain(value)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MOST_TURNS:
        raise OptionError(name, value, f"a whole number from 0 to {MOST_TURNS}")


def _seed(name: str, value: object) -> None:
    seed(name, value)


def _of(name: str, value: object, *, allowed: tuple[str, ...]) -> None:
    one_of(name, value, allowed)


def _rule(name: str, value: object) -> None:
    """By name those that need nothing else; as a record any but "batch"."""
    rule = value.name if isinstance(value, Rule) else value
    if rule == "batch":
        raise OptionError(name, rule, "another rule: a slot has no other prompts to compare with")
    if value == "calibrated":
        raise OptionError(name, rule, 'another rule, or a value: Rule("calibrated", content_free=[…])')
    one_of(name, rule, RULES)


def _stop(_name: str, value: object) -> None:
    Stopping(stop=value)  # type: ignore[arg-type]  # it checks


def _options(_name: str, value: object) -> None:
    options_of(value)


def _prior(name: str, value: object) -> None:
    weights = list(value.values()) if isinstance(value, Mapping) else value
    if not is_list(weights):
        raise OptionError(name, value, "a list of weights, or a mapping from the texts to weights")
    for place, weight in enumerate(weights):
        number(f"{name}[{place}]", plain(weight), least=0, remedy="finite weights of at least 0")


_COUNT = partial(_whole, least=1)
_NATURAL = partial(_whole, least=0)
_SHARE = partial(_number, most=1)
_HIDDEN: Mapping[str, Check] = {"hidden": flag}
_CHECKS: Mapping[str, Mapping[str, Check]] = MappingProxyType(
    {
        "select": {
            "options": _options,
            "rule": _rule,
            "terminator": partial(_of, allowed=TERMINATORS),
            "prior": _prior,
            "k": _COUNT,
            "temperature": _number,
            "seed": _seed,
            "logprobs": _some_text,
            **_HIDDEN,
        },
        "gen": {
            "max_tokens": _COUNT,
            "stop": _stop,
            "temperature": _number,
            "top_k": _NATURAL,
            "top_p": _SHARE,
            "min_p": _SHARE,
            "seed": _seed,
            "n": _COUNT,
            **_HIDDEN,
        },
        "beam": {
            "options": _options,
            "width": _COUNT,
            "k": _COUNT,
            "max_tokens": _COUNT,
            "length_penalty": _number,
            "terminator": partial(_of, allowed=(*BEAM_TERMINATORS, "text")),
            **_HIDDEN,
        },
        "geneach": {"num": _turns, "min": _turns, "max": _turns, "join": _text, "stop": _some_text, **_HIDDEN},
        "each": {"join": _text},
        "block": _HIDDEN,
        "joint": {"k": _COUNT, "budget": _COUNT},
    }
)
"""By tag and argument; `grammar` and `regex` are read, which needs the files."""


def kind_of_tag(segment: Segment) -> str:
    """The key of a segment's tag in the table of arguments; "" for one that takes none."""
    if isinstance(segment, Slot):
        return segment.kind
    kinds: Mapping[type, str] = {GenEach: "geneach", Each: "each", Block: "block", Joint: "joint"}
    return kinds.get(type(segment), "")


def check_prior(options: tuple[Option, ...], prior: object) -> None:
    """Raise `TemplateError` (without a place) where the weights are not those of the options."""
    if prior is None:
        return
    texts = [option.text for option in options]
    if isinstance(prior, Mapping):
        unknown = next((key for key in prior if key not in texts), None)
        missing = next((text for text in texts if text not in prior), None)
        if unknown is not None or missing is not None:
            what = (
                f"weighs {shown(unknown)}, which is no option"
                if missing is None
                else f"has no weight for {shown(missing)}"
            )
            raise TemplateError(f"the prior {what}; its keys are the texts of the options")
        weights = list(prior.values())
    else:
        weights = list(prior) if is_list(prior) else []
        if len(weights) != len(options):
            raise TemplateError(f"the prior has {len(weights)} weights for {len(options)} options; give one for each")
    if not any(plain(weight) for weight in weights):
        raise TemplateError("every prior is 0, which leaves nothing to choose from")
