"""Scores a text over all token sequences that spell it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.model import ModelDescription
from selectrie.core.types import IntArray
from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.decoding.spelling.goals import CloseBounds, share
from selectrie.decoding.spelling.lattice import ByteEvent
from selectrie.decoding.spelling.search import SpellingOutcome, SpellingSearch, SpellingSpec
from selectrie.engine.requests.select import PreparedScore, prepare_score
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.requests.session import Session
from selectrie.engine.requests.unproved import budget_ended
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef, TextError, words
from selectrie.options import MAX_SPELLING_ROWS, SPELLING_ROWS, SpellingParams
from selectrie.results import Spellings, TextScore
from selectrie.tokenization.prompts import Prompt
from selectrie.tokenization.records import EncodedChoices

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
        handle = session.group.begin(SpellingSearch(self.scored.select.encoded.context, self.spec), subject=self)
        spellings = _spellings(self.spec, handle.result())
        return replace(score, spellings=spellings, cost=score.cost + handle.cost)


def prepare(
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
