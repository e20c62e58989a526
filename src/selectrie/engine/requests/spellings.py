"""Scores texts, and selects among choices, over all token sequences that spell them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.model import ModelDescription
from selectrie.core.types import FloatArray, IntArray
from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.decoding import scoring
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
from selectrie.engine.requests.reasons import budget_ended
from selectrie.engine.requests.select import PreparedScore, prepare_score
from selectrie.engine.requests.selection import Choices, PreparedSelect, SelectRequest, check_texts
from selectrie.engine.requests.session import Session
from selectrie.errors import ChoiceError, IncompatibleOptionsError, OptionError, OptionRef, TextError, words
from selectrie.options import DEFAULT_SEARCH, MAX_SPELLING_ROWS, SPELLING_ROWS, SearchParams, SpellingParams
from selectrie.results import Certificate, ChoiceSpellings, Selection, Spellings, TextScore
from selectrie.tokenization.encoding import EncodedChoices
from selectrie.tokenization.prompts import Prompt

MAX_RATIO = 1.01
"""Upper bound divided by the lower one at which the search stops."""
PROVED_RATIO = 2.0
"""Largest such quotient at which the probability counts as proved."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSpellings:
    """A text to score over all its spellings, checked and tokenized.

    Attributes:
        scored: The text with its canonical spelling.
        spec: What is searched for: the event, and then the healed bytes if there are
            any.
    """

    scored: PreparedScore
    spec: SpellingSpec

    def run(self, session: Session) -> TextScore:
        """Return the score of the canonical spelling, with `spellings`.

        The canonical spelling is scored first. Its rows are then cached.
        """
        score = self.scored.run(session)
        handle = session.group.begin(SpellingSearch(self.scored.select.encoded.context, self.spec))
        spellings = _spellings(self.spec, handle.result())
        return replace(score, spellings=spellings, cost=score.cost + handle.cost)


def prepare_text(
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
    events = [ByteEvent(spelled_bytes(vocabulary, encoded, written), event == "ends")]
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


def spelled_bytes(vocabulary: Vocabulary, encoded: EncodedChoices, written: bytes, choice: int = 0) -> bytes:
    """Return what every spelling of a choice spells after the context.

    That is the healed bytes, if there are any, and then the text, with the space that
    the tokenizer adds if the text begins there.

    Args:
        vocabulary: The vocabulary.
        encoded: The prompt and the choices.
        written: The bytes that the choice adds to the prompt.
        choice: Index of the choice.

    Raises:
        TextError: If its canonical spelling does not spell that.
    """
    tokens = encoded.tokens[encoded.offsets[choice] : encoded.offsets[choice + 1]]
    spelled = vocabulary.decode(tokens)
    silent = np.union1d(vocabulary.eog, vocabulary.control)
    is_plain = bool((vocabulary.lengths[tokens] > 0).all()) and not bool(np.isin(tokens, silent).any())
    if not is_plain or spelled not in (encoded.healed + written, vocabulary.begun(written)):
        raise TextError(
            f"choice {choice}" if len(encoded.offsets) > 2 else "text",
            words(
                "the tokens of its own encoding do not spell it, so other spellings cannot be compared with it; "
                "use `tokenizations='canonical'`"
            ),
        )
    return spelled


def _spellings(spec: SpellingSpec, outcome: SpellingOutcome) -> Spellings:
    low, high = conditional_bounds(outcome, 0, 1 if len(spec.events) > 1 else None)
    has_gap = high > -np.inf and not high - low <= math.log(PROVED_RATIO)
    heal = (0.0, 0.0) if len(spec.events) == 1 else (float(outcome.bounds.low[1]), float(outcome.bounds.high[1]))
    return Spellings(
        event="ends" if spec.events[0].ends else "begins",
        logp_low=low,
        logp_high=high,
        canonical_share=(
            share(float(outcome.canonical_low[0]), float(outcome.bounds.high[0])),
            share(float(outcome.canonical_high[0]), float(outcome.bounds.low[0])),
        ),
        proved=not has_gap,
        reason=why_open(spec, outcome) if has_gap else "",
        log_heal_low=heal[0],
        log_heal_high=heal[1],
        n_rows=outcome.n_evaluated,
    )


def conditional_bounds(outcome: SpellingOutcome, event: int, given: int | None) -> tuple[float, float]:
    """Return bounds on the log-probability of an event, given another one if there is.

    The event includes the other one.
    """
    low, high = float(outcome.bounds.low[event]), float(outcome.bounds.high[event])
    if given is None:
        return low, high
    given_low, given_high = float(outcome.bounds.low[given]), float(outcome.bounds.high[given])
    return low - given_high if low > -np.inf else low, min(0.0, high - given_low) if high > -np.inf else high


def why_open(spec: SpellingSpec, outcome: SpellingOutcome, events: IntArray | None = None) -> str:
    """Return why a search ended although its bounds are further apart than wanted.

    Args:
        spec: What was searched for.
        outcome: What was found.
        events: The events whose bounds matter, by index; None for all.
    """
    log_open = outcome.log_open if events is None else outcome.log_open[events]
    if spec.budget_nodes is not None and outcome.n_evaluated >= spec.budget_nodes:
        return budget_ended(outcome.n_evaluated)
    if (log_open == -np.inf).all():
        return "the model does not tell some of the probabilities that are summed, and no other row would"
    return "the other spellings take more tokens than the context has room for"


MAX_TOKENS = 16
"""Maximum number of tokens of a choice's canonical encoding after the context."""
OTHER = OptionRef("tokenizations", "all")


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSpellingSelect:
    """Choices to compare over all their spellings, checked and tokenized.

    Attributes:
        select: The choices with their canonical spellings.
        spec: What is searched for: an event for each choice, and then the healed bytes
            if there are any. Its tolerance is that of the session.
        goal: The goal of the search.
    """

    select: PreparedSelect
    spec: SpellingSpec
    goal: OneWinner

    def run(self, session: Session) -> Selection:
        """Return the selection, with `spellings`.

        The canonical spellings are scored first. Their rows are then cached.
        """
        prepared, group = self.select, session.group
        context = prepared.encoded.context
        canonical = group.begin(ScoreTask(context, prepared.trie, prepared.needs, prepared.plan))
        evaluation = canonical.result()
        spec = replace(self.spec, tolerance=session.tolerance or 0.0)
        search = group.begin_counted(SpellingSearch(context, spec), prepared.search.on_progress)
        outcome = search.result()
        bounds = self._bounds(outcome)
        standing = _Standing.of(self, outcome)
        scored = choice_scores.score(prepared, evaluation, None)
        low, high = (self._with_prior(one) for one in bounds)
        cost = replace(canonical.cost + search.cost, rows_naive=prepared.rows_naive)
        certificate = replace(
            Certificate.best_first(
                bound_gap=standing.gap,
                open_mass=_open_mass(*bounds),
                nodes_evaluated=outcome.n_evaluated,
                rescored=not standing.reason and session.tolerance is not None,
                reason=standing.reason,
            ),
            method="spellings",
        )
        signature = choice_scores.signature(prepared, session)
        found = choice_scores.selection(
            prepared,
            evaluation,
            replace(scored, scores=low, score_upper=high),
            SearchReport(certificate, cost),
            replace(signature, rule=_rule_name(signature.rule)),
            decision=_posterior(standing, low, high, prepared.trie.path_of),
        )
        return replace(
            found,
            rule=_rule_name(found.rule),
            coverage=min(1.0, scoring.coverage_of(_of_paths(bounds[0], prepared))),
            coverage_high=None if found.coverage_high is None else scoring.coverage_of(_of_paths(bounds[1], prepared)),
            spellings=self._spellings(outcome, bounds),
        )

    def _bounds(self, outcome: SpellingOutcome) -> tuple[FloatArray, FloatArray]:
        """Return bounds on each choice's conditional log-probability, float64[C]."""
        bounds = [conditional_bounds(outcome, one, self.goal.given) for one in self.goal.choices]
        low, high = np.array(bounds, dtype=np.float64).T
        return low, high

    def _with_prior(self, logp: FloatArray) -> FloatArray:
        return np.asarray(logp + np.array(self.goal.log_prior), dtype=np.float64)

    def _spellings(self, outcome: SpellingOutcome, bounds: tuple[FloatArray, FloatArray]) -> ChoiceSpellings:
        given = self.goal.given
        n = len(self.select.texts)
        columns = outcome.canonical_low, outcome.canonical_high, outcome.bounds.low, outcome.bounds.high
        canonical = zip(*(column[:n].tolist() for column in columns), strict=True)
        return ChoiceSpellings(
            event="ends" if self.spec.events[0].ends else "begins",
            logp_low=tuple(bounds[0].tolist()),
            logp_high=tuple(bounds[1].tolist()),
            canonical_share=tuple((share(p_low, high), share(p_high, low)) for p_low, p_high, low, high in canonical),
            log_heal_low=0.0 if given is None else float(outcome.bounds.low[given]),
            log_heal_high=0.0 if given is None else float(outcome.bounds.high[given]),
            n_rows=outcome.n_evaluated,
        )


@dataclass(frozen=True, slots=True)
class _Standing:
    """Which choice is the best, and how certain that is.

    Attributes:
        winner: The choice with the best lower bound, the lowest index on ties.
        gap: Its lower bound minus the best upper bound of another text, with the
            tolerance of every row; inf if no other text is possible.
        is_tie: Whether no further row can tell another choice from the winner: their
            distance is within the rounding and the tolerance of the rows.
        reason: Why the winner is not proved; "" if it is.
    """

    winner: int
    gap: float
    is_tie: bool
    reason: str

    @classmethod
    def of(cls, prepared: PreparedSpellingSelect, outcome: SpellingOutcome) -> _Standing:
        goal, bounds = prepared.goal, outcome.bounds
        events, prior = np.array(goal.choices), np.array(goal.log_prior)
        winner, rivals = goal.standing(bounds)
        lowest = float((bounds.safe_low[events] + prior)[winner])
        others = (bounds.safe_high[events] + prior)[events != events[winner]]
        gap = difference(lowest, float(others.max(initial=-np.inf))) if len(others) else np.inf
        if not rivals.any():
            return cls(winner, gap, is_tie=False, reason="")
        low, high = bounds.low[events] + prior, bounds.high[events] + prior
        is_closed = (outcome.log_open[events] == -np.inf) & outcome.is_told[events]
        overlaps = rivals & is_closed & (high >= low[winner]) & (low <= high[winner])
        is_equal = bool(overlaps.any() and is_closed[winner])
        is_close = bool(goal.too_close(bounds).any())
        return cls(winner, gap, is_equal or is_close, _reason(prepared, outcome, is_equal=is_equal, is_close=is_close))


def difference(one: float, other: float) -> float:
    """Return one - other for logarithms, where -inf - -inf is 0."""
    return 0.0 if one == other else one - other


def _reason(prepared: PreparedSpellingSelect, outcome: SpellingOutcome, *, is_equal: bool, is_close: bool) -> str:
    """Return why the winner is not proved."""
    if is_equal:
        return "another choice has the same probability, as far as rounding can tell"
    if is_close:
        return "two choices are closer than the layout of calls may move them"
    winner, rivals = prepared.goal.standing(outcome.bounds)
    events = np.array(prepared.goal.choices)
    return why_open(prepared.spec, outcome, events[rivals | (np.arange(len(events)) == winner)])


def prepare_select(
    model: ModelDescription, prompt: Prompt, choices: Choices, options: SelectRequest
) -> PreparedSpellingSelect:
    """Check and tokenize choices that are compared over all their spellings.

    Raises `RequestError` for everything that can be found invalid without a model call.
    """
    _check_options(options)
    vocabulary = model.vocabulary
    options = selection.within_turn(vocabulary, options, prompt)
    options = replace(options, terminator=_terminator(vocabulary, choices, options))
    prepared = selection.prepare_selection(model, prompt, choices, replace(options, search=_exhaustive(options.search)))
    encoded = prepared.encoded
    lengths = np.diff(encoded.offsets)
    if lengths.max(initial=0) > MAX_TOKENS:
        index = int(lengths.argmax())
        reason = f"{int(lengths[index])} tokens long; at most {MAX_TOKENS} can be compared over all spellings"
        raise ChoiceError(reason, index=index, choice=prepared.texts[index])
    start, ends = to_bytes(options.prompting.delimiter, "delimiter"), options.terminator == "eog"
    events = [
        ByteEvent(spelled_bytes(vocabulary, encoded, start + to_bytes(text, f"choice {at}"), at), ends)
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
    """Raise `IncompatibleOptionsError` for what sums over spellings do not have."""
    search, plain = options.search, DEFAULT_SEARCH
    if options.custom is not None or options.named_rule().name != "joint":
        raise IncompatibleOptionsError("rule", OTHER, "only the joint is summed: leave the rule out")
    if options.following or options.terminator == "text":
        raise IncompatibleOptionsError("following", OTHER, "put it into the choices")
    if options.terminator == "unless-continued":
        raise IncompatibleOptionsError(OptionRef("terminator", "unless-continued"), OTHER, "use 'eog' or 'none'")
    if options.prompting.boundary == "harness":
        raise IncompatibleOptionsError(OptionRef("boundary", "harness"), OTHER, "use 'heal' or 'split'")
    for name in ("k", "stop", "method"):
        if getattr(search, name) != getattr(plain, name):
            remedy = "only the winner is proved: leave it out"
            raise IncompatibleOptionsError(f"search.{name}", OTHER, remedy)


def _terminator(vocabulary: Vocabulary, choices: Choices, options: SelectRequest) -> str:
    """Return the terminator that "auto" means: "none", or "eog" among prefixes."""
    if options.terminator != "auto":
        return options.terminator
    written = [to_bytes(text, f"choice {index}") for index, text in enumerate(check_texts(choices))]
    if scoring.auto_terminator(written, b"") == "none" and all(written):
        return "none"
    if not len(vocabulary.eog):
        raise OptionError(
            "terminator", "auto", "'none': one choice continues another, and this model has no end-of-generation token"
        )
    return "eog"


def _exhaustive(search: SearchParams) -> SearchParams:
    return replace(search, method="exhaustive", budget_nodes=None)


def _rule_name(rule: str) -> str:
    return f"{rule}, all spellings"


def _of_paths(logp: FloatArray, prepared: PreparedSelect) -> FloatArray:
    """Return the value of the first choice on each path, float64[P]."""
    _, first = np.unique(prepared.trie.path_of, return_index=True)
    result: FloatArray = logp[first]
    return result


def _open_mass(low: FloatArray, high: FloatArray) -> float:
    """Return a bound on the probability that the bounds leave open."""
    return min(1.0, float((numerics.exp(high) - numerics.exp(low)).sum()))


def _posterior(standing: _Standing, low: FloatArray, high: FloatArray, path_of: IntArray) -> scoring.Posterior:
    """Return the decision, with bounds on the probabilities within the set."""
    probability_low, probability_high = _shares(low, high, path_of), _shares(high, low, path_of)
    return scoring.Posterior(
        probability=(probability_low + probability_high) / 2,
        probability_low=probability_low,
        probability_high=probability_high,
        winner=standing.winner,
        is_tie=standing.is_tie,
        margin=standing.gap,
    )


def _shares(own: FloatArray, others: FloatArray, path_of: IntArray) -> FloatArray:
    """Return the share of each choice where all other paths have other values.

    The others are summed without the choice's own path. Taking it out of a sum of all
    would leave rounding alone, where its path has nearly all of the sum.

    Args:
        own, others: float64[C], logs.
        path_of: int32[C], the path of each choice.
    """
    _, first = np.unique(path_of, return_index=True)
    by_path = np.concatenate([[-np.inf], others[first], [-np.inf]])
    before, after = np.logaddexp.accumulate(by_path), np.logaddexp.accumulate(by_path[::-1])[::-1]
    beside = np.logaddexp(before[:-2], after[2:])[path_of]
    result: FloatArray = np.zeros(len(own))
    is_possible = own > -np.inf
    result[is_possible] = numerics.exp(own[is_possible] - np.logaddexp(own, beside)[is_possible])
    return result
