"""Turns the final state of a beam search into `BeamPath` records."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from selectrie.decoding.beam.expansion import BeamExpander
from selectrie.decoding.beam.hypotheses import Finished, FinishedHypotheses, Key
from selectrie.decoding.beam.records import BeamPath, BeamSpec


@dataclass(frozen=True, slots=True, eq=False)
class BeamResults:
    """Makes the `BeamPath` records of a beam search that has ended.

    Attributes:
        _finished: All finished texts.
        _log_heal: Log-probability of the healed bytes, subtracted from every sum.
    """

    _spec: BeamSpec
    _grown: BeamExpander
    _finished: FinishedHypotheses
    _log_heal: float

    def _joint(self, node: int) -> float:
        return self._grown.tree.logp[node] - self._log_heal

    def best_texts(self, pools: list[FinishedHypotheses]) -> list[tuple[Finished, int]]:
        """Return the n best texts, each with the number of the group that found it.

        `pools` holds the finished texts of each group. With several groups, the n texts
        are each group's best, then each group's second, and so on.
        """
        n = self._spec.beam.n
        ranked = [pool.ranked() for pool in pools]
        group_of: dict[Key, int] = {}
        for rank in range(max(map(len, ranked), default=0)):
            for number, texts in enumerate(ranked):
                if rank < len(texts) and len(group_of) < n:
                    group_of.setdefault(texts[rank].key, number)
        return [(text, group_of[text.key]) for text in self._finished.ranked() if text.key in group_of]

    def path_of(self, text: Finished, group: int) -> BeamPath:
        joint = text.paths[text.best]
        alone = self.path_alone(text.best, joint - self._joint(text.best), complete=True)
        return replace(alone, logp=text.logp, logp_path=joint, score=text.score, n_paths=len(text.paths), group=group)

    def path_alone(self, node: int, end: float, *, complete: bool) -> BeamPath:
        """Return the `BeamPath` of `node` alone, without other paths of its text.

        `end` is the terminator's log-probability.
        """
        path = self._grown.tree.path(node)
        joint = self._joint(node) + end
        return BeamPath(
            tokens=np.array([self._grown.tree.token[step] for step in path], dtype=np.int32),
            token_logp=np.array([self._grown.tree.edge[step] for step in path], dtype=np.float64),
            data=self._grown.data(node),
            logp_end=end,
            logp=joint,
            logp_path=joint,
            score=self._finished.score(joint, len(path)),
            n_paths=1,
            complete=complete,
            group=0,
        )

    def broken(self, broken: set[int]) -> tuple[BeamPath, ...]:
        """Return the n best of the unfinished paths `broken`, one for each text."""
        nodes = [node for node in broken if self._grown.tree.logp[node] > -np.inf]
        paths = [(self._grown.key(node), self.path_alone(node, 0.0, complete=False)) for node in nodes]
        paths.sort(key=lambda entry: (-entry[1].score, entry[1].tokens.tolist()))
        distinct: dict[Key, BeamPath] = {}
        for key, path in paths:
            distinct.setdefault(key, path)
        return tuple(distinct.values())[: self._spec.beam.n]
