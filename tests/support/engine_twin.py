"""The slow twin of a whole engine: plain llama_cpp tokens, each choice decoded alone, probabilities by their definition."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from pathlib import Path

import llama_cpp
import numpy as np

from tests.support.llama_twin import SinglePath

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """A prompt and its choices as tokens. healed: bytes of the prompt behind the context. own: the prompt's own tokens."""

    context: Tokens
    paths: list[Tokens]
    healed: bytes
    own: Tokens


class PlainEngine:
    """Scores by definition, with llama_cpp's tokenizer and one decode a path on an empty context of one sequence."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = SinglePath(path)
        self._vocab = llama_cpp.llama_model_get_vocab(self.rows._model)
        self.n_vocabulary = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self.pieces = [self._piece(token) for token in range(self.n_vocabulary)]
        self.eog = [t for t in range(self.n_vocabulary) if llama_cpp.llama_vocab_is_eog(self._vocab, t)]
        has_bos = llama_cpp.llama_vocab_get_add_bos(self._vocab)
        self.start = (llama_cpp.llama_vocab_bos if has_bos else llama_cpp.llama_vocab_eos)(self._vocab)

    def close(self) -> None:
        """Free everything."""
        self.rows.close()

    def tokens(self, text: str) -> Tokens:
        """A whole text, with what the model puts before it."""
        data = text.encode()
        buffer = (llama_cpp.llama_token * (len(data) + 8))()
        n = llama_cpp.llama_tokenize(self._vocab, data, len(data), buffer, len(buffer), True, False)
        return tuple(buffer[:n])

    def cut(self, prompt: str, choices: Sequence[str], following: str = "") -> Cut:
        """Joint encodings, cut behind the tokens that the prompt and all of them share."""
        own = self.tokens(prompt)
        whole = [self.tokens(prompt + choice + following) for choice in choices]
        if following:
            whole = self._until_common_boundary(whole, len(following.encode()))
        n = 0
        while n < len(own) and all(path[n : n + 1] == own[n : n + 1] for path in whole):
            n += 1
        return Cut(own[:n], [path[n:] for path in whole], b"".join(self.pieces[t] for t in own[n:]), own)

    def _until_common_boundary(self, whole: list[Tokens], n_following: int) -> list[Tokens]:
        """Up to the fewest following bytes (at least one) at which every encoding has a boundary."""
        left = [
            [sum(len(self.pieces[t]) for t in path[i + 1 :]) for i in range(len(path))] for path in whole
        ]  # bytes behind each token
        cut = max(rest for rest in range(n_following) if all(rest in ends for ends in left))
        return [path[: ends.index(cut) + 1] for path, ends in zip(whole, left, strict=True)]

    def joint(self, context: Tokens, path: Tokens) -> float:
        """Sum of the tokens' log-probabilities."""
        self.rows.row((*context, *path[:-1]))
        return fsum(self.rows.row((*context, *path[:i]))[path[i]] for i in range(len(path)))

    def ending(self, context: Tokens, path: Tokens, paths: Sequence[Tokens], terminator: str) -> float:
        """Log-probability that a choice ends behind its path."""
        if terminator == "eog":
            row = self.rows.row((*context, *path))
            return log(fsum(exp(row[token]) for token in self.eog))
        if terminator == "unless-continued":
            longer = [p for p in set(paths) if len(p) > len(path) and p[: len(path)] == path]
            nearest = [p for p in longer if not any(q != p and p[: len(q)] == q for q in longer)]
            return log(1 - fsum(exp(self.joint((*context, *path), p[len(path) :])) for p in nearest))
        return 0.0

    def healed(self, context: Tokens, left: bytes, paths: Sequence[Tokens] | None) -> float:
        """Probability that text after the context begins with `left`; paths: split over tokens only as these are."""
        row = self.rows.row(context)
        total = [exp(row[t]) for t in range(self.n_vocabulary) if self.pieces[t].startswith(left)]
        for token in range(self.n_vocabulary):
            piece = self.pieces[token]
            if not piece or piece == left or not left.startswith(piece):
                continue
            below = None if paths is None else [path[1:] for path in paths if path[:1] == (token,)]
            if below is None or below:
                total.append(exp(row[token]) * self.healed((*context, token), left[len(piece) :], below))
        return fsum(total)

    def scores(self, cut: Cut, terminator: str = "none", rule: str = "joint") -> tuple[np.ndarray, np.ndarray]:
        """Raw joint and score by the rule of every choice."""
        taken_off = log(self.healed(cut.context, cut.healed, cut.paths)) if cut.healed else 0.0

        def whole(context: Tokens, path: Tokens) -> float:
            return self.joint(context, path) + self.ending(context, path, cut.paths, terminator)

        joint = np.array([whole(cut.context, path) for path in cut.paths]) - taken_off
        if rule == "token_mean":
            return joint, joint / [len(path) for path in cut.paths]
        if rule == "pmi":
            return joint, joint - [whole((self.start,), path) for path in cut.paths]
        return joint, joint

    def _piece(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        n = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, False)
        return buffer.raw[:n]
