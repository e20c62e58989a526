"""Decides a slot of a page: a select, a gen or a beam after the page so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TypeAlias

import numpy as np

from selectrie.core import numerics
from selectrie.core.model import ModelDescription
from selectrie.core.numerics import uniform
from selectrie.core.types import FloatArray, IntArray, OffsetArray
from selectrie.decoding import scoring
from selectrie.decoding.sampling.sampler import Band, is_close
from selectrie.decoding.sampling.task import SampleTask
from selectrie.engine.rendering.json_string import whole_length
from selectrie.engine.rendering.slots import AnySlot, BeamSlot, GenSlot, SelectSlot, SlotContext
from selectrie.engine.rendering.terminators import Ending, default_stops, ending_of, ending_of_string, required_text
from selectrie.engine.requests import beam_search, generate, sample, select, select_grammar
from selectrie.engine.requests.constrained_prompt import max_context_tokens
from selectrie.engine.requests.generate import GenerateRequest
from selectrie.engine.requests.generation_params import GenerationParams
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.requests.session import Session
from selectrie.errors import InternalError, NothingFoundError, ways
from selectrie.options import DEFAULT_PROMPTING, SamplingParams, SearchParams, StopParams
from selectrie.results import BeamResult, ChoiceTable, Generation, Samples, Selection
from selectrie.results.selection import SampledChoice
from selectrie.template.values.values import Option
from selectrie.tokenization.canonical import encode_inside, reopen

Record: TypeAlias = Selection | SampledChoice | Generation | BeamResult | Samples


@dataclass(frozen=True, slots=True, eq=False)
class SlotResult:
    """The decision of a slot.

    Attributes:
        value: The value that the slot's name gets: the chosen option's value, the list
            of texts of a `gen` with n > 1, or else the text.
        text: The text that is appended to the page.
        record: The result from which it was taken.
        drawn: For a gen, (context, tokens drawn after it), int32[] each, else None. The
            tokens spell the healed end of the page, then the text, and maybe more.
        logprobs: Log-probability of each text, if the slot names them.
    """

    value: object
    text: str
    record: Record
    drawn: tuple[IntArray, IntArray] | None = None
    logprobs: dict[str, float] | None = None


def decide_slot(
    session: Session, slot: AnySlot, context: SlotContext, on_text: Callable[[str], None] | None = None
) -> SlotResult:
    """Decide a slot and return the result.

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
    terminator, following = _listed_ending(slot, context)
    request = SelectRequest(slot.rule, terminator, following, slot.prior, slot.search)
    [selection] = select.prepare_selections(session.model, [(context.prompt, slot.texts)], request).run(session)
    record: Selection | SampledChoice = selection
    if slot.temperature is not None:
        record = _drawn_choice(selection, slot.temperature, context.seed if slot.seed is None else slot.seed)
    return SlotResult(_value_of(slot.options, record.text), record.text, record, logprobs=_logprobs(slot, selection))


def _listed_ending(slot: SelectSlot, context: SlotContext) -> tuple[str, str]:
    """Return the terminator and the following text of a select among options."""
    if slot.terminator == "text":
        return "text", required_text(context.following)
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
    request = SelectRequest(slot.rule, ending.terminator, search=_fitting(model, slot.search, context))
    if slot.temperature is not None:
        seed = context.seed if slot.seed is None else slot.seed
        draw = sample.prepare_sample(model, context.prompt, ending.grammar, request, n=1, seed=seed, exact=True)
        samples = ending.of_draws(draw.run(session))
        logprobs = None if slot.logprobs is None else {one.text: one.logp for one in samples}
        return SlotResult(samples[0].text, samples[0].text, samples, logprobs=logprobs)
    prepared = select_grammar.prepare_grammar_select(model, context.prompt, ending.grammar, request)
    selection = ending.of_selection(prepared.run(session))
    return SlotResult(selection.text, selection.text, selection, logprobs=_logprobs(slot, selection))


def _fitting(model: ModelDescription, search: SearchParams, context: SlotContext) -> SearchParams:
    """Return `search` with the largest `max_tokens` that fits after the page.

    It is never raised. A select has no argument for it, and its certificate says
    whether a longer text could be better.
    """
    n_left = model.limits.nodes - max_context_tokens(reopen(model.vocabulary, context.prompt))
    return replace(search, max_tokens=max(1, min(search.max_tokens, n_left)))


def _drawn_choice(selection: Selection, temperature: float, seed: int) -> SampledChoice:
    """Draw one of the choices of a selection by softmax(score / temperature).

    The random number is `uniform(seed, 0)`. Every choice must have a score. Temperature
    0 takes the winner. The same seed draws the same text whatever the order of the
    choices; choices of one path count once. If every score is -inf, the winner is
    taken.
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
    """Return the first choice of each path, int64[P], in byte order of the texts."""
    return np.array(sorted(table.first.tolist(), key=lambda index: table.texts[index].encode()), dtype=np.int64)


def probabilities_of(scores: FloatArray, temperature: float) -> FloatArray:
    """Return softmax(score / temperature), float64[P].

    Scores must be below inf, at least one of them finite, and the temperature positive.
    """
    with np.errstate(over="ignore"):
        return numerics.softmax((scores - scores.max()) / temperature)


def index_at(probabilities: FloatArray, u: float) -> int:
    """Return the index whose interval of [0, 1) contains `u`.

    The intervals lie side by side, each as long as the index's probability. An index of
    probability 0 is never returned. `u` must be below 1 by at least 2**-53, so that `u`
    times the sum of the probabilities is rounded to less than the sum.
    """
    ends = np.cumsum(probabilities)
    return int(np.searchsorted(ends, u * ends[-1], side="right"))


def _could_change(selection: Selection, order: OffsetArray, drawn: int, u: float, temperature: float) -> bool | None:
    """Return whether scores changed within their tolerances could draw another path.

    Returns None if no tolerance was measured.

    Args:
        selection: The scored choices.
        order: int64[P], the first choice of each path (`_order_of`).
        drawn: Index in `order` of the choice that was drawn.
        u: The uniform number that drew it, in [0, 1).
        temperature: The temperature of the draw, above 0.
    """
    tolerance, table = selection.signature.tolerance, selection.choices
    if tolerance is None:
        return None
    lengths = scoring.Lengths.of(table.texts, table.trie)
    moves = scoring.tolerance_of(selection.rule, tolerance, table.trie, selection.terminator, lengths=lengths)
    finite = np.flatnonzero(table.score[order] > -np.inf)
    score, move = table.score[order[finite]], moves[order[finite]]
    band = Band(score - move, score + move, np.ones(len(finite), dtype=np.bool_))
    index = int(np.searchsorted(finite, drawn))
    return is_close(band, index, u, replace(SamplingParams.UNCHANGED, temperature=temperature))


def _logprobs(slot: SelectSlot, selection: Selection) -> dict[str, float] | None:
    if slot.logprobs is None:
        return None
    table = selection.choices
    pairs = zip(table.texts, table.logp.tolist(), strict=True)
    return {one: logp for one, logp in pairs if not np.isnan(logp)}


def _value_of(options: tuple[Option, ...] | None, text: str) -> object:
    """Return the value of the option with this text; `text` if there is none."""
    return next((option.value for option in options or () if option.text == text), text)


def _decide_beam(session: Session, slot: BeamSlot, context: SlotContext) -> SlotResult:
    model = session.model
    ending = ending_of(model.vocabulary, slot.grammar, slot.terminator, context.following, ends_turn=context.ends_turn)
    n_more = len(encode_inside(model.vocabulary, ending.text.encode()))
    beam = replace(slot.beam, terminator=ending.terminator, max_tokens=slot.beam.max_tokens + n_more)
    prepared = beam_search.prepare_beam_search(model, context.prompt, ending.grammar, beam, DEFAULT_PROMPTING)
    result = ending.of_beam(prepared.run(session))
    if slot.options is not None and not result.best.complete:
        reason = f"none was finished within {slot.beam.max_tokens} tokens"
        raise NothingFoundError("the options", reason, ways("give more `max_tokens`", "give shorter options"))
    return SlotResult(_value_of(slot.options, result.text), result.text, result)


def _decide_gen(
    session: Session, slot: GenSlot, context: SlotContext, on_text: Callable[[str], None] | None
) -> SlotResult:
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

    def watch(_prompt_index: int, index: int, task: SampleTask) -> Callable[[], None]:
        return (lambda: None) if index else (lambda: pieces.put(task.new_text()))

    drawings = generate.begin(session, prepared, None if relay is None else watch)
    if relay is not None:
        drawings[0].handle.when_done(lambda: pieces.put(None))
        for piece in iter(pieces.get, None):
            relay.add(piece)
    done = [generate.completion(session, one) for one in drawings]
    if ending is not None:
        done = [ending.of_completion(one) for one in done]
    record = replace(generate.generation(session, prepared, done), stopping=stopping)
    first = done[0]
    if relay is not None:
        relay.pass_on(first.text)
    tokens = np.array([token.id for token in first.tokens], dtype=np.int32)
    value = first.text if slot.n == 1 else [one.text for one in done]
    return SlotResult(value, first.text, record, drawn=(drawings[0].task.prompt, tokens))


def _gen_ending(model: ModelDescription, slot: GenSlot, context: SlotContext) -> tuple[Ending | None, tuple[str, ...]]:
    """Return how a gen ends: an `Ending` or None, and stop texts.

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
    """Passes a sequence's text to a callback, as far as it surely belongs to the slot.

    Characters that may not belong to the slot are held back: the beginning of the
    following text, and an incomplete escape of a JSON string.
    """

    def __init__(self, on_text: Callable[[str], None], ending: Ending | None) -> None:
        self._on_text, self._is_json = on_text, ending is not None and ending.is_json
        self._following = "" if ending is None else ending.text
        self._text, self._n_passed = "", 0

    def add(self, piece: str) -> None:
        """Add text, and pass on the part that surely belongs to the slot."""
        self._text += piece
        self.pass_on(self._text[: self._n_sure()])

    def _n_sure(self) -> int:
        """Return how many characters belong to the slot however the text goes on."""
        if self._is_json:
            return whole_length(self._text, self._n_passed)
        held = next((n for n in range(len(self._following), 0, -1) if self._text.endswith(self._following[:n])), 0)
        return len(self._text) - held

    def pass_on(self, text: str) -> None:
        """Pass on the part of the slot's text that was not passed on before."""
        if len(text) > self._n_passed:
            piece, self._n_passed = text[self._n_passed :], len(text)
            self._on_text(piece)
