"""The slots of a template with their arguments evaluated and checked, ready to be filled. No model call is made here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from selectrie.errors import OptionError
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
    number,
    one_of,
    text,
)
from selectrie.scoring import log_priors
from selectrie.slot_arguments import Grammars, SlotArguments
from selectrie.template import segments
from selectrie.template.scope import Option, Scope, text_of

MAX_TOKENS = 128
"""Most tokens of a `gen` or `beam` that says nothing about it."""
UNLISTED_TERMINATORS = (*BEAM_TERMINATORS, "text")
"""What may end a text of a grammar that is searched."""
_KEPT = 64
"""Grammars of lists of texts that are kept compiled."""
_JOINT = Rule()


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
    given = SlotArguments(slot, scope, template, document)
    makers: dict[str, Callable[[SlotArguments, int], AnySlot]] = {"select": _select, "gen": _gen, "beam": _beam}
    return makers[slot.kind](given, max_tokens)


def _select(given: SlotArguments, _max_tokens: int) -> SelectSlot:
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


def _check_unlisted(given: SlotArguments, rule: Rule) -> None:
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


def _rule(given: SlotArguments) -> Rule:
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


def _prior(given: SlotArguments, options: tuple[Option, ...] | None) -> tuple[float, ...] | None:
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


def _gen(given: SlotArguments, max_tokens: int) -> GenSlot:
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


def _beam(given: SlotArguments, max_tokens: int) -> BeamSlot:
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


@lru_cache(maxsize=_KEPT)
def _of_texts(texts: tuple[str, ...]) -> Grammar:
    """The grammar of a list of texts, the same for every row of a request."""
    return Grammar.from_choices(texts, name="options")
