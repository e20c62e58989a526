"""The slots of a template with their arguments evaluated and checked, ready to be filled. No model call is made here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from selectrie.errors import OptionError, RequestError, TemplateError
from selectrie.grammar import Grammar
from selectrie.grammatical import listed
from selectrie.options import (
    BEAM_TERMINATORS,
    DEFAULT_SEARCH,
    RULES,
    TERMINATORS,
    Beam,
    Rule,
    Sampling,
    Search,
    Stopping,
    at_least,
    flag,
    number,
    one_of,
    seed,
    text,
)
from selectrie.scoring import log_priors
from selectrie.template import segments
from selectrie.template.expressions import Span
from selectrie.template.places import error_at
from selectrie.template.scope import Option, Scope, evaluate, option_of, options_at, text_at, text_of
from selectrie.template.values import plain

MAX_TOKENS = 128
"""Most tokens of a `gen` or `beam` that says nothing about it."""
UNLISTED_TERMINATORS = (*BEAM_TERMINATORS, "text")
"""What may end a text of a grammar that is searched."""
_KEPT = 64
"""Grammars of lists of texts that are kept compiled."""
_JOINT = Rule()


class Grammars(Protocol):
    """Who knows the grammars that arguments name: a `Template`. `TemplateError` without a place, or another error, for what it does not know."""

    def read_grammar(self, name: str) -> Grammar: ...
    def read_regex(self, pattern: str) -> Grammar: ...


@dataclass(frozen=True, slots=True, eq=False)
class SelectSlot:
    """`<<select>>`: one of `options`, or of the texts of `grammar`, which cannot be listed; the other one is None.

    terminator: what ends a choice; None: as the place on the page says. prior: weights of the options in their order.
    temperature: draw one by softmax(score / temperature) instead of taking the best; None: take the best. seed: of that draw;
    None: the place's. logprobs: what the log-probabilities by text are called, or None. hidden: no part of the page.
    """

    name: str
    options: tuple[Option, ...] | None
    grammar: Grammar | None
    rule: Rule = _JOINT
    terminator: str | None = None
    prior: tuple[float, ...] | None = None
    search: Search = DEFAULT_SEARCH
    temperature: float | None = None
    seed: int | None = None
    logprobs: str | None = None
    hidden: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the options."""
        return tuple(option.text for option in self.options or ())


@dataclass(frozen=True, slots=True, eq=False)
class GenSlot:
    """`<<gen>>`: text token by token. stop: texts that end it; None: as the place on the page says. seed: None: the place's.

    n: texts drawn, of which the page has the first.
    """

    name: str
    sampling: Sampling = Sampling.GREEDY
    max_tokens: int = MAX_TOKENS
    stop: tuple[str, ...] | None = None
    grammar: Grammar | None = None
    seed: int | None = None
    n: int = 1
    hidden: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class BeamSlot:
    """`<<beam>>`: the most probable text of a grammar that a beam finds. options: those the grammar is made of, or None.

    terminator: what ends a text; None: as the place on the page says. beam: its terminator is not looked at.
    """

    name: str
    grammar: Grammar
    beam: Beam
    options: tuple[Option, ...] | None = None
    terminator: str | None = None
    hidden: bool = False


AnySlot: TypeAlias = SelectSlot | GenSlot | BeamSlot


def slot_of(
    slot: segments.Slot, scope: Scope, template: Grammars, document: segments.Document, *, max_tokens: int = MAX_TOKENS
) -> AnySlot:
    """The slot with its arguments evaluated and checked. max_tokens: of a gen or beam that does not say.

    Raises `TemplateError` at the argument's expression for a value that is not allowed.
    """
    given = _Arguments(slot, scope, template, document)
    makers: dict[str, Callable[[_Arguments, int], AnySlot]] = {"select": _select, "gen": _gen, "beam": _beam}
    return makers[slot.kind](given, max_tokens)


def slot_options(slot: segments.Slot, scope: Scope, document: segments.Document) -> tuple[Option, ...] | None:
    """The options of a select or beam, in order, each text once; None where it has no list of them.

    Raises `TemplateError` at what is no option, or has a text that another one has.
    """
    if slot.choices is None:
        expression = dict(slot.arguments).get("options")
        return None if expression is None else options_at(expression, scope, document)
    found: dict[str, Option] = {}
    for body in slot.choices:
        option = _choice(body, scope, document)
        if option.text in found:
            span = body[0].span if body else slot.span
            raise error_at(document, span, f"the choice {option.text!r} stands there twice; leave one out")
        found[option.text] = option
    return tuple(found.values())


class _Arguments:
    """The arguments of one slot: what each is, and where it stands."""

    def __init__(self, slot: segments.Slot, scope: Scope, template: Grammars, document: segments.Document) -> None:
        self.slot, self.template, self.document = slot, template, document
        self.options = slot_options(slot, scope, document)
        expressions = {name: one for name, one in slot.arguments if name not in ("options", "name")}
        self._spans = {name: one.span for name, one in slot.arguments}
        self._values = {name: plain(evaluate(one, scope, document)) for name, one in expressions.items()}

    def get(self, name: str, default: Any = None) -> Any:
        """The value given, an Enum member as its value; the default where none is, or None is."""
        value = self._values.get(name)
        return default if value is None else value

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these arguments that are given, None left out."""
        return {name: value for name in names if (value := self._values.get(name)) is not None}

    @contextmanager
    def telling(self, *names: str) -> Iterator[None]:
        """What is wrong with a value in the block is told at its argument: the one an `OptionError` names, else the first of `names` given."""
        try:
            yield
        except TemplateError as error:
            if error.line is not None:
                raise
            raise self.error(error.reason, *names) from error
        except RequestError as error:
            named = error.name.partition("[")[0] if isinstance(error, OptionError) else ""
            known = [name for name in (named, *names) if name in self._spans]
            raise self.error(str(error), *known) from error

    def error(self, reason: str, *names: str) -> TemplateError:
        """An error at the first of these arguments that is given, or at the slot."""
        spans = [self._spans[name] for name in names if name in self._spans]
        return error_at(self.document, spans[0] if spans else self.slot.span, reason)

    def hidden(self) -> bool:
        """Is it no part of the page?"""
        value = self.get("hidden", False)
        with self.telling("hidden"):
            flag("hidden", value)
        return bool(value)

    def seed(self) -> int | None:
        """The seed given."""
        with self.telling("seed"):
            return seed("seed", self.get("seed"))

    def grammar(self) -> Grammar | None:
        """The grammar of `grammar=` or `regex=`."""
        both = self.given("grammar", "regex")
        if len(both) > 1:
            raise self.error("grammar= and regex= both say what may stand here; give one of the two", "regex")
        if "regex" in both:
            with self.telling("regex"):
                text("regex", both["regex"])
                return self.template.read_regex(both["regex"])
        if "grammar" not in both:
            return None
        value = both["grammar"]
        if isinstance(value, Grammar):
            return value
        with self.telling("grammar"):
            if not isinstance(value, str):
                raise OptionError("grammar", value, "a Grammar, or the name of a file or of an installed one")
            return self.template.read_grammar(value)

    def space(self) -> tuple[tuple[Option, ...] | None, Grammar | None]:
        """What may stand there: options or a grammar, never both, never neither."""
        grammar = self.grammar()
        if self.options is not None and grammar is not None:
            raise self.error(
                "the options say what may stand here already; leave grammar= and regex= out", "grammar", "regex"
            )
        if self.options is None and grammar is None:
            raise self.error("nothing says what may stand here; give options=, grammar= or regex=")
        return self.options, grammar

    def terminator(self, allowed: tuple[str, ...]) -> str | None:
        """The terminator given."""
        value = self.get("terminator")
        if value is not None:
            with self.telling("terminator"):
                one_of("terminator", value, allowed)
        return None if value is None else str(value)


def _select(given: _Arguments, _max_tokens: int) -> SelectSlot:
    options, grammar = given.space()
    if grammar is not None:
        texts = listed(grammar)
        if texts is not None:
            options, grammar = tuple(Option(one, one) for one in texts), None
    rule = _rule(given)
    temperature = given.get("temperature")
    with given.telling("temperature"):
        if temperature is not None:
            number("temperature", temperature, least=0, remedy="a number of at least 0 (0 = the best)")
    logprobs = given.get("logprobs")
    with given.telling("logprobs"):
        text("logprobs", logprobs, optional=True)
    with given.telling("k"):
        draws = temperature is not None and temperature > 0
        search = Search(k=given.get("k", 1), stop="all" if draws or logprobs is not None else "best")
    if options is None:
        _check_unlisted(given, rule)
    return SelectSlot(
        name=given.slot.name,
        options=options,
        grammar=grammar,
        rule=rule,
        terminator=given.terminator(TERMINATORS if options is not None else UNLISTED_TERMINATORS),
        prior=_prior(given, options),
        search=search if options is not None else Search(k=search.k),
        temperature=temperature,
        seed=given.seed(),
        logprobs=logprobs,
        hidden=given.hidden(),
    )


def _check_unlisted(given: _Arguments, rule: Rule) -> None:
    """What only a listed set can have."""
    name = "grammar" if given.given("grammar") else "regex"
    temperature = given.get("temperature")
    if given.get("prior") is not None:
        raise given.error(f"prior= needs options to weigh, and the texts of this {name} cannot be listed", "prior")
    if temperature is not None and temperature != 1:
        reason = f"temperature={temperature!r}: expected 1, as the texts of this {name} cannot be listed"
        raise given.error(reason, "temperature")
    allowed = ("joint",) if temperature is not None else ("joint", "token_mean")
    if rule.name not in allowed:
        reason = f"rule={rule.name!r}: expected {' or '.join(map(repr, allowed))}, as the texts of this {name} cannot be listed"
        raise given.error(reason, "rule")


def _rule(given: _Arguments) -> Rule:
    """The rule by name, or a `Rule` among the values."""
    value = given.get("rule", "joint")
    with given.telling("rule"):
        rule = value if isinstance(value, Rule) else None
        if rule is None:
            one_of("rule", value, RULES)
            rule = Rule(value)
        if rule.name == "batch":
            raise OptionError("rule", "batch", "another: a slot has no other prompts to compare with")
    return rule


def _prior(given: _Arguments, options: tuple[Option, ...] | None) -> tuple[float, ...] | None:
    """Weights in the order of the options, checked."""
    prior = given.get("prior")
    if prior is None or options is None:
        return None
    texts = tuple(option.text for option in options)
    with given.telling("prior"):
        if isinstance(prior, Mapping):
            prior = {text_of(key): weight for key, weight in prior.items()}
        log_priors(prior, texts)
    return tuple(float(one) for one in ([prior[one] for one in texts] if isinstance(prior, Mapping) else prior))


def _gen(given: _Arguments, max_tokens: int) -> GenSlot:
    grammar = given.grammar()
    chain = given.given("top_k", "top_p", "min_p")
    with given.telling():
        sampling = Sampling(temperature=given.get("temperature", 0.0), **chain)
        stop = given.get("stop")
        stopping = Stopping(max_tokens=given.get("max_tokens", max_tokens), stop=() if stop is None else stop)
        at_least("n", given.get("n", 1), 1, optional=False)
    return GenSlot(
        name=given.slot.name,
        sampling=sampling,
        max_tokens=stopping.max_tokens,
        stop=None if stop is None else tuple(stopping.stop),
        grammar=grammar,
        seed=given.seed(),
        n=given.get("n", 1),
        hidden=given.hidden(),
    )


def _beam(given: _Arguments, max_tokens: int) -> BeamSlot:
    options, grammar = given.space()
    chosen = given.given("width", "length_penalty")
    with given.telling():
        at_least("k", given.get("k", 1), 1, optional=False)
        beam = Beam(n=given.get("k", 1), max_tokens=given.get("max_tokens", max_tokens), **chosen)
    return BeamSlot(
        name=given.slot.name,
        grammar=grammar if grammar is not None else _of_texts(tuple(option.text for option in options or ())),
        beam=beam,
        options=options,
        terminator=given.terminator(UNLISTED_TERMINATORS),
        hidden=given.hidden(),
    )


def _choice(body: segments.Body, scope: Scope, document: segments.Document) -> Option:
    """A choice of the block form. An output alone is an option as it is, so that its value keeps its type."""
    parts = [part for part in body if not isinstance(part, segments.Comment)]
    if len(parts) == 1 and isinstance(parts[0], segments.Output):
        value = evaluate(parts[0].value, scope, document)
        with _told_at(document, parts[0].value.span):
            return option_of(value)
    written: list[str] = []
    for part in parts:
        if isinstance(part, segments.Literal):
            written.append(part.text)
        elif isinstance(part, segments.Output):
            written.append(text_at(part.value, scope, document))
        else:
            raise error_at(document, part.span, "a choice is text and <<name>>s; nothing else may stand in it")
    whole = "".join(written)
    return Option(whole, whole)


@contextmanager
def _told_at(document: segments.Document, span: Span) -> Iterator[None]:
    """What is wrong with a value in the block is told at this place."""
    try:
        yield
    except TemplateError as error:
        if error.line is not None:
            raise
        raise error_at(document, span, error.reason) from error
    except RequestError as error:
        raise error_at(document, span, str(error)) from error


@lru_cache(maxsize=_KEPT)
def _of_texts(texts: tuple[str, ...]) -> Grammar:
    """The grammar of a list of texts, the same for every row of a request."""
    return Grammar.from_choices(texts, name="options")
