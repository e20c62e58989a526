"""Scores texts, and selects among choices, over all token sequences that spell them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.model import ModelDescription
from selectrie.core.numerics import Interval
from selectrie.core.types import FloatArray, IntArray
from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.decoding.scoring.evaluation import auto_terminator
from selectrie.decoding.scoring.rules import coverage_of, posterior
from selectrie.decoding.spelling import (
    ByteEvent,
    CloseBounds,
    OneWinner,
    SpellingOutcome,
    SpellingSearch,
    SpellingSpec,
    share,
)
from selectrie.decoding.trie.exhaustive import ScoreTask
from selectrie.engine.requests import choice_scores, selection
from selectrie.engine.requests.choice_scores import SearchReport
from selectrie.engine.requests.reasons import reason_budget_ended
from selectrie.engine.requests.select import PreparedScore, prepare_score
from selectrie.engine.requests.selection import Choices, PreparedSelect, SelectRequest, read_choices
from selectrie.engine.requests.session import Session
from selectrie.errors import ChoiceError, IncompatibleOptionsError, OptionError, OptionRef, TextError, words
from selectrie.options import DEFAULT_SEARCH, MAX_SPELLING_ROWS, SPELLING_ROWS, SpellingParams
from selectrie.results import Certificate, ChoiceSpellings, Selection, Spellings, TextScore
from selectrie.tokenization.encoding import EncodedChoices
from selectrie.tokenization.prompts import Prompt

MAX_RATIO = 1.01
"""Ratio of upper to lower bound of a probability at which the search stops."""
PROVED_RATIO = 2.0
"""Largest ratio of the bounds at which a probability counts as proved."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSpellings:
    """A text to score over all its spellings, checked and tokenized.

    Attributes:
        scored: The text with its canonical spelling.
        spec: The events to bound: the text, and then the healed bytes if there are any.
    """

    scored: PreparedScore
    spec: SpellingSpec

    def run(self, session: Session) -> TextScore:
        """Return the score of the canonical spelling, with its `spellings` set.

        The canonical spelling is scored first, so that its rows are cached for the
        search.
        """
        score = self.scored.run(session)
        handle = session.group.begin(SpellingSearch(self.scored.select.encoded.context, self.spec))
        spellings = _spellings_record(self.spec, handle.result())
        return replace(score, spellings=spellings, cost=score.cost + handle.cost)


def prepare_spelling_score(
    model: ModelDescription, prompt: Prompt, text: str, options: SelectRequest, params: SpellingParams
) -> PreparedSpellings:
    """Check and tokenize a text that is scored over all its spellings.

    Raises `RequestError` for everything that can be found invalid without a model call.
    """
    other = OptionRef("tokenizations", "all")
    if options.following:
        raise IncompatibleOptionsError("following", other, words("put it into the text, and set `event='begins'`"))
    if options.prompting.boundary == "harness":
        raise IncompatibleOptionsError(OptionRef("boundary", "harness"), other, "use 'heal' or 'split'")
    vocabulary = model.vocabulary
    event = params.event if params.event != "auto" else "ends" if len(vocabulary.eog) else "begins"
    if event == "ends" and not len(vocabulary.eog):
        raise OptionError("event", "ends", "'begins': this model has no end-of-generation token")
    scored = prepare_score(model, prompt, text, options)
    encoded = scored.select.encoded
    written = to_bytes(options.prompting.delimiter, "delimiter") + to_bytes(text, "text")
    events = [ByteEvent(bytes_to_spell(vocabulary, encoded, written), event == "ends")]
    if encoded.healed:
        events.append(ByteEvent(encoded.healed, ends=False))
    n_canonical = len(encoded.tokens) + (event == "ends")
    return PreparedSpellings(
        scored,
        SpellingSpec(
            vocabulary=vocabulary,
            events=tuple(events),
            canonical=((0, encoded.tokens),),
            goal=CloseBounds(MAX_RATIO),
            budget_nodes=params.budget_nodes or min(SPELLING_ROWS * n_canonical, MAX_SPELLING_ROWS),
            max_depth=model.limits.nodes - len(encoded.context),
        ),
    )


def bytes_to_spell(vocabulary: Vocabulary, encoded: EncodedChoices, written: bytes, choice: int = 0) -> bytes:
    """Return the bytes that every spelling of a choice spells after the context.

    They are the healed bytes, if there are any, and then the text. If the text begins
    there and the tokenizer adds a space, the space is included.

    Args:
        vocabulary: The vocabulary.
        encoded: The prompt and the choices.
        written: The bytes that the choice adds to the prompt.
        choice: Index of the choice.

    Raises:
        TextError: If the canonical spelling of the choice spells other bytes.
    """
    tokens = encoded.tokens[encoded.offsets[choice] : encoded.offsets[choice + 1]]
    spelled = vocabulary.decode(tokens)
    silent = np.union1d(vocabulary.eog, vocabulary.control)
    is_plain = bool((vocabulary.lengths[tokens] > 0).all()) and not bool(np.isin(tokens, silent).any())
    if not is_plain or spelled not in (encoded.healed + written, vocabulary.with_added_space(written)):
        raise TextError(
            f"choice {choice}" if len(encoded.offsets) > 2 else "text",
            words(
                "the tokens of its own encoding do not spell it, so other spellings cannot be compared with it; "
                "use `tokenizations='canonical'`"
            ),
        )
    return spelled


def _spellings_record(spec: SpellingSpec, outcome: SpellingOutcome) -> Spellings:
    """Return the record of the bounds that a search found for a text."""
    logp = conditional_bounds(outcome, 0, 1 if len(spec.events) > 1 else None)
    has_gap = not logp.width <= math.log(PROVED_RATIO)
    read = outcome.bounds.as_read
    heal = Interval.point(0.0) if len(spec.events) == 1 else read.map(lambda logp: float(logp[1]))
    return Spellings(
        event="ends" if spec.events[0].ends else "begins",
        logp_low=logp.low,
        logp_high=logp.high,
        canonical_share=_canonical_shares(outcome, 1)[0],
        proved=not has_gap,
        reason=explain_open_bounds(spec, outcome) if has_gap else "",
        log_heal_low=heal.low,
        log_heal_high=heal.high,
        n_rows=outcome.n_evaluated,
    )


def _canonical_shares(outcome: SpellingOutcome, n: int) -> list[tuple[float, float]]:
    """Return bounds on the canonical spelling's share of each of the first n events."""
    read, canonical = outcome.bounds.as_read, outcome.canonical
    columns = (canonical.low, read.high, canonical.high, read.low)
    rows = zip(*(column[:n].tolist() for column in columns), strict=True)
    return [(share(low, most), share(high, least)) for low, most, high, least in rows]


def conditional_bounds(outcome: SpellingOutcome, event: int, given: int | None) -> Interval[float]:
    """Return bounds on the log-probability of an event, given another event.

    Args:
        outcome: The result of the search.
        event: Index of the event.
        given: Index of an event that contains it; None for no condition.
    """
    own = outcome.bounds.as_read.map(lambda logp: float(logp[event]))
    if given is None:
        return own
    condition = outcome.bounds.as_read.map(lambda logp: float(logp[given]))
    return Interval(
        own.low - condition.high if own.low > -np.inf else own.low,
        min(0.0, own.high - condition.low) if own.high > -np.inf else own.high,
    )


def explain_open_bounds(spec: SpellingSpec, outcome: SpellingOutcome, events: IntArray | None = None) -> str:
    """Return why a search ended before the bounds were close enough.

    Args:
        spec: The specification of the search.
        outcome: The result of the search.
        events: Indices of the events whose bounds matter; None for all events.
    """
    log_open = outcome.log_open if events is None else outcome.log_open[events]
    if spec.budget_nodes is not None and outcome.n_evaluated >= spec.budget_nodes:
        return reason_budget_ended(outcome.n_evaluated)
    if (log_open == -np.inf).all():
        return "the model does not tell some of the probabilities that are summed, and no other row would"
    return "the other spellings take more tokens than the context has room for"


MAX_TOKENS = 16
"""Maximum number of tokens of a choice's canonical encoding after the context."""
ALL_SPELLINGS = OptionRef("tokenizations", "all")


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSpellingSelect:
    """Choices to compare over all their spellings, checked and tokenized.

    Attributes:
        select: The choices with their canonical spellings.
        spec: The events to bound: one for each choice, and then the healed bytes if
            there are any. `run` sets its tolerance.
        goal: The goal of the search.
    """

    select: PreparedSelect
    spec: SpellingSpec
    goal: OneWinner

    def run(self, session: Session) -> Selection:
        """Return the selection, with its `spellings` set.

        The canonical spellings are scored first, so that their rows are cached.
        """
        prepared, group = self.select, session.group
        context = prepared.encoded.context
        canonical = group.begin(ScoreTask(context, prepared.trie, prepared.needs, prepared.plan))
        evaluation = canonical.result()
        spec = replace(self.spec, tolerance=session.tolerance or 0.0)
        search = group.begin_counted(SpellingSearch(context, spec), prepared.search.on_progress)
        outcome = search.result()
        bounds = self._choice_bounds(outcome)
        verdict = _Verdict.of(self, outcome)
        scored = choice_scores.score(prepared, evaluation, None)
        scores = bounds.map(lambda logp: logp + np.array(self.goal.log_prior))
        decision = posterior(scores, prepared.trie.path_of)
        cost = replace(canonical.cost + search.cost, rows_naive=prepared.rows_naive)
        certificate = replace(
            Certificate.best_first(
                bound_gap=verdict.gap,
                open_mass=_open_mass(bounds),
                nodes_evaluated=outcome.n_evaluated,
                rescored=not verdict.reason and session.tolerance is not None,
                reason=verdict.reason,
            ),
            method="spellings",
        )
        signature = choice_scores.signature(prepared, session)
        found = choice_scores.selection(
            prepared,
            evaluation,
            scored,
            SearchReport(certificate, cost),
            replace(signature, rule=_rule_name(signature.rule)),
            decision=replace(decision, winner=verdict.winner, is_tie=verdict.is_tie, margin=verdict.gap),
        )
        coverage = bounds.map(lambda logp: coverage_of(_first_of_paths(logp, prepared)))
        return replace(
            found,
            rule=_rule_name(found.rule),
            coverage=min(1.0, coverage.low),
            coverage_high=None if found.coverage_high is None else coverage.high,
            choices=replace(found.choices, score=scores.low),
            spellings=self._spellings(outcome, bounds),
        )

    def _choice_bounds(self, outcome: SpellingOutcome) -> Interval[FloatArray]:
        """Return bounds on each choice's conditional log-probability, float64[C]."""
        bounds = [conditional_bounds(outcome, one, self.goal.given) for one in self.goal.choices]
        return Interval(np.array([one.low for one in bounds]), np.array([one.high for one in bounds]))

    def _spellings(self, outcome: SpellingOutcome, bounds: Interval[FloatArray]) -> ChoiceSpellings:
        """Return the record of the bounds that the search found for the choices."""
        given, read = self.goal.given, outcome.bounds.as_read
        return ChoiceSpellings(
            event="ends" if self.spec.events[0].ends else "begins",
            logp_low=tuple(bounds.low.tolist()),
            logp_high=tuple(bounds.high.tolist()),
            canonical_share=tuple(_canonical_shares(outcome, len(self.select.texts))),
            log_heal_low=0.0 if given is None else float(read.low[given]),
            log_heal_high=0.0 if given is None else float(read.high[given]),
            n_rows=outcome.n_evaluated,
        )


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The best choice, and how certain it is.

    Attributes:
        winner: The choice with the best lower bound, the lowest index on ties.
        gap: The winner's lower bound minus the best upper bound of another text, both
            widened by the tolerance of all rows; inf if no other text is possible.
        is_tie: Whether no further row can separate another choice from the winner,
            because rounding and the tolerance of the rows exceed their distance.
        reason: Why the winner is not proved; "" if it is.
    """

    winner: int
    gap: float
    is_tie: bool
    reason: str

    @classmethod
    def of(cls, prepared: PreparedSpellingSelect, outcome: SpellingOutcome) -> _Verdict:
        """Return the best choice by the bounds that a search found."""
        goal, bounds = prepared.goal, outcome.bounds
        events, prior = np.array(goal.choices), np.array(goal.log_prior)
        winner, rivals = goal.find_rivals(bounds)
        safe, read = (one.map(lambda logp: logp[events] + prior) for one in (bounds.safe, bounds.as_read))
        others = safe.high[events != events[winner]]
        gap = log_difference(float(safe.low[winner]), float(others.max(initial=-np.inf))) if len(others) else np.inf
        if not rivals.any():
            return cls(winner, gap, is_tie=False, reason="")
        is_closed = (outcome.log_open[events] == -np.inf) & outcome.is_exact[events]
        overlaps = rivals & is_closed & (read.high >= read.low[winner]) & (read.low <= read.high[winner])
        is_equal = bool(overlaps.any() and is_closed[winner])
        is_close = bool(goal.find_inseparable(bounds).any())
        reason = _explain_verdict(prepared, outcome, is_equal=is_equal, is_close=is_close)
        return cls(winner, gap, is_equal or is_close, reason)


def log_difference(one: float, other: float) -> float:
    """Return one - other for logarithms, with -inf - -inf defined as 0."""
    return 0.0 if one == other else one - other


def _explain_verdict(
    prepared: PreparedSpellingSelect, outcome: SpellingOutcome, *, is_equal: bool, is_close: bool
) -> str:
    """Return why the winner is not proved."""
    if is_equal:
        return "another choice has the same probability, as far as rounding can tell"
    if is_close:
        return "two choices are closer than the layout of calls may move them"
    winner, rivals = prepared.goal.find_rivals(outcome.bounds)
    events = np.array(prepared.goal.choices)
    return explain_open_bounds(prepared.spec, outcome, events[rivals | (np.arange(len(events)) == winner)])


def prepare_spelling_select(
    model: ModelDescription, prompt: Prompt, choices: Choices, options: SelectRequest
) -> PreparedSpellingSelect:
    """Check and tokenize choices that are compared over all their spellings.

    Raises `RequestError` for everything that can be found invalid without a model call.
    """
    _check_options(options)
    vocabulary, choices = model.vocabulary, read_choices(choices)
    options = selection.resolve_turn_terminator(vocabulary, options, prompt)
    options = replace(options, terminator=_resolve_terminator(vocabulary, choices, options))
    search = replace(options.search, method="exhaustive", budget_nodes=None)  # for the canonical spellings
    prepared = selection.prepare_selection(model, prompt, choices, replace(options, search=search))
    encoded = prepared.encoded
    lengths = np.diff(encoded.offsets)
    if lengths.max(initial=0) > MAX_TOKENS:
        index = int(lengths.argmax())
        reason = f"{int(lengths[index])} tokens long; at most {MAX_TOKENS} can be compared over all spellings"
        raise ChoiceError(reason, index=index, choice=prepared.texts[index])
    start, ends = to_bytes(options.prompting.delimiter, "delimiter"), options.terminator == "eog"
    events = [
        ByteEvent(bytes_to_spell(vocabulary, encoded, start + to_bytes(text, f"choice {at}"), at), ends)
        for at, text in enumerate(prepared.texts)
    ]
    n = len(events)
    if encoded.healed:
        events.append(ByteEvent(encoded.healed, ends=False))
    log_prior = np.zeros(n) if prepared.log_prior is None else prepared.log_prior
    first = tuple(map(events.index, events[:n]))
    goal = OneWinner(first, tuple(log_prior.tolist()), n if encoded.healed else None, MAX_RATIO)
    budget = options.search.budget_nodes
    spec = SpellingSpec(
        vocabulary=vocabulary,
        events=tuple(events),
        canonical=tuple((at, encoded.tokens[encoded.offsets[at] : encoded.offsets[at + 1]]) for at in range(n)),
        goal=goal,
        budget_nodes=SPELLING_ROWS * (prepared.needs.n_rows) if budget is None else budget,
        max_depth=model.limits.nodes - len(encoded.context),
    )
    return PreparedSpellingSelect(prepared, spec, goal)


def _check_options(options: SelectRequest) -> None:
    """Raise `IncompatibleOptionsError` for options that sums over spellings lack."""
    search, plain = options.search, DEFAULT_SEARCH
    if options.custom is not None or options.named_rule().name != "joint":
        raise IncompatibleOptionsError("rule", ALL_SPELLINGS, "only the joint is summed: leave the rule out")
    if options.following or options.terminator == "text":
        raise IncompatibleOptionsError("following", ALL_SPELLINGS, "put it into the choices")
    if options.terminator == "unless-continued":
        raise IncompatibleOptionsError(
            OptionRef("terminator", "unless-continued"), ALL_SPELLINGS, "use 'eog' or 'none'"
        )
    if options.prompting.boundary == "harness":
        raise IncompatibleOptionsError(OptionRef("boundary", "harness"), ALL_SPELLINGS, "use 'heal' or 'split'")
    for name in ("k", "stop", "method"):
        if getattr(search, name) != getattr(plain, name):
            remedy = "only the winner is proved: leave it out"
            raise IncompatibleOptionsError(f"search.{name}", ALL_SPELLINGS, remedy)


def _resolve_terminator(vocabulary: Vocabulary, choices: Choices, options: SelectRequest) -> str:
    """Return the terminator, with "auto" resolved.

    "auto" means "none", or "eog" if one choice continues another.
    """
    if options.terminator != "auto":
        return options.terminator
    written = [to_bytes(text, f"choice {index}") for index, text in enumerate(read_choices(choices).texts)]
    if auto_terminator(written, b"") == "none" and all(written):
        return "none"
    if not len(vocabulary.eog):
        raise OptionError(
            "terminator", "auto", "'none': one choice continues another, and this model has no end-of-generation token"
        )
    return "eog"


def _rule_name(rule: str) -> str:
    """Return the name of a rule that is summed over all spellings."""
    return f"{rule}, all spellings"


def _first_of_paths(logp: FloatArray, prepared: PreparedSelect) -> FloatArray:
    """Return the value of the first choice on each path, float64[P]."""
    _, first = np.unique(prepared.trie.path_of, return_index=True)
    result: FloatArray = logp[first]
    return result


def _open_mass(logp: Interval[FloatArray]) -> float:
    """Return an upper bound on the probability that the bounds leave open."""
    return min(1.0, float(logp.map(numerics.exp).width.sum()))
