"""Completions of what was told of a model's rows, and what is true in each of them.

An answer rests on the rows that were read, or on the numbers that a server told of them. Everything else may be
different: a completion keeps what was told and draws the rest anew. What the answer claims must hold in all of them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from selectrie.testing import PathsOf, make_vocabulary
from selectrie.testing.fakes import WIDE, FakeModel, hashed_logits
from selectrie.testing.oracles import naive_spelled, probabilities

PIECES = ["".join(letters) for n in (1, 2, 3) for letters in itertools.product("ab", repeat=n)] + [
    "c",
    "ac",
    "ca",
    "cab",
]
VOCABULARY = make_vocabulary([piece.encode() for piece in PIECES])
"""Nearly every prompt is healed, and the beginning of the healed bytes is an open token."""
N_TOKENS = len(VOCABULARY.pieces)


@dataclass(frozen=True)
class RowsOf:
    """Rows hashed from a seed and the path; of some, several tokens have probability 0."""

    seed: int
    sharpness: float
    has_zeros: bool = False
    likely: tuple[int, ...] = ()
    """Tokens of which most rows give one nearly everything."""

    def __call__(self, path):
        row = hashed_logits(self.seed, path, N_TOKENS, self.sharpness)
        rng = np.random.default_rng([self.seed, *path])
        if self.has_zeros and rng.random() < 0.7:
            row[rng.random(N_TOKENS) < rng.choice([0.2, 0.5, 0.9])] = -np.inf
            row[rng.integers(N_TOKENS)] = 0.0
        if self.likely and rng.random() < 0.6:
            row[rng.choice(self.likely)] = max(row.max(), 0.0) + 8
        return row


class Model(FakeModel):
    """A model of such rows; `told` has those that were read, by their path."""

    def __init__(self, row_of):
        self.told = {}

        def read(path):
            self.told[path] = row_of(path)
            return self.told[path]

        super().__init__(read, vocabulary=VOCABULARY, limits=WIDE, name="told")

    def completed(self, path, others):
        return self.told[path] if path in self.told else others(path)


class Server(PathsOf):
    """The same model as a server, whose answers tell single tokens; `told` has these, and a bound on the others."""

    def __init__(self, model, row_of):
        super().__init__(model, hides_rest=True)
        self.told, self._row_of = {}, row_of

    def _row_bounds(self, rows, query):
        answer, path = super()._row_bounds(rows, query), tuple(query.path.tolist())
        ids, most = self.told.get(path, (set(), math.inf))
        self.told[path] = ids | set(answer.ids.tolist()), min(most, answer.rest_max)
        return answer

    def completed(self, path, others):
        """Move probability between tokens that were not told, below the bound on each."""
        if path not in self.told:
            return others(path)
        told, most = self.told[path]
        row = self._row_of(path).astype(np.float64)
        p = np.exp(row - row.max())
        p /= p.sum()
        left = [token for token in range(N_TOKENS) if token not in told]
        rng = np.random.default_rng([others.seed, *path])
        moved = rng.dirichlet(np.full(len(left), rng.choice([0.05, 1.0]))) * p[left].sum() if left else p[left]
        p[left] = moved if moved.max(initial=0.0) <= math.exp(min(most, 0.0)) else rng.permutation(p[left])
        with np.errstate(divide="ignore"):
            return np.log(p)


def completion(asked, others):
    """A model that agrees with all that was told of `asked`, with rows of `others` elsewhere."""
    return FakeModel(lambda path: asked.completed(path, others), vocabulary=VOCABULARY, limits=WIDE, name="completion")


class Truth:
    """The exact numbers of a prepared request in one model, by enumeration.

    Attributes:
        log_heal: Log-probability of the healed bytes.
        logp, scores: float64[C].
        coverage: The probability of all paths together.
    """

    def __init__(self, model, prepared):
        self._rows, self._model, encoded = {}, model, prepared.encoded
        context = tuple(encoded.context.tolist())
        self.log_heal = log(naive_spelled(model, context, encoded.healed, ends=False)) if encoded.healed else 0.0
        paths = [tuple(encoded.tokens[i:j].tolist()) for i, j in itertools.pairwise(encoded.offsets)]
        joints, whole = self._joints(prepared, context, paths)
        self.logp = joints - self.log_heal if self.log_heal > -math.inf else np.full(len(paths), -math.inf)
        self.coverage = (
            sum(math.exp(one - self.log_heal) for one in whole.values()) if self.log_heal > -math.inf else 0.0
        )
        scores = self.logp / prepared.lengths.for_rule(prepared.rule.name)
        if prepared.premises:
            baselines = [self._joints(prepared, tuple(one.tolist()), paths)[0] for one in prepared.premises]
            scores = np.where(np.isneginf(scores), -math.inf, scores - np.maximum(np.mean(baselines, axis=0), -1e300))
        prior = 0.0 if prepared.log_prior is None else prepared.log_prior
        self.scores = np.where(np.isneginf(scores) | np.isneginf(prior), -math.inf, scores + prior)

    def _p(self, path):
        if path not in self._rows:
            self._rows[path] = probabilities(self._model, path)
        return self._rows[path]

    def _joints(self, prepared, context, paths):
        """The joint of each choice, and of each whole path by its tokens."""
        prefixes = {path[:n] for path in paths for n in range(len(path) + 1)}

        def stops(node):
            p, below = self._p(context + node), [t for t in range(N_TOKENS) if (*node, t) in prefixes]
            if not below:
                return 1.0
            others = math.fsum(p[t] for t in range(N_TOKENS) if t not in below)
            return others + sum(p[t] * stops((*node, t)) for t in below if (*node, t) not in paths)

        joints, whole = [], {}
        for path, first in zip(paths, prepared.encoded.first_scored.tolist(), strict=True):
            edges = [log(self._p(context + path[:n])[token]) for n, token in enumerate(path)]
            end = 0.0
            if prepared.terminator == "eog":
                end = log(sum(self._p(context + path)[token] for token in VOCABULARY.eog.tolist()))
            elif prepared.terminator == "unless-continued":
                end = log(stops(path))
            joints.append(sum(edges[first:]) + end)
            whole[path] = sum(edges) + end
        return np.array(joints), whole


def log(p):
    return math.log(p) if p > 0 else -math.inf
