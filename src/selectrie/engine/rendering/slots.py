"""The slots of a template, with their arguments evaluated and checked.

A slot made here can be decided. No model call is made here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from selectrie.engine.requests.select_grammar import listed
from selectrie.errors import TemplateError
from selectrie.grammar import Grammar
from selectrie.options import (
    DEFAULT_RENDERING,
    DEFAULT_SEARCH,
    BeamSearchParams,
    SamplingParams,
    ScoringRule,
    SearchParams,
    StopParams,
)
from selectrie.template.syntax import ast
from selectrie.template.syntax.source_positions import error_at, reported_at
from selectrie.template.values.arguments import UNLISTED_TERMINATORS, Grammars, rule_of, weights_of
from selectrie.template.values.scope import Scope
from selectrie.template.values.tag_checks import check_form
from selectrie.template.values.tag_values import choices_at, values_at
from selectrie.template.values.values import Option, options_of, plain
from selectrie.tokenization.encoding import PromptText

_KEPT = 64
"""Number of grammars of lists of texts that are kept compiled."""
_JOINT = ScoringRule()


@dataclass(frozen=True, slots=True, eq=False)
class SelectSlot:
    """A `<<select>>` slot, with either `options` or a `grammar`.

    Attributes:
        name: Name of the value.
        options: The options, or None.
        grammar: A grammar whose texts cannot be listed, or None.
        rule: The scoring rule.
        terminator: The terminator of a choice; None chooses it by the position on the
            page.
        prior: Weights of the options, in their order, or None.
        search: Options of the search, with the number of best options that must be
            certain.
        temperature: Draw an option by softmax(score / temperature) instead of taking
            the best; None takes the best.
        seed: Seed of that draw; None takes `SlotContext.seed`.
        logprobs: Name of the value with the log-probabilities by text, or None.
        hidden: Whether the text is left out of the page.
    """

    name: str
    options: tuple[Option, ...] | None
    grammar: Grammar | None
    rule: ScoringRule = _JOINT
    terminator: str | None = None
    prior: tuple[float, ...] | None = None
    search: SearchParams = DEFAULT_SEARCH
    temperature: float | None = None
    seed: int | None = None
    logprobs: str | None = None
    hidden: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the texts of the options."""
        return tuple(option.text for option in self.options or ())


@dataclass(frozen=True, slots=True, eq=False)
class GenSlot:
    """A `<<gen>>` slot: text drawn token by token.

    Attributes:
        name: Name of the value.
        sampling: Options for drawing a token.
        max_tokens: Maximum number of tokens.
        stop: Texts that end the slot's text; None chooses them by the position on the
            page.
        grammar: A grammar whose texts alone are allowed, or None.
        is_json: Whether the text is the contents of a JSON string, which the closing
            quote ends. `grammar` is then None.
        seed: Seed of the first text; None takes `SlotContext.seed`.
        n: Number of texts drawn; the page gets the first.
        hidden: Whether the text is left out of the page.
    """

    name: str
    sampling: SamplingParams = SamplingParams.GREEDY
    max_tokens: int = DEFAULT_RENDERING.max_tokens
    stop: tuple[str, ...] | None = None
    grammar: Grammar | None = None
    is_json: bool = False
    seed: int | None = None
    n: int = 1
    hidden: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class BeamSlot:
    """A `<<beam>>` slot: the most probable text of a grammar that a beam finds.

    Attributes:
        name: Name of the value.
        grammar: The grammar.
        beam: Options of the search; its terminator is ignored.
        options: The options that the grammar is made of, or None.
        terminator: The terminator of a text; None chooses it by the position on the
            page.
        hidden: Whether the text is left out of the page.
    """

    name: str
    grammar: Grammar
    beam: BeamSearchParams
    options: tuple[Option, ...] | None = None
    terminator: str | None = None
    hidden: bool = False


AnySlot: TypeAlias = SelectSlot | GenSlot | BeamSlot


class SlotArguments:
    """The arguments of one slot, with their values and positions.

    Attributes:
        options: The options if they were given as a list, each text once; else None.
    """

    def __init__(self, slot: ast.Slot, scope: Scope, template: Grammars, document: ast.Document) -> None:
        """Evaluate the arguments; raise `TemplateError` at an invalid one."""
        self.slot, self.template, self.document = slot, template, document
        check_form(slot, document)
        values = values_at(slot, scope, document, template)
        self._spans = {name: one.span for name, one in slot.arguments}
        self.options: tuple[Option, ...] | None = None
        if slot.choices is not None:
            self.options = choices_at(slot, scope, document)
        elif "options" in values:
            with self.reporting("options"):
                self.options = options_of(values["options"])
        self._values = {name: plain(value) for name, value in values.items()}

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an argument; for an Enum member, the member's value.

        Returns the default if the argument was not given or is None.
        """
        value = self._values.get(name)
        return default if value is None else value

    def present(self, *names: str) -> dict[str, Any]:
        """Return the values of those of `names` that are given and not None."""
        return {name: value for name in names if (value := self._values.get(name)) is not None}

    def reporting(self, name: str) -> AbstractContextManager[None]:
        """Return a context manager that reports errors at this argument."""
        return reported_at(self.document, self._spans[name])

    def error(self, reason: str, name: str | None = None) -> TemplateError:
        """Return an error at the position of an argument, or of the slot."""
        return error_at(self.document, self.slot.span if name is None else self._spans[name], reason)

    def grammar(self) -> Grammar | None:
        """Return the grammar of the argument `grammar=` or `regex=`, or None."""
        if self.present("regex"):
            with self.reporting("regex"):
                return self.template.read_regex(self.get("regex"))
        value = self.get("grammar")
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # a Grammar, or None
        with self.reporting("grammar"):
            return self.template.read_grammar(value)

    def space(self) -> tuple[tuple[Option, ...] | None, Grammar | None]:
        """Return the options or the grammar of the slot; the other one is None."""
        grammar = self.grammar()
        if self.options is None and grammar is None:
            raise self.error("the slot has neither options nor a grammar; give options=, grammar= or regex=")
        return self.options, grammar


def slot_of(
    slot: ast.Slot,
    scope: Scope,
    template: Grammars,
    document: ast.Document,
    *,
    max_tokens: int = DEFAULT_RENDERING.max_tokens,
) -> AnySlot:
    """Return the slot with its arguments evaluated and checked.

    `max_tokens` is used for a gen or beam that does not give its own. Raises
    `TemplateError` at the argument's expression for a value that is not allowed.
    """
    arguments = SlotArguments(slot, scope, template, document)
    makers: dict[str, Callable[[SlotArguments, int], AnySlot]] = {"select": _select, "gen": _gen, "beam": _beam}
    return makers[slot.kind](arguments, max_tokens)


def _select(arguments: SlotArguments, _max_tokens: int) -> SelectSlot:
    options, grammar = arguments.space()
    if grammar is not None:
        texts = listed(grammar)
        if texts is not None:
            options, grammar = tuple(Option(one, one) for one in texts), None
    rule, temperature, logprobs = (
        rule_of(arguments.get("rule", "joint")),
        arguments.get("temperature"),
        arguments.get("logprobs"),
    )
    scores_all = logprobs is not None or bool(temperature)
    search = SearchParams(k=arguments.get("k", 1), stop="all" if scores_all else "best")
    if options is None:
        _check_unlisted(arguments, rule)
    return SelectSlot(
        name=arguments.slot.name,
        options=options,
        grammar=grammar,
        rule=rule,
        terminator=arguments.get("terminator"),
        prior=_prior(arguments, options),
        search=search if options is not None else SearchParams(k=search.k),
        temperature=temperature,
        seed=arguments.get("seed"),
        logprobs=logprobs,
        hidden=arguments.get("hidden", False),
    )


def _check_unlisted(arguments: SlotArguments, rule: ScoringRule) -> None:
    """Raise `TemplateError` for arguments that only work with a list of options."""
    name = "grammar" if arguments.present("grammar") else "regex"
    temperature = arguments.get("temperature")

    def refused(argument: str, value: object, allowed: tuple[object, ...]) -> TemplateError:
        expected = " or ".join(map(repr, allowed))
        reason = f"{argument}={value!r}: expected {expected}, as the texts of this {name} cannot be listed"
        return arguments.error(reason, argument)

    if arguments.get("prior") is not None:
        raise arguments.error(f"prior= needs options to weigh, and the texts of this {name} cannot be listed", "prior")
    if temperature is not None and temperature != 1:
        raise refused("temperature", temperature, (1,))
    terminator = arguments.get("terminator", "auto")
    if terminator not in UNLISTED_TERMINATORS:
        raise refused("terminator", terminator, UNLISTED_TERMINATORS)
    allowed = ("joint",) if temperature is not None else ("joint", "token_mean")
    if rule.name not in allowed:
        raise refused("rule", rule.name, allowed)


def _prior(arguments: SlotArguments, options: tuple[Option, ...] | None) -> tuple[float, ...] | None:
    """Return the argument `prior=` as weights in the order of the options, or None."""
    prior = arguments.get("prior")
    if prior is None or options is None:
        return None
    with arguments.reporting("prior"):
        return weights_of(prior, options)


def _gen(arguments: SlotArguments, max_tokens: int) -> GenSlot:
    grammar = arguments.grammar()
    stop = arguments.get("stop")
    stopping = StopParams(max_tokens=arguments.get("max_tokens", max_tokens), stop=() if stop is None else stop)
    return GenSlot(
        name=arguments.slot.name,
        sampling=SamplingParams(
            temperature=arguments.get("temperature", 0.0), **arguments.present("top_k", "top_p", "min_p")
        ),
        max_tokens=stopping.max_tokens,
        stop=None if stop is None else tuple(stopping.stop),
        grammar=grammar,
        is_json=arguments.get("json", False),
        seed=arguments.get("seed"),
        n=arguments.get("n", 1),
        hidden=arguments.get("hidden", False),
    )


def _beam(arguments: SlotArguments, max_tokens: int) -> BeamSlot:
    options, grammar = arguments.space()
    chosen = arguments.present("width", "length_penalty")
    return BeamSlot(
        name=arguments.slot.name,
        grammar=grammar if grammar is not None else _of_texts(tuple(option.text for option in options or ())),
        beam=BeamSearchParams(n=arguments.get("k", 1), max_tokens=arguments.get("max_tokens", max_tokens), **chosen),
        options=options,
        terminator=arguments.get("terminator"),
        hidden=arguments.get("hidden", False),
    )


@lru_cache(maxsize=_KEPT)
def _of_texts(texts: tuple[str, ...]) -> Grammar:
    """Return the grammar of a list of texts, made once for all rows of a request."""
    return Grammar.from_choices(texts, name="options")


@dataclass(frozen=True, slots=True, eq=False)
class SlotContext:
    """The position of a slot on its page.

    Attributes:
        prompt: The page up to the slot; decisions are conditioned on it.
        following: The text known to come next, or "" if unknown. It terminates the
            slot.
        ends_turn: Whether an assistant turn ends after the slot, so that the end of
            generation terminates it.
        before: Text of the page before the slot, at least its end.
        seed: Seed for sampling slots that do not set their own.
    """

    prompt: PromptText
    following: str = ""
    ends_turn: bool = False
    before: str = ""
    seed: int = 0
