"""The slots of a template with their arguments evaluated and checked, ready to be filled. No model call is made here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from selectrie.engine.requests.select_grammar import listed
from selectrie.errors import TemplateError
from selectrie.grammar import Grammar
from selectrie.options import DEFAULT_RENDERING, DEFAULT_SEARCH, Beam, Rule, Sampling, Search, Stopping
from selectrie.template.syntax import ast
from selectrie.template.syntax.source_positions import error_at, told_at
from selectrie.template.values.arguments import UNLISTED_TERMINATORS, Grammars, rule_of, weights_of
from selectrie.template.values.scope import Scope
from selectrie.template.values.tag_checks import check_form
from selectrie.template.values.tag_values import choices_at, values_at
from selectrie.template.values.values import Option, options_of, plain
from selectrie.tokenization.records import PromptText

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

    is_json: the contents of a JSON string, which its closing quote ends; without `grammar`. n: texts drawn, of which the
    page has the first.
    """

    name: str
    sampling: Sampling = Sampling.GREEDY
    max_tokens: int = DEFAULT_RENDERING.max_tokens
    stop: tuple[str, ...] | None = None
    grammar: Grammar | None = None
    is_json: bool = False
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


class SlotArguments:
    """The arguments of one slot: what each is, and where it stands. options: of a list of them, each text once; else None."""

    def __init__(self, slot: ast.Slot, scope: Scope, template: Grammars, document: ast.Document) -> None:
        """Raises `TemplateError` at the argument that cannot be what it is."""
        self.slot, self.template, self.document = slot, template, document
        check_form(slot, document)
        values = values_at(slot, scope, document, template)
        self._spans = {name: one.span for name, one in slot.arguments}
        self.options: tuple[Option, ...] | None = None
        if slot.choices is not None:
            self.options = choices_at(slot, scope, document)
        elif "options" in values:
            with self.telling("options"):
                self.options = options_of(values["options"])
        self._values = {name: plain(value) for name, value in values.items()}

    def get(self, name: str, default: Any = None) -> Any:
        """The value given, an Enum member as its value; the default where none is, or None is."""
        value = self._values.get(name)
        return default if value is None else value

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these arguments that are given, None left out."""
        return {name: value for name in names if (value := self._values.get(name)) is not None}

    def telling(self, name: str) -> AbstractContextManager[None]:
        """What is wrong with a value in the block is told at this argument."""
        return told_at(self.document, self._spans[name])

    def error(self, reason: str, name: str | None = None) -> TemplateError:
        """An error at an argument, or at the slot."""
        return error_at(self.document, self.slot.span if name is None else self._spans[name], reason)

    def grammar(self) -> Grammar | None:
        """The grammar of `grammar=` or `regex=`."""
        if self.given("regex"):
            with self.telling("regex"):
                return self.template.read_regex(self.get("regex"))
        value = self.get("grammar")
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # a Grammar, or None
        with self.telling("grammar"):
            return self.template.read_grammar(value)

    def space(self) -> tuple[tuple[Option, ...] | None, Grammar | None]:
        """What may stand there: options or a grammar, never both, never neither."""
        grammar = self.grammar()
        if self.options is None and grammar is None:
            raise self.error("nothing says what may stand here; give options=, grammar= or regex=")
        return self.options, grammar


def slot_of(
    slot: ast.Slot,
    scope: Scope,
    template: Grammars,
    document: ast.Document,
    *,
    max_tokens: int = DEFAULT_RENDERING.max_tokens,
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
    rule, temperature, logprobs = rule_of(given.get("rule", "joint")), given.get("temperature"), given.get("logprobs")
    scores_all = logprobs is not None or bool(temperature)
    search = Search(k=given.get("k", 1), stop="all" if scores_all else "best")
    if options is None:
        _check_unlisted(given, rule)
    return SelectSlot(
        name=given.slot.name,
        options=options,
        grammar=grammar,
        rule=rule,
        terminator=given.get("terminator"),
        prior=_prior(given, options),
        search=search if options is not None else Search(k=search.k),
        temperature=temperature,
        seed=given.get("seed"),
        logprobs=logprobs,
        hidden=given.get("hidden", False),
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
    terminator = given.get("terminator", "auto")
    if terminator not in UNLISTED_TERMINATORS:
        expected = " or ".join(map(repr, UNLISTED_TERMINATORS))
        reason = f"terminator={terminator!r}: expected {expected}, as the texts of this {name} cannot be listed"
        raise given.error(reason, "terminator")
    allowed = ("joint",) if temperature is not None else ("joint", "token_mean")
    if rule.name not in allowed:
        reason = f"rule={rule.name!r}: expected {' or '.join(map(repr, allowed))}, as the texts of this {name} cannot be listed"
        raise given.error(reason, "rule")


def _prior(given: SlotArguments, options: tuple[Option, ...] | None) -> tuple[float, ...] | None:
    """Weights in the order of the options."""
    prior = given.get("prior")
    if prior is None or options is None:
        return None
    with given.telling("prior"):
        return weights_of(prior, options)


def _gen(given: SlotArguments, max_tokens: int) -> GenSlot:
    grammar = given.grammar()
    stop = given.get("stop")
    stopping = Stopping(max_tokens=given.get("max_tokens", max_tokens), stop=() if stop is None else stop)
    return GenSlot(
        name=given.slot.name,
        sampling=Sampling(temperature=given.get("temperature", 0.0), **given.given("top_k", "top_p", "min_p")),
        max_tokens=stopping.max_tokens,
        stop=None if stop is None else tuple(stopping.stop),
        grammar=grammar,
        is_json=given.get("json", False),
        seed=given.get("seed"),
        n=given.get("n", 1),
        hidden=given.get("hidden", False),
    )


def _beam(given: SlotArguments, max_tokens: int) -> BeamSlot:
    options, grammar = given.space()
    chosen = given.given("width", "length_penalty")
    return BeamSlot(
        name=given.slot.name,
        grammar=grammar if grammar is not None else _of_texts(tuple(option.text for option in options or ())),
        beam=Beam(n=given.get("k", 1), max_tokens=given.get("max_tokens", max_tokens), **chosen),
        options=options,
        terminator=given.get("terminator"),
        hidden=given.get("hidden", False),
    )


@lru_cache(maxsize=_KEPT)
def _of_texts(texts: tuple[str, ...]) -> Grammar:
    """The grammar of a list of texts, the same for every row of a request."""
    return Grammar.from_choices(texts, name="options")


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a slot stands. prompt: the page before it. following: text that certainly follows it, or "". ends_turn: it ends an
    assistant turn, whose end is an end-of-generation token. before: text of the page before it, its end at least.
    seed: of what is drawn there, where the slot names none."""

    prompt: PromptText
    following: str = ""
    ends_turn: bool = False
    before: str = ""
    seed: int = 0
