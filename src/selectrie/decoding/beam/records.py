"""The specification and the outcome of a beam search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from selectrie.core.types import FloatArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.healed_bytes import Healed
from selectrie.errors import OptionError
from selectrie.options import DEFAULT_BEAM, BeamSearchParams, one_of


@dataclass(frozen=True, slots=True, eq=False)
class BeamSpec:
    """The specification of a beam search, checked on construction.

    Attributes:
        beam: The options. This task ignores `beam.exact`, and uses the field
            `terminator` below in place of `beam.terminator`.
        terminator: As in `AutomatonSpec`.
        healed: Bytes of the prompt that every path spells first. Every score is
            conditional on them.
        canonical: Returns whether the tokens of a finished path are the tokenizer's own
            encoding of their text. None means no check.
        may_be_adjacent: Returns whether two tokens may be neighbours in the tokenizer's
            encoding of any text.
        may_start: Returns whether the tokenizer's encoding of some text may begin with
            these tokens. It may err, so paths that it refuses are not followed and
            count in `BeamOutcome.lost`.
        tolerance: Nats a row by which layout may have moved a log-probability.
        reads_best: Whether rows may tell only the most probable ones of the tokens that
            may follow. The others have bounds, and are not followed.
    """

    vocabulary: Vocabulary = field(repr=False)
    beam: BeamSearchParams = DEFAULT_BEAM
    terminator: str = "eog"
    healed: bytes = b""
    canonical: Callable[[Sequence[int]], bool] | None = None
    may_be_adjacent: Callable[[int, int], bool] | None = None
    may_start: Callable[[Sequence[int]], bool] | None = None
    tolerance: float = 0.0
    reads_best: bool = False

    def __post_init__(self) -> None:
        one_of("terminator", self.terminator, ("none", "eog", "unless-continued"))
        if self.terminator == "eog" and not len(self.vocabulary.eog):
            raise OptionError("terminator", "eog", "'none': this model has no end-of-generation token")
        if not 0 <= self.tolerance < np.inf:
            raise OptionError("tolerance", self.tolerance, "a finite number of nats, at least 0")

    @property
    def healing(self) -> Healed:
        """Return the record that tells which tokens spell only healed bytes."""
        return Healed(len(self.healed), self.vocabulary.lengths)


@dataclass(frozen=True, slots=True)
class PathView:
    """A path of the beam, as it is passed to the callback `BeamSearchParams.expand`.

    Attributes:
        tokens: The path's tokens, including those that spell healed bytes.
        data: The path's bytes, without healed ones.
        logp: Sum of the tokens' log-probabilities.
        can_end: Whether the path is already a text of the grammar.
    """

    tokens: tuple[int, ...]
    data: bytes
    logp: float
    can_end: bool


@dataclass(frozen=True, slots=True, eq=False)
class BeamPath:
    """One text that a beam search found.

    Attributes:
        tokens: int32[n], its best path, including tokens that spell healed bytes.
        token_logp: float64[n], the log-probability of each token.
        data: Its bytes, without healed ones.
        logp_end: The terminator's part, 0 if incomplete.
        logp: Log-probability of the text, conditional on the healed bytes. Where joints
            are added up, it covers all paths of the text.
        logp_path: Log-probability of this path alone.
        score: The score by which texts are ordered.
        n_paths: How many of its paths were found.
        complete: Whether it is a text that the automaton accepts.
        group: The group that found it (0 for that of greedy decoding).
    """

    tokens: IntArray
    token_logp: FloatArray
    data: bytes
    logp_end: float
    logp: float
    logp_path: float
    score: float
    n_paths: int
    complete: bool
    group: int


@dataclass(frozen=True, slots=True, eq=False)
class BeamOutcome:
    """The texts that a beam search found, and how it went.

    Attributes:
        finished: The n best texts, best first.
        broken: The n best of the paths that were left unfinished, best first.
        greedy: The text of masked greedy decoding. None if it does not end.
        agrees_with_greedy: Whether greedy decoding writes the winner; None if no text
            was finished, or if rows or the budget did not tell how greedy decoding goes
            on.
        stopped: "done" (no remaining path could be among the n best), "length" (as far
            as `max_tokens` goes), "budget" or "deadline".
        lost: The best score that a dropped or remaining path could have reached, -inf
            for none.
        unread: That of a path whose last token was not read; it is among these.
        n_merged: Paths that were the second or a further one of their text.
        n_dead_ends: Paths that could neither end nor go on.
        n_refused: Paths that the automaton accepts and that are not the tokenizer's
            encoding of their text.
        n_evaluated: Rows read.
        n_repeated: Nodes evaluated again.
        n_steps: Steps of the longest path.
        close_steps: Steps in which the tolerance, or a token that was not read, could
            have changed what was kept.
        log_heal, heal_gap: From `HealedMass.log_heal`; already taken into account.
    """

    finished: tuple[BeamPath, ...]
    broken: tuple[BeamPath, ...]
    greedy: BeamPath | None
    agrees_with_greedy: bool | None
    stopped: str
    lost: float
    unread: float
    n_merged: int
    n_dead_ends: int
    n_refused: int
    n_evaluated: int
    n_repeated: int
    n_steps: int
    close_steps: tuple[int, ...]
    log_heal: float
    heal_gap: float
