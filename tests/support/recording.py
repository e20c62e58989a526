"""A model that remembers every row it gives, by token path: how far do layouts move the same row?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from selectrie.core.types import ROOT

Path = tuple[int, ...]

LIKELY, ANY = 2, 2
"""Tokens of a row that are compared: the most probable ones, and some at random."""


@dataclass
class Record:
    """What was seen. tokens: of each path's row, those that are compared. low, high: their log-probabilities."""

    tokens: dict[Path, np.ndarray] = field(default_factory=dict)
    low: dict[Path, np.ndarray] = field(default_factory=dict)
    high: dict[Path, np.ndarray] = field(default_factory=dict)
    times: dict[Path, int] = field(default_factory=dict)

    def add(self, path: Path, logits: np.ndarray) -> None:
        """One more row after a path."""
        if path not in self.tokens:
            rng = np.random.default_rng(path)
            self.tokens[path] = np.concatenate([np.argsort(-logits)[:LIKELY], rng.integers(0, len(logits), ANY)])
            self.low[path], self.high[path], self.times[path] = np.inf, -np.inf, 0
        peak = logits.max()
        row = logits.astype(np.float64)
        self.add_logp(path, row - peak - np.log(np.exp(row - peak).sum()))

    def add_logp(self, path: Path, row: np.ndarray) -> None:
        """One more row after a path that is known, as float64[V] log-probabilities."""
        logp = row[self.tokens[path]]
        self.low[path] = np.minimum(self.low[path], logp)
        self.high[path] = np.maximum(self.high[path], logp)
        self.times[path] += 1

    def moves(self) -> np.ndarray:
        """The largest move of each path's row that was evaluated at least twice."""
        return np.array([(self.high[p] - self.low[p]).max() for p, n in self.times.items() if n > 1])


class Recording:
    """A model as it is, but for what it remembers; its `new_context` models remember in the same place."""

    def __init__(self, model: Any, record: Record | None = None) -> None:
        self.model = model
        self.record = Record() if record is None else record
        self._paths: dict[int, Path] = {ROOT: ()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def extend(self, parents, tokens, wanted, keep):
        """As the model, and every wanted row is remembered."""
        extension = self.model.extend(parents, tokens, wanted, keep)
        paths: list[Path] = []
        for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True):
            paths.append((*(paths[~parent] if parent < 0 else self._paths[parent]), token))
        self._paths.update(zip(extension.nodes.tolist(), paths, strict=True))
        for i, place in enumerate(np.flatnonzero(wanted).tolist()):
            self.record.add(paths[place], extension.rows.logits(i))
        return extension

    def new_context(self, *args: Any, **kwargs: Any) -> Recording:
        """A model that remembers beside this one."""
        return Recording(self.model.new_context(*args, **kwargs), self.record)
