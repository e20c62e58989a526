"""The slots of a template: their arguments, and their decision.

`slot_of` evaluates and checks the arguments of a tag. `decide_slot` decides the slot (a
select, a gen or a beam) after the page so far.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from queue import SimpleQueue
from typing import Any, TypeAlias, cast

import numpy as np

from selectrie.core import numerics
from selectrie.core.model import ModelDescription
from selectrie.core.numerics import uniform
from selectrie.core.types import FloatArray, IntArray, OffsetArray
from selectrie.decoding.sampling.sampler import Band, is_close
from selectrie.decoding.sampling.task import SampleTask
from selectrie.decoding.scoring.rules import Lengths
from selectrie.decoding.scoring.tolerance import tolerance_of
from selectrie.engine.rendering.slot_ends import (
    Ending,
    default_stops,
    ending_of,
    ending_of_string,
    json_string_end,
    require_following,
)
from selectrie.engine.requests import beam_search, generate, select, select_grammar
from selectrie.engine.requests.constrained_prompt import max_context_tokens
from selectrie.engine.requests.generate import GenerateRequest
from selectrie.engine.requests.generation_params import GenerationParams
from selectrie.engine.requests.select_grammar import list_texts
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.requests.session import Session
from selectrie.errors import InternalError, NothingFoundError, TemplateError, remedies
from selectrie.grammar import Grammar
from selectrie.options import (
    DEFAULT_PROMPTING,
    DEFAULT_RENDERING,
    DEFAULT_SEARCH,
    BeamSearchParams,
    SamplingParams,
    ScoringRule,
    SearchParams,
    StopParams,
)
from selectrie.options.keywords import GrammarTerminator
from selectrie.results import BeamResult, ChoiceTable, Generation, Samples, Selection
from selectrie.results.selection import SampledChoice
from selectrie.template.syntax import ast
from selectrie.template.syntax.ast import error_at, report_at
from selectrie.template.values.arguments import (
    UNLISTED_TERMINATORS,
    Grammars,
    check_form,
    choices_at,
    rule_of,
    values_at,
    weights_of,
)
from selectrie.template.values.scope import Scope
from selectrie.template.values.values import SlotOption, options_of, to_plain
from selectrie.tokenization.canonical import encode_inside, reopen
from selectrie.tokenization.encoding import PromptText

_MAX_GRAMMARS = 64
"""Maximum number of compiled grammars of option lists that are cached."""
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
    options: tuple[SlotOption, ...] | None
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
        """Return the texts of the options; () for a grammar."""
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
    options: tuple[SlotOption, ...] | None = None
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
        self.options: tuple[SlotOption, ...] | None = None
        if slot.choices is not None:
            self.options = choices_at(slot, scope, document)
        elif "options" in values:
            with self.errors_at_argument("options"):
                self.options = options_of(values["options"])
        self._values = {name: to_plain(value) for name, value in values.items()}

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument's value (an Enum member's value for a member).

        Returns the default if the argument was not given or is None.
        """
        value = self._values.get(name)
        return default if value is None else value

    def given_values(self, *names: str) -> dict[str, Any]:
        """Return the values of those arguments in `names` that are not None."""
        return {name: value for name in names if (value := self._values.get(name)) is not None}

    def errors_at_argument(self, name: str) -> AbstractContextManager[None]:
        """Return a context that reports errors at this argument's position."""
        return report_at(self.document, self._spans[name])

    def error(self, reason: str, name: str | None = None) -> TemplateError:
        """Return an error at the position of an argument, or of the slot."""
        return error_at(self.document, self.slot.span if name is None else self._spans[name], reason)

    def read_grammar_argument(self) -> Grammar | None:
        """Return the grammar of the argument `grammar=` or `regex=`, or None."""
        if self.given_values("regex"):
            with self.errors_at_argument("regex"):
                return self.template.read_regex(self.get("regex"))
        value = self.get("grammar")
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # a Grammar, or None
        with self.errors_at_argument("grammar"):
            return self.template.read_grammar(value)

    def options_or_grammar(self) -> tuple[tuple[SlotOption, ...] | None, Grammar | None]:
        """Return the slot's options and its grammar, one of which is None.

        Raises `TemplateError` if the slot has neither.
        """
        grammar = self.read_grammar_argument()
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
    """Evaluate and check the arguments of a slot's tag.

    Raises `TemplateError` at the argument's expression for a value that is not allowed.

    Args:
        slot: The tag.
        scope: The values of names at this place of the template.
        template: Reads the grammars that arguments name.
        document: The document of the tag, for positions in errors.
        max_tokens: Used for a gen or beam that does not set its own.
    """
    arguments = SlotArguments(slot, scope, template, document)
    makers: dict[str, Callable[[SlotArguments, int], AnySlot]] = {
        "select": _make_select,
        "gen": _make_gen,
        "beam": _make_beam,
    }
    return makers[slot.kind](arguments, max_tokens)


def _make_select(arguments: SlotArguments, _max_tokens: int) -> SelectSlot:
    """Return the select of these arguments; a grammar with few texts is listed."""
    options, grammar = arguments.options_or_grammar()
    if grammar is not None:
        texts = list_texts(grammar)
        if texts is not None:
            options, grammar = tuple(SlotOption(one, one) for one in texts), None
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
        prior=_read_prior(arguments, options),
        search=search if options is not None else SearchParams(k=search.k),
        temperature=temperature,
        seed=arguments.get("seed"),
        logprobs=logprobs,
        hidden=arguments.get("hidden", False),
    )


def _check_unlisted(arguments: SlotArguments, rule: ScoringRule) -> None:
    """Raise `TemplateError` for arguments that only work with a list of options."""
    name = "grammar" if arguments.given_values("grammar") else "regex"
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


def _read_prior(arguments: SlotArguments, options: tuple[SlotOption, ...] | None) -> tuple[float, ...] | None:
    """Return the argument `prior=` as weights in the order of the options, or None."""
    prior = arguments.get("prior")
    if prior is None or options is None:
        return None
    with arguments.errors_at_argument("prior"):
        return weights_of(prior, options)


def _make_gen(arguments: SlotArguments, max_tokens: int) -> GenSlot:
    """Return the gen slot of these arguments."""
    grammar = arguments.read_grammar_argument()
    stop = arguments.get("stop")
    stopping = StopParams(max_tokens=arguments.get("max_tokens", max_tokens), stop=() if stop is None else stop)
    return GenSlot(
        name=arguments.slot.name,
        sampling=SamplingParams(
            **{"temperature": 0.0, **arguments.given_values("temperature", *SamplingParams.FILTERS)}
        ),
        max_tokens=stopping.max_tokens,
        stop=None if stop is None else tuple(stopping.stop),
        grammar=grammar,
        is_json=arguments.get("json", False),
        seed=arguments.get("seed"),
        n=arguments.get("n", 1),
        hidden=arguments.get("hidden", False),
    )


def _make_beam(arguments: SlotArguments, max_tokens: int) -> BeamSlot:
    """Return the beam slot of these arguments."""
    options, grammar = arguments.options_or_grammar()
    chosen = arguments.given_values("width", "length_penalty")
    return BeamSlot(
        name=arguments.slot.name,
        grammar=grammar if grammar is not None else _grammar_of_texts(tuple(option.text for option in options or ())),
        beam=BeamSearchParams(n=arguments.get("k", 1), max_tokens=arguments.get("max_tokens", max_tokens), **chosen),
        options=options,
        terminator=arguments.get("terminator"),
        hidden=arguments.get("hidden", False),
    )


@lru_cache(maxsize=_MAX_GRAMMARS)
def _grammar_of_texts(texts: tuple[str, ...]) -> Grammar:
    """Return the grammar whose texts are these (cached for all rows of a request)."""
    return Grammar.from_choices(texts, name="options")


@dataclass(frozen=True, slots=True, eq=False)
class SlotContext:
    """The position of a slot on its page.

    Attributes:
        prompt: The page up to the slot; decisions are conditioned on it.
        following: The text known to come next, or "" if unknown. It ends the slot's
            text.
        ends_turn: Whether an assistant turn ends after the slot, so that an
            end-of-generation token ends its text.
        before: Text of the page before the slot, at least its end.
        seed: Seed for sampling slots that do not set their own.
    """

    prompt: PromptText
    following: str = ""
    ends_turn: bool = False
    before: str = ""
    seed: int = 0


Record: TypeAlias = Selection | SampledChoice | Generation | BeamResult | Samples


@dataclass(frozen=True, slots=True, eq=False)
class SlotResult:
    """The decision of a slot.

    Attributes:
        value: The value that the slot's name gets: the chosen option's value, the list
            of texts of a `gen` with n > 1, or else the text.
        text: The text that is appended to the page.
        record: The full result of the decision.
        drawn: For a gen, (context, tokens drawn after it), int32[] each, else None. The
            tokens spell the healed end of the page, then the text, and maybe more.
        logprobs: Log-probability of each text, if the slot asks for them.
    """

    value: object
    text: str
    record: Record
    drawn: tuple[IntArray, IntArray] | None = None
    logprobs: dict[str, float] | None = None


def decide_slot(
    session: Session, slot: AnySlot, context: SlotContext, on_text: Callable[[str], None] | None = None
) -> SlotResult:
    """Decide a slot with the model.

    Args:
        session: The model and the task group of the request.
        slot: The slot.
        context: Its position on the page.
        on_text: Called in this thread with pieces of the text of a gen as it is drawn
            (the first one, if there are several). Joined, the pieces are
            `SlotResult.text`.

    Raises:
        RequestError: If the slot is invalid.
        ModelError: If the model fails.
    """
    if isinstance(slot, GenSlot):
        return _decide_gen(session, slot, context, on_text)
    if isinstance(slot, BeamSlot):
        return _decide_beam(session, slot, context)
    if slot.grammar is not None:
        return _decide_unlisted(session, slot, context)
    return _decide_listed(session, slot, context)


def _decide_listed(session: Session, slot: SelectSlot, context: SlotContext) -> SlotResult:
    """Decide a select among a list of options."""
    terminator, following = _listed_ending(slot, context)
    request = SelectRequest(slot.rule, terminator, following, slot.prior, slot.search)
    [selection] = select.prepare_selections(session.model, [(context.prompt, slot.texts)], request).run(session)
    record: Selection | SampledChoice = selection
    if slot.temperature is not None:
        record = _draw_choice(selection, slot.temperature, context.seed if slot.seed is None else slot.seed)
    return SlotResult(
        _value_of(slot.options, record.text), record.text, record, logprobs=_logprobs_by_text(slot, selection)
    )


def _listed_ending(slot: SelectSlot, context: SlotContext) -> tuple[str, str]:
    """Return the terminator and the following text of a select among options."""
    if slot.terminator == "text":
        return "text", require_following(context.following)
    if slot.terminator is not None:
        return slot.terminator, ""
    if context.following or not context.ends_turn:
        return "auto", context.following
    return "eog", ""


def _decide_unlisted(session: Session, slot: SelectSlot, context: SlotContext) -> SlotResult:
    """Decide a select among the texts of a grammar that cannot be listed."""
    if slot.grammar is None:
        raise InternalError("a select without options has a grammar")
    model = session.model
    ending = ending_of(model.vocabulary, slot.grammar, slot.terminator, context.following, ends_turn=context.ends_turn)
    request = SelectRequest(slot.rule, ending.terminator, search=_limit_max_tokens(model, slot.search, context))
    if slot.temperature is not None:
        seed = context.seed if slot.seed is None else slot.seed
        draw = select_grammar.prepare_sample(model, context.prompt, ending.grammar, request, n=1, seed=seed, exact=True)
        samples = ending.strip_draws(draw.run(session))
        logprobs = None if slot.logprobs is None else {one.text: one.logp for one in samples}
        return SlotResult(samples[0].text, samples[0].text, samples, logprobs=logprobs)
    prepared = select_grammar.prepare_grammar_select(model, context.prompt, ending.grammar, request)
    selection = ending.strip_selection(prepared.run(session))
    return SlotResult(selection.text, selection.text, selection, logprobs=_logprobs_by_text(slot, selection))


def _limit_max_tokens(model: ModelDescription, search: SearchParams, context: SlotContext) -> SearchParams:
    """Return `search` with `max_tokens` reduced to the room after the page.

    A select has no such argument; its certificate says whether a longer text could be
    better.
    """
    n_left = model.limits.nodes - max_context_tokens(reopen(model.vocabulary, context.prompt))
    return replace(search, max_tokens=max(1, min(search.max_tokens, n_left)))


def _draw_choice(selection: Selection, temperature: float, seed: int) -> SampledChoice:
    """Draw one of a selection's choices by softmax(score / temperature).

    The random number is `uniform(seed, 0)`. Every choice must have a score. Temperature
    0 takes the winner, and so do scores that are all -inf. The same seed draws the same
    text whatever the order of the choices; choices with the same tokens count once.
    """
    if temperature == 0 or not np.isfinite(selection.score):
        close = None if selection.signature.tolerance is None else not selection.certificate.rescored
        return SampledChoice(selection, selection.index, 1.0, temperature, seed, close)
    order = _order_of(selection.choices)
    probabilities = probabilities_of(selection.choices.score[order], temperature)
    u = uniform(seed, 0)
    drawn = index_at(probabilities, u)
    close = _could_change(selection, order, drawn, u, temperature)
    return SampledChoice(selection, int(order[drawn]), float(probabilities[drawn]), temperature, seed, close)


def _order_of(table: ChoiceTable) -> OffsetArray:
    """Return one choice of each token path, int64[P], in byte order of the texts."""
    return np.array(sorted(table.first.tolist(), key=lambda index: table.texts[index].encode()), dtype=np.int64)


def probabilities_of(scores: FloatArray, temperature: float) -> FloatArray:
    """Return softmax(score / temperature), float64[P].

    Scores must be below inf, at least one of them finite, and the temperature positive.
    """
    with np.errstate(over="ignore"):
        return numerics.softmax((scores - scores.max()) / temperature)


def index_at(probabilities: FloatArray, u: float) -> int:
    """Return the index whose interval of [0, 1) contains `u`.

    The intervals lie side by side; each is as long as its index's probability. An index
    of probability 0 is never returned. `u` must be below 1 by at least 2**-53, so that
    `u` times the sum of the probabilities is rounded to less than the sum.
    """
    ends = np.cumsum(probabilities)
    return int(np.searchsorted(ends, u * ends[-1], side="right"))


def _could_change(selection: Selection, order: OffsetArray, drawn: int, u: float, temperature: float) -> bool | None:
    """Return whether scores changed within their tolerances could draw another text.

    None if no tolerance was measured.

    Args:
        selection: The scored choices.
        order: int64[P], one choice of each path (`_order_of`).
        drawn: Index in `order` of the choice that was drawn.
        u: The uniform number that drew it, in [0, 1).
        temperature: The temperature of the draw, above 0.
    """
    tolerance, table = selection.signature.tolerance, selection.choices
    if tolerance is None:
        return None
    lengths = Lengths.of(table.texts, table.trie)
    moves = tolerance_of(selection.rule, tolerance, table.trie, selection.terminator, lengths=lengths)
    finite = np.flatnonzero(table.score[order] > -np.inf)
    score, move = table.score[order[finite]], moves[order[finite]]
    band = Band(score - move, score + move, np.ones(len(finite), dtype=np.bool_))
    index = int(np.searchsorted(finite, drawn))
    return is_close(band, index, u, replace(SamplingParams.UNCHANGED, temperature=temperature))


def _logprobs_by_text(slot: SelectSlot, selection: Selection) -> dict[str, float] | None:
    """Return the log-probability of each scored text, if the slot asks for them."""
    if slot.logprobs is None:
        return None
    table = selection.choices
    pairs = zip(table.texts, table.logp.tolist(), strict=True)
    return {one: logp for one, logp in pairs if not np.isnan(logp)}


def _value_of(options: tuple[SlotOption, ...] | None, text: str) -> object:
    """Return the value of the option with this text; `text` if there is none."""
    return next((option.value for option in options or () if option.text == text), text)


def _decide_beam(session: Session, slot: BeamSlot, context: SlotContext) -> SlotResult:
    """Decide a beam slot: search the grammar, and cut off the text that follows."""
    model = session.model
    ending = ending_of(model.vocabulary, slot.grammar, slot.terminator, context.following, ends_turn=context.ends_turn)
    n_more = len(encode_inside(model.vocabulary, ending.text.encode()))
    terminator = cast("GrammarTerminator", ending.terminator)
    beam = replace(slot.beam, terminator=terminator, max_tokens=slot.beam.max_tokens + n_more)
    prepared = beam_search.prepare_beam_search(model, context.prompt, ending.grammar, beam, DEFAULT_PROMPTING)
    result = ending.strip_beam(prepared.run(session))
    if slot.options is not None and not result.best.complete:
        reason = f"none was finished within {slot.beam.max_tokens} tokens"
        raise NothingFoundError("the options", reason, remedies("give more `max_tokens`", "give shorter options"))
    return SlotResult(_value_of(slot.options, result.text), result.text, result)


def _decide_gen(
    session: Session, slot: GenSlot, context: SlotContext, on_text: Callable[[str], None] | None
) -> SlotResult:
    """Decide a gen slot: draw its texts, and report the first one as it grows."""
    ending, stop = _gen_ending(session.model, slot, context)
    stopping = StopParams(max_tokens=slot.max_tokens, stop=stop)
    grammar = slot.grammar if ending is None else ending.grammar
    when = ending.is_complete if ending is not None and ending.text else None
    request = GenerateRequest(
        n=slot.n,
        seed=context.seed if slot.seed is None else slot.seed,
        sampling=slot.sampling,
        stopping=replace(stopping, when=when),
        options=GenerationParams(grammar=grammar, heal=True),
    )
    prepared = generate.prepare_generate(session.model, context.prompt, request)
    relay = None if on_text is None else _TextRelay(on_text, ending)
    pieces: SimpleQueue[str | None] = SimpleQueue()

    def watch(index: int, task: SampleTask) -> Callable[[], None]:
        return (lambda: None) if index else (lambda: pieces.put(task.new_text()))

    drawings = generate.begin_drawing(session, prepared, None if relay is None else watch)
    if relay is not None:
        drawings[0].handle.when_done(lambda: pieces.put(None))
        for piece in iter(pieces.get, None):
            relay.add(piece)
    done = [generate.completion(session, one) for one in drawings]
    if ending is not None:
        done = [ending.strip_completion(one) for one in done]
    record = replace(generate.generation(session, prepared, done), stopping=stopping)
    first = done[0]
    if relay is not None:
        relay.pass_on(first.text)
    tokens = np.array([token.id for token in first.tokens], dtype=np.int32)
    value = first.text if slot.n == 1 else [one.text for one in done]
    return SlotResult(value, first.text, record, drawn=(drawings[0].task.prompt, tokens))


def _gen_ending(model: ModelDescription, slot: GenSlot, context: SlotContext) -> tuple[Ending | None, tuple[str, ...]]:
    """Return the `Ending` (or None) and the stop texts of a gen.

    With a grammar and no stop text it ends as texts of the grammar do, else by stop
    texts. The contents of a JSON string end by either.
    """
    if slot.is_json:
        return ending_of_string(model.vocabulary, context.following), slot.stop or ()
    if slot.stop is not None:
        return None, slot.stop
    if slot.grammar is not None:
        return ending_of(model.vocabulary, slot.grammar, None, context.following, ends_turn=context.ends_turn), ()
    return None, default_stops(context.following, context.before)


class _TextRelay:
    """Passes a growing text to a callback, as far as it surely belongs to the slot.

    Characters that may not belong to the slot are held back: the beginning of the
    following text, and an incomplete escape of a JSON string.
    """

    def __init__(self, on_text: Callable[[str], None], ending: Ending | None) -> None:
        self._on_text, self._is_json = on_text, ending is not None and ending.is_json
        self._following = "" if ending is None else ending.text
        self._text, self._n_passed = "", 0

    def add(self, piece: str) -> None:
        """Add text, and pass on the characters that surely belong to the slot."""
        self._text += piece
        self.pass_on(self._text[: self._n_sure()])

    def _n_sure(self) -> int:
        """Return how many characters belong to the slot whatever text follows."""
        if self._is_json:
            return json_string_end(self._text, self._n_passed)
        held = next((n for n in range(len(self._following), 0, -1) if self._text.endswith(self._following[:n])), 0)
        return len(self._text) - held

    def pass_on(self, text: str) -> None:
        """Call the callback with the part of `text` that was not passed on before."""
        if len(text) > self._n_passed:
            piece, self._n_passed = text[self._n_passed :], len(text)
            self._on_text(piece)
