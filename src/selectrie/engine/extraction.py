"""Extracts values of a type from states: the texts of all of them are asked together.

The prompts are those of `decide`. A type of few values becomes one selection for each
state, and another one a beam search under its grammar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from selectrie.core.model import ModelDescription
from selectrie.core.numerics import logsumexp
from selectrie.decide.extraction import ExtractedType, ExtractionOptions, marginals_of, searched_marginals
from selectrie.decide.questions import Choice
from selectrie.decide.states import State, text_of_state
from selectrie.decide.templates import Page
from selectrie.engine.decision_prompts import DecisionMaker, PromptMaker
from selectrie.engine.decisions import call_or_error, run_all_or_each
from selectrie.engine.rendering.slot_ends import Ending, ending_of
from selectrie.engine.requests.beam_search import PreparedBeamSearch, prepare_beam_search
from selectrie.engine.requests.constrained_prompt import max_context_tokens
from selectrie.engine.requests.reasons import reason_budget_ended
from selectrie.engine.requests.select import SelectBatch
from selectrie.engine.requests.selection import PreparedSelect
from selectrie.engine.requests.session import Session
from selectrie.errors import (
    ClosedError,
    ForkedError,
    InternalError,
    NothingFoundError,
    RequestError,
    SelectrieError,
    of_request,
    remedies,
)
from selectrie.grammar import Grammar
from selectrie.options import BeamSearchParams
from selectrie.results import BeamResult, ExtractedValue, Extraction, Hypothesis, Selection
from selectrie.tokenization.canonical import reopen
from selectrie.tokenization.prompts import read_prompt

if TYPE_CHECKING:
    from selectrie.options.keywords import GrammarTerminator

TOGETHER = 12
"""Maximum number of states about which searches are under way at once.

A search holds its open branches. With more searches than that each has room for few of
them, gives others up, and evaluates them again.
"""
_NODES_PER_TOKEN = 2
"""Nodes that a search of width 1 evaluates for a token; one is for greedy decoding."""


@dataclass(frozen=True, slots=True, eq=False)
class Extractor:
    """Extracts values of one type on a model.

    Attributes:
        model: The model.
        type: The type.
        options: How its values are extracted.
        maker: Makes the prompts.
    """

    model: ModelDescription
    type: ExtractedType
    options: ExtractionOptions
    maker: DecisionMaker

    @classmethod
    def of(cls, model: ModelDescription, kind: ExtractedType, options: ExtractionOptions) -> Extractor:
        """Return the extractor for a model."""
        question = Choice(kind.instructions(options.instructions), kind.grammar)
        return cls(model, kind, options, DecisionMaker.of(model, {"": question}, options.params))

    def extractions(self, states: Sequence[State], *, keeps: bool, first: int | None) -> PreparedExtractions:
        """Check and tokenize the prompts about some states.

        With `keeps`, errors that belong to one state are kept. `first` is the index of
        the first state in errors; None if there is only one.
        """
        prepare: Callable[[State, int | None], _Prepared] = self._select
        if not self.type.texts:
            ask = self.maker.asks[""]
            prepare = partial(self._search, PromptMaker(self.maker, ask, ask.orders[0]))
        asked: list[_Prepared | RequestError] = [
            call_or_error(partial(prepare, state, None if first is None else first + index), keep_errors=keeps)
            for index, state in enumerate(states)
        ]
        return PreparedExtractions(self, tuple(asked), keeps, first)

    def _select(self, state: State, request: int | None) -> PreparedSelect:
        """Return the selection among the listed values for a state."""
        select = self.maker.tokenize(state, request)[""][0].select
        if not isinstance(select, PreparedSelect):
            raise InternalError(f"the texts of {self.type.name} are not listed")
        search = self.options.search
        return replace(select, search=search, method="exhaustive" if search.stop == "all" else "best_first")

    def _search(self, pages: PromptMaker, state: State, request: int | None) -> PreparedBeam:
        """Return the search about a state; `request` is its index in errors."""
        with of_request(request):
            page = pages.write_page(text_of_state(state))
            found = self._beam(page, self.type.grammar, self.options.beam)
            return replace(found, others=partial(self._others, page)) if self.options.alternatives else found

    def _others(self, page: Page) -> Iterator[PreparedBeam]:
        """Iterate over the searches of alternatives, which find one text each."""
        beam = replace(self.options.beam, width=1, n=1, groups=1, diversity=0.0, exact=False)
        for one in self.type.alternatives:
            yield self._beam(page, one.grammar, beam)

    def _beam(self, page: Page, grammar: Grammar, beam: BeamSearchParams) -> PreparedBeam:
        """Return the search of a grammar after a page."""
        model, prompting = self.model, self.maker.prompting_of(page)
        ending = ending_of(model.vocabulary, grammar, None, page.following, ends_turn=page.is_chat)
        read = read_prompt(model.vocabulary, page.prompt, prompting)
        n_left = model.limits.nodes - max_context_tokens(reopen(model.vocabulary, read))
        terminator = cast("GrammarTerminator", ending.terminator)
        beam = replace(beam, terminator=terminator, max_tokens=max(1, min(beam.max_tokens, n_left)))
        return PreparedBeam(prepare_beam_search(model, page.prompt, ending.grammar, beam, prompting), ending)

    def extraction(self, found: Selection | BeamResult, others: Sequence[BeamResult] = ()) -> Extraction[Any]:
        """Return what a selection, or a beam and those of single alternatives, found.

        Raises `NothingFoundError` if no text has a value that the type takes.
        """
        kind = self.type
        if isinstance(found, Selection):
            marginals = marginals_of(found.choices, kind.columns, found.log_heal)
            return Extraction(marginals=marginals, selection=found, beam=None, values=kind.values)
        texts = _complete([found, *others])
        ranked = _ranked(kind, texts)
        if not ranked:
            raise _nothing_error(kind.name, found, has_texts=bool(texts))
        marginals = searched_marginals([(kind.field_values(one.text), one.probability_low) for one in ranked])
        found = replace(found, cost=sum((one.cost for one in others), found.cost))
        return Extraction(marginals=marginals, selection=None, beam=found, ranked=ranked)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedBeam:
    """A beam search of an open type after the prompt about a state.

    Attributes:
        search: The search, checked and tokenized.
        ending: What ends a text on the page.
        others: Returns the searches of single alternatives, each made in its turn.
    """

    search: PreparedBeamSearch
    ending: Ending
    others: Callable[[], Iterable[PreparedBeam]] = tuple

    def begin(self, session: Session) -> PreparedBeam:
        """Begin the search; return it for `run`, which waits for it."""
        return replace(self, search=self.search.begin(session))

    def run(self, session: Session) -> BeamResult:
        """Search and return the result."""
        return self.ending.strip_beam(self.search.run(session))

    def run_others(self, session: Session, found: BeamResult) -> list[BeamResult]:
        """Search the alternatives of which no text was found yet.

        They share what `found` left of the budget, and end when it is used up.
        """
        made: list[BeamResult] = []
        budget = self.search.beam.budget_nodes
        n_left = math.inf if budget is None else budget - found.certificate.nodes_evaluated
        for one in self.others() if n_left > 0 else ():
            texts = _complete([found, *made])
            if any(one.ending.own.accepts(text.text) for text in texts):
                continue
            limit = None if budget is None else min(int(n_left), _NODES_PER_TOKEN * one.search.beam.max_tokens)
            n_evaluated = limit or 0  # if an error hides how many they were
            with suppress(NothingFoundError):
                made.append(one.limited(limit).run(session))
                n_evaluated = made[-1].certificate.nodes_evaluated
            n_left -= n_evaluated
            if n_left <= 0:
                break
        return made

    def limited(self, n_nodes: int | None) -> PreparedBeam:
        """Return the same search with another budget."""
        return replace(self, search=replace(self.search, beam=replace(self.search.beam, budget_nodes=n_nodes)))


_Prepared = PreparedSelect | PreparedBeam


@dataclass(frozen=True, slots=True, eq=False)
class PreparedExtractions:
    """Extractions from several states, checked and tokenized.

    Attributes:
        extractor: What made the prompts.
        asked: What is asked about each state, or the error that was kept.
        keeps: Whether errors of a state are kept in its extraction.
        first: Index of the first state in errors; None if there is only one.
    """

    extractor: Extractor
    asked: tuple[_Prepared | RequestError, ...]
    keeps: bool
    first: int | None

    def run(self, session: Session) -> list[Extraction[Any]]:
        """Evaluate all prompts together and return the extractions in order."""
        if not self.extractor.options.rescore and not session.is_served:
            session = replace(session, rescores=False, kept=None)
        indices = [index for index, one in enumerate(self.asked) if not isinstance(one, RequestError)]
        results = run_all_or_each(partial(self._run, session), indices, keep_errors=self.keeps)
        if closed := next((one for one in results if isinstance(one, ClosedError | ForkedError)), None):
            raise closed
        found = dict(zip(indices, results, strict=True))
        outcomes: list[Any] = [found.get(index, one) for index, one in enumerate(self.asked)]
        return [
            one if isinstance(one, Extraction) else Extraction(marginals={}, selection=None, beam=None, error=one)
            for one in outcomes
        ]

    def _run(self, session: Session, indices: Sequence[int]) -> list[Extraction[Any] | RequestError]:
        """Return the extractions from some states, or errors that are kept."""
        n = max(1, math.ceil(len(indices) / max(1, math.ceil(len(indices) / TOGETHER))))
        windows = [indices[at : at + n] for at in range(0, len(indices), n)]
        if self.extractor.type.texts:
            return [one for window in windows for one in self._select(session, window)]
        return [one for window in windows for one in self._search(session, window)]

    def _search(self, session: Session, indices: Sequence[int]) -> list[Extraction[Any] | RequestError]:
        """Return the extractions of an open type, or errors that are kept.

        The first searches about all states share calls.
        """
        with session.group.together():
            begun = [cast("PreparedBeam", self.asked[index]).begin(session) for index in indices]

        def extraction(index: int, beam: PreparedBeam) -> Extraction[Any]:
            with self._errors_of(index):
                found = beam.run(session)
                return self.extractor.extraction(found, beam.run_others(session, found))

        return [
            call_or_error(partial(extraction, *pair), keep_errors=self.keeps)
            for pair in zip(indices, begun, strict=True)
        ]

    def _select(self, session: Session, indices: Sequence[int]) -> list[Extraction[Any]]:
        """Return the extractions of a listed type; its states are searched at once."""
        selects: list[Any] = [self.asked[index] for index in indices]
        try:
            return [self.extractor.extraction(one) for one in SelectBatch(selects).run(session)]
        except SelectrieError as error:
            if error.request is None and len(selects) != 1:
                raise
            at, error.request = indices[error.request or 0], None
            with self._errors_of(at):
                raise

    def _errors_of(self, index: int) -> Any:
        return of_request(None if self.first is None else self.first + index)


def _nothing_error(name: str, found: BeamResult, *, has_texts: bool) -> NothingFoundError:
    """Return the error for a beam without a value that the type takes.

    With `has_texts`, texts were found and refused.
    """
    reasons = ["the type refuses the values found" if has_texts else "no text was finished"]
    if found.stopped != "budget":
        return NothingFoundError(name, reasons[0], remedies("raise `width` of the beam", "raise `max_tokens`"))
    reasons.append(reason_budget_ended(found.certificate.nodes_evaluated))
    return NothingFoundError(name, ", ".join(reasons), remedies("raise `budget_nodes`"))


def _complete(beams: Sequence[BeamResult]) -> list[Hypothesis]:
    """Return the texts of beams and of greedy decoding, best first, each once."""
    every = [one for beam in beams for one in (*beam.hypotheses, *([] if beam.greedy is None else [beam.greedy]))]
    found = {one.text: one for one in every if one.complete}
    return sorted(found.values(), key=lambda one: -one.logp)


def _ranked(kind: ExtractedType, texts: Sequence[Hypothesis]) -> tuple[ExtractedValue[Any], ...]:
    """Return the values of the texts that were found, best first.

    A value may have several texts, such as 1.5 and 1.50, of which some were not found.
    So its probability is at least that of its texts found, and at most what the texts
    of other values leave.
    """
    by_value: dict[Hashable, list[Hypothesis]] = {}
    values: dict[Hashable, Any] = {}
    for one in texts:
        with suppress(ValueError, TypeError):  # the type may refuse a text
            value, identity = kind.value(one.text), kind.identity(one.text)
            values.setdefault(identity, value)
            by_value.setdefault(identity, []).append(one)
    logps = {key: logsumexp(np.array([one.logp for one in same])) for key, same in by_value.items()}
    lows = {key: min(1.0, math.exp(logp)) for key, logp in logps.items()}
    others = {key: math.fsum(lows.values()) - low for key, low in lows.items()}
    return tuple(
        ExtractedValue(values[key], best.text, best.logp, None, lows[key], max(lows[key], min(1.0, 1.0 - others[key])))
        for key, (best, *_) in sorted(by_value.items(), key=lambda item: -logps[item[0]])
    )
