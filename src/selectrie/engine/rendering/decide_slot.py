"""Decide a slot: a select, a gen or a beam after the page so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TypeAlias

import numpy as np

from selectrie.core.model import Model
from selectrie.core.types import IntArray
from selectrie.decoding.sampling.task import SampleTask
from selectrie.engine.rendering.json_string import whole_length
from selectrie.engine.rendering.slot_sampling import drawn_choice
from selectrie.engine.rendering.slots import AnySlot, BeamSlot, GenSlot, SelectSlot, SlotContext
from selectrie.engine.rendering.terminators import Ending, default_stops, ending_of, ending_of_string, needed
from selectrie.engine.requests import beam_search, generate, select, select_grammar
from selectrie.engine.requests import sample as drawing
from selectrie.engine.requests import selection as selections
from selectrie.engine.requests.constrained_prompt import n_room
from selectrie.engine.requests.generate import Drawing, GenerateRequest, GenerationParams
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import InternalError, NothingFoundError
from selectrie.options import DEFAULT_PROMPTING, SearchParams, StopParams
from selectrie.results import BeamResult, Completion, Generation, Samples, Selection
from selectrie.results.sampled_choice import SampledChoice
from selectrie.template.values.values import Option
from selectrie.tokenization.canonical import encode_inside, reopen

Record: TypeAlias = Selection | SampledChoice | Generation | BeamResult | Samples


@dataclass(frozen=True, slots=True, eq=False)
class SlotResult:
    """The decision of a slot.

    Attributes:
        value: The stored value: with options the option's value, with a `gen` of n > 1
            the list of texts, else the text.
        text: The text that the page goes on with.
        record: How it was found.
        drawn: For a gen, (context, tokens drawn after it), int32[] each. The tokens
            spell the healed end of the page, then the text, and maybe more.
        logprobs: Log-probability of each text, if the slot names them.
    """

    value: object
    text: str
    record: Record
    drawn: tuple[IntArray, IntArray] | None = None
    logprobs: dict[str, float] | None = None


def fill(  # noqa: PLR0917 - the task group and its model first, as everywhere
    group: TaskGroup,
    model: Model,
    tolerance: float | None,
    slot: AnySlot,
    place: SlotContext,
    on_text: Callable[[str], None] | None = None,
) -> SlotResult:
    """Decide a slot and wait for it.

    Args:
        group: The group that the tasks belong to.
        model: The model.
        tolerance: Nats per row by which layout may change a log-probability; None if
            it was not measured.
        slot: The slot.
        place: Its position on the page.
        on_text: Called in this thread with the text of a gen as it comes (the first
            one, if there are several). The pieces joined are `SlotResult.text`.

    Raises:
        RequestError: If the slot is invalid.
        ModelError: If the model fails.
    """
    if isinstance(slot, GenSlot):
        return _fill_gen(group, model, tolerance, slot, place, on_text)
    if isinstance(slot, BeamSlot):
        return _fill_beam(group, model, tolerance, slot, place)
    if slot.grammar is not None:
        return _fill_unlisted(group, model, tolerance, slot, place)
    return _fill_select(group, model, tolerance, slot, place)


def _fill_select(
    group: TaskGroup, model: Model, tolerance: float | None, slot: SelectSlot, place: SlotContext
) -> SlotResult:
    terminator, following = _listed_ending(slot, place)
    asked = SelectRequest(slot.rule, terminator, following, slot.prior, slot.search)
    question = selections.prepare(model.vocabulary, model.limits, place.prompt, slot.texts, asked)
    selection = select.answer(group, [question], tolerance)[0]
    record: Selection | SampledChoice = selection
    if slot.temperature is not None:
        record = drawn_choice(selection, slot.temperature, place.seed if slot.seed is None else slot.seed)
    return SlotResult(_value_of(slot.options, record.text), record.text, record, logprobs=_logprobs(slot, selection))


def _listed_ending(slot: SelectSlot, place: SlotContext) -> tuple[str, str]:
    """Return the terminator and the following text of a select among options."""
    if slot.terminator == "text":
        return "text", needed(place.following)
    if slot.terminator is not None:
        return slot.terminator, ""
    if place.following or not place.ends_turn:
        return "auto", place.following
    return "eog", ""


def _fill_unlisted(
    group: TaskGroup, model: Model, tolerance: float | None, slot: SelectSlot, place: SlotContext
) -> SlotResult:
    """Decide a select among the texts of a grammar that cannot be listed."""
    if slot.grammar is None:
        raise InternalError("a select without options has a grammar")
    ending = ending_of(model.vocabulary, slot.grammar, slot.terminator, place.following, ends_turn=place.ends_turn)
    asked = SelectRequest(slot.rule, ending.terminator, search=_fitting(model, slot.search, place))
    if slot.temperature is not None:
        wanted = (1, place.seed if slot.seed is None else slot.seed, True)
        prepared_sample = drawing.prepare(model, place.prompt, ending.grammar, asked, wanted)
        draws = ending.of_draws(drawing.answer(group, prepared_sample, tolerance))
        found = {one.text: one.logp for one in draws}
        return SlotResult(draws[0].text, draws[0].text, draws, logprobs=found if slot.logprobs is not None else None)
    prepared_select = select_grammar.prepare(model, place.prompt, ending.grammar, asked)
    selection = ending.of_selection(select_grammar.answer(group, prepared_select, tolerance))
    return SlotResult(selection.text, selection.text, selection, logprobs=_logprobs(slot, selection))


def _fitting(model: Model, search: SearchParams, place: SlotContext) -> SearchParams:
    """Return the search with as many tokens a text as fit after the page.

    A select has no argument for them, and its certificate says whether a longer text
    could be better.
    """
    n_left = model.limits.nodes - n_room(reopen(model.vocabulary, place.prompt))
    return replace(search, max_tokens=max(1, min(search.max_tokens, n_left)))


def _logprobs(slot: SelectSlot, selection: Selection) -> dict[str, float] | None:
    if slot.logprobs is None:
        return None
    table = selection.choices
    pairs = zip(table.texts, table.logp.tolist(), strict=True)
    return {one: logp for one, logp in pairs if not np.isnan(logp)}


def _value_of(options: tuple[Option, ...] | None, text: str) -> object:
    """Return the value of the option with this text."""
    return next((option.value for option in options or () if option.text == text), text)


def _fill_beam(
    group: TaskGroup, model: Model, tolerance: float | None, slot: BeamSlot, place: SlotContext
) -> SlotResult:
    ending = ending_of(model.vocabulary, slot.grammar, slot.terminator, place.following, ends_turn=place.ends_turn)
    n_more = len(encode_inside(model.vocabulary, ending.text.encode()))
    beam = replace(slot.beam, terminator=ending.terminator, max_tokens=slot.beam.max_tokens + n_more)
    asked = beam_search.prepare(model, place.prompt, ending.grammar, beam, DEFAULT_PROMPTING)
    result = ending.of_beam(beam_search.answer(group, asked, beam, tolerance))
    if slot.options is not None and not result.best.complete:
        reason = f"none was finished within {slot.beam.max_tokens} tokens"
        raise NothingFoundError("the options", reason, "give max_tokens= more, or shorter options")
    return SlotResult(_value_of(slot.options, result.text), result.text, result)


def _fill_gen(  # noqa: PLR0917
    group: TaskGroup,
    model: Model,
    tolerance: float | None,
    slot: GenSlot,
    place: SlotContext,
    on_text: Callable[[str], None] | None,
) -> SlotResult:
    ending, stop = _gen_ending(model, slot, place)
    stopping = StopParams(max_tokens=slot.max_tokens, stop=stop)
    grammar = slot.grammar if ending is None else ending.grammar
    when = ending.is_complete if ending is not None and ending.text else None
    wanted = GenerateRequest(
        n=slot.n,
        seed=place.seed if slot.seed is None else slot.seed,
        sampling=slot.sampling,
        stopping=replace(stopping, when=when),
        options=GenerationParams(grammar=grammar, heal=True),
    )
    plan = generate.prepare(model.vocabulary, model.limits, place.prompt, wanted)
    outlet = None if on_text is None else _Outlet(on_text, ending)
    drawings = generate.begin(group, plan, tolerance, None if outlet is None else outlet.watch)
    if outlet is not None:
        outlet.pass_on(drawings[0])
    done = [generate.completion(one, tolerance) for one in drawings]
    if ending is not None:
        done = [ending.of_completion(one) for one in done]
    record = replace(generate.generation(plan, done, model.identity, tolerance), stopping=stopping)
    first = done[0]
    if outlet is not None:
        outlet.finish(first)
    tokens = np.array([token.id for token in first.tokens], dtype=np.int32)
    value = first.text if slot.n == 1 else [one.text for one in done]
    return SlotResult(value, first.text, record, drawn=(drawings[0].task.prompt, tokens))


def _gen_ending(model: Model, slot: GenSlot, place: SlotContext) -> tuple[Ending | None, tuple[str, ...]]:
    """Return how a gen ends.

    With a grammar and no stop text it ends as texts of the grammar do, else by stop
    texts. The contents of a JSON string end by either.
    """
    if slot.is_json:
        return ending_of_string(model.vocabulary, place.following), slot.stop or ()
    if slot.stop is not None:
        return None, slot.stop
    if slot.grammar is not None:
        return ending_of(model.vocabulary, slot.grammar, None, place.following, ends_turn=place.ends_turn), ()
    return None, default_stops(place.following, place.before)


class _Outlet:
    """Passes the text of a sequence from the model's thread to the caller of `fill`.

    Characters that may not belong to the text are held back: the beginning of the
    following text, and an incomplete escape of a JSON string.
    """

    def __init__(self, on_text: Callable[[str], None], ending: Ending | None) -> None:
        self._on_text, self._is_json = on_text, ending is not None and ending.is_json
        self._following = "" if ending is None else ending.text
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._text, self._n_told = "", 0

    def watch(self, _prompt_index: int, index: int, task: SampleTask) -> Callable[[], None]:
        """Return a callback for after each of a sequence's model calls.

        It runs on the model's thread.
        """
        return (lambda: None) if index else (lambda: self._queue.put(task.new_text()))

    def pass_on(self, drawing: Drawing) -> None:
        """Report the text of a sequence as it comes, until the sequence ends."""
        drawing.handle.when_done(lambda: self._queue.put(None))
        while (piece := self._queue.get()) is not None:
            self._text += piece
            self._tell(self._text[: self._n_sure()])

    def _n_sure(self) -> int:
        """Return how many characters belong to the text however it goes on."""
        if self._is_json:
            return whole_length(self._text, self._n_told)
        held = next((n for n in range(len(self._following), 0, -1) if self._text.endswith(self._following[:n])), 0)
        return len(self._text) - held

    def finish(self, whole: Completion) -> None:
        """Report the text that was held back in case the following text began there.

        whole: the complete completion.
        """
        self._tell(whole.text)

    def _tell(self, text: str) -> None:
        if len(text) > self._n_told:
            piece, self._n_told = text[self._n_told :], len(text)
            self._on_text(piece)
