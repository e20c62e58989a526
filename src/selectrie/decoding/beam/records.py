"""What a beam search is given and what it found, as records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from selectrie.core.types import FloatArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.healed_bytes import Healed
from selectrie.errors import OptionError
from selectrie.options import DEFAULT_BEAM, Beam, one_of


@dataclass(frozen=True, slots=True, eq=False)
class BeamSpec:
    """What a beam search goes by. Checked when it is made.

    beam: the options; `exact` is not of this task, and `terminator` is read from here: "none" or "eog". healed: bytes of the
    prompt that the automaton spells first, which every score is conditional on. canonical: of the tokens of a finished path:
    are they what the tokenizer makes of their text? None: nobody asks. viable: may two tokens be neighbours in what it makes
    of any text? begins: may what it makes of some text begin with these tokens, as far as one can tell? What it refuses is
    not followed, and counts as lost. tolerance: nats a row by which layout may have moved a log-probability.
    """

    vocabulary: Vocabulary = field(repr=False)
    beam: Beam = DEFAULT_BEAM
    terminator: str = "eog"
    healed: bytes = b""
    canonical: Callable[[Sequence[int]], bool] | None = None
    viable: Callable[[int, int], bool] | None = None
    begins: Callable[[Sequence[int]], bool] | None = None
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        one_of("terminator", self.terminator, ("none", "eog"))
        if self.terminator == "eog" and not len(self.vocabulary.eog):
            raise OptionError("terminator", "eog", "'none': this model has no end-of-generation token")
        if not 0 <= self.tolerance < np.inf:
            raise OptionError("tolerance", self.tolerance, "nats, not below 0")

    @property
    def healing(self) -> Healed:
        """Which tokens spell healed bytes alone."""
        return Healed(len(self.healed), self.vocabulary.lengths)


@dataclass(frozen=True, slots=True)
class PathView:
    """A kept path, as `Beam.expand` sees it.

    tokens: of the path, those that spell healed bytes included. data: its bytes, those taken off. logp: sum over the tokens.
    can_end: it is a text of the grammar as it stands.
    """

    tokens: tuple[int, ...]
    data: bytes
    logp: float
    can_end: bool


@dataclass(frozen=True, slots=True, eq=False)
class BeamPath:
    """One text as a beam search found it.

    tokens: int32[n], its most probable path, the tokens that spell healed bytes included. token_logp: float64[n]. data: its
    bytes, healed ones taken off. logp_end: the terminator's part, 0 where incomplete. logp: of the text, healed bytes taken
    off; all its paths together where they are added up. logp_path: of this path alone. score: by which it stands where it
    does. n_paths: found of it. complete: it is a text of the grammar. group: that found it (0 for greedy decoding's).
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
    """What a beam search found, and how it went.

    finished: the n best texts, best first. broken: paths that were broken off, the n best of them, best first.
    greedy: what masked greedy decoding writes; None where it does not end, or was given up because it could no more be
    the winner. agrees_with_greedy: it writes the winner; None where nothing was finished. stopped: "done" (nothing left could
    be among the n best), "length" (as far as `max_tokens` goes), "budget" or "deadline". lost: the best score that anything
    dropped or left could have reached, -inf for nothing. n_merged: paths that were a second or further one of their text.
    n_dead_ends: paths that could neither end nor go on. n_refused: that the tokenizer would not make. n_evaluated: rows
    read. n_repeated: nodes evaluated again. n_steps: of the longest path. close_steps: steps in which the tolerance could have changed
    what was kept. log_heal, heal_gap: of the healed bytes (`HealedMass.log_heal`), taken off already.
    """

    finished: tuple[BeamPath, ...]
    broken: tuple[BeamPath, ...]
    greedy: BeamPath | None
    agrees_with_greedy: bool | None
    stopped: str
    lost: float
    n_merged: int
    n_dead_ends: int
    n_refused: int
    n_evaluated: int
    n_repeated: int
    n_steps: int
    close_steps: tuple[int, ...]
    log_heal: float
    heal_gap: float
