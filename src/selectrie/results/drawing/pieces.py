"""Cuts all that a model would say next into pieces: whole texts, and step by step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from selectrie.core.types import ROOT, BoolArray, FloatArray
from selectrie.results.beam import BeamResult
from selectrie.results.drawing.inputs import SelectionLike

MAX_CHOICES = 200
"""Maximum number of choices that have a piece each."""
_LEAST = 0.004
"""Width below which what leaves the trie at a node is part of its parent's piece."""
_LEAST_OF_STEP = 1e-5
"""The same at the first step where choices differ, after which texts begin alike."""
_OVERLAPPING = ("none", "text")
"""Terminators with which a choice that continues another one is a part of it."""
_KNOWN = 1e-3
"""Maximum distance of the bounds on a probability that has no hatched part."""
_ROUNDING = 1e-9
_N_EXAMPLES = 2
_WORD = re.compile(rb"[^\W_]|[\x80-\xff]")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of everything that the model would say next.

    Attributes:
        kind: "choice"; "elsewhere" (texts that leave the trie); "more" (choices without
            a piece each); "open" (not evaluated).
        width: Its share of the whole.
        low, high: Bounds on its probability.
        choice: Index of the choice, or None.
        after: Bytes of the text after which "elsewhere" leaves the trie.
        inside: Choices that continue this one.
        examples: Texts of "elsewhere" with their probabilities.
        n: Number of choices in it.
    """

    kind: str
    width: float
    low: float
    high: float
    choice: int | None = None
    after: bytes = b""
    inside: tuple[Piece, ...] = ()
    examples: tuple[tuple[str, float], ...] = ()
    n: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """What is stretched to full width at the first step where choices differ.

    Attributes:
        text: Bytes of the text to the end of the step.
        whole: Probability of all texts that begin with it.
        pieces: Its pieces of whole texts.
        steps: Its choices with their step-by-step probabilities; NaN if unknown.
    """

    text: bytes
    whole: float
    pieces: tuple[Piece, ...]
    steps: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Strip:
    """Everything that the model would say next, cut twice.

    Attributes:
        slices: The first steps of choices, the most probable one first.
        rest: The pieces of whole texts that belong to none of them.
        is_bounded: Whether probabilities of choices have bounds that differ.
    """

    slices: tuple[Slice, ...]
    rest: tuple[Piece, ...]
    is_bounded: bool

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Return the pieces of whole texts, from left to right."""
        return (*(piece for one in self.slices for piece in one.pieces), *self.rest)

    @property
    def steps(self) -> tuple[tuple[int, float], ...]:
        """Return the choices with their step-by-step probabilities, from the left."""
        return tuple(step for one in self.slices for step in one.steps)


def cut_strip(selection: SelectionLike, examples: BeamResult | None = None) -> Strip | None:
    """Return everything that the model would say next in pieces.

    The result is None if `why_no_strip` has a reason.

    Args:
        selection: The scored choices.
        examples: Probable texts after the same prompt, or None.
    """
    return None if why_no_strip(selection) else _Cutter(selection).cut(examples)


def why_no_strip(selection: SelectionLike) -> str:
    """Return why a selection cannot be cut into pieces; "" if it can."""
    if selection.spellings is not None:
        return "with tokenizations='all', a choice is a sum over many paths of tokens"
    if selection.rule != "joint":
        return f"scores of rule {selection.rule!r} are no shares"
    if not math.isfinite(selection.log_heal):
        return "the probability of the healed bytes of the prompt is not known"
    return ""


def choices_in(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the pieces that are choices, each before those inside it."""
    for piece in pieces:
        if piece.kind == "choice":
            yield piece
            yield from choices_in(piece.inside)


@dataclass(slots=True)
class _Node:
    """The pieces at and below a node, and what leaves the trie there."""

    pieces: list[Piece] = field(default_factory=list)
    leaving: float = 0.0


class _Cutter:
    """Cuts one selection. Arrays are indexed by the nodes of the trie that is drawn."""

    def __init__(self, selection: SelectionLike) -> None:
        choices = selection.choices
        self._selection, self._terminator = selection, selection.terminator
        self._first = choices.first
        with np.errstate(over="ignore"):
            self._low = np.exp(np.minimum(choices.logp_lower, 0.0))
            self._high = np.exp(np.minimum(np.nan_to_num(choices.logp_upper, nan=0.0), 0.0))
        self._finished = choices.finished
        order = np.argsort(-np.where(self._finished, self._high, -1.0)[self._first], kind="stable")
        kept = order[:MAX_CHOICES]
        is_kept = np.zeros(len(choices.trie), dtype=np.bool_)
        is_kept[choices.trie.path_node[kept]] = True
        self.trie, self._old = choices.trie.restrict(is_kept)
        edge = choices.edge_logp.copy()
        edge[ROOT] = 0.0
        with np.errstate(invalid="ignore"):
            self._mass = np.exp(choices.trie.accumulate(edge)[self._old] - selection.log_heal)
        self._texts = [b""] * len(self.trie)
        for node in range(1, len(self.trie)):
            piece = choices.pieces[int(self.trie.token[node])]
            self._texts[node] = self._texts[int(self.trie.parent[node])] + piece
        self._open = 0.0
        is_kept[self._old] = True  # with it the choices on the way to those
        self._more, self._n_more = self._sum_others(is_kept)

    def cut(self, examples: BeamResult | None) -> Strip:
        """Return the strip."""
        branch = self._find_branch()
        nodes = self._cut_nodes(branch)
        groups: list[tuple[bytes, list[Piece]]] = []
        if stops := [piece for piece in nodes[branch].pieces if piece.kind == "choice"]:
            groups.append((self._texts[branch], stops))
        groups += [(self._texts[one], nodes[one].pieces) for one in self._order_children(branch) if nodes[one].pieces]
        return self._fit(groups, [one for one in nodes[ROOT].pieces if one.kind != "choice"], examples)

    def _sum_others(self, is_kept: BoolArray) -> tuple[FloatArray, int]:
        """Return the mass of choices without a piece below each node, and their number.

        Of choices that continue one another, only the shortest counts if they overlap.
        """
        trie = self._selection.choices.trie
        is_other = self._finished[self._first] & ~is_kept[trie.path_node]
        if not is_other.any():
            return np.zeros(len(self.trie)), 0
        p = np.where(is_other, self._high[self._first], 0.0)
        if self._terminator in _OVERLAPPING:
            ends = np.zeros(len(trie))
            ends[trie.path_node] = 1.0
            p[trie.accumulate(ends)[trie.path_node] > 1] = 0.0
        sums = np.concatenate(([0.0], np.cumsum(p)))
        below = sums[trie.first_path + trie.n_paths] - sums[trie.first_path]
        return np.asarray(below[self._old]), int(is_other.sum())

    def _find_branch(self) -> int:
        """Return the first node where choices differ."""
        node = ROOT
        while self.trie.end_path[node] < 0 and len(children := self.trie.children(node)) == 1:
            node = int(children[0])
        return node

    def _order_children(self, node: int) -> list[int]:
        """Return the children of a node, the most probable first."""
        mass = np.nan_to_num(self._mass)
        return sorted(self.trie.children(node).tolist(), key=lambda child: (-mass[child], child))

    def _cut_nodes(self, branch: int) -> list[_Node]:
        """Return the pieces of each node; those of `branch` exclude its children's."""
        nodes = [_Node() for _ in self._texts]
        owned = self._find_owned()
        for at in range(len(nodes) - 1, -1, -1):
            node = nodes[at]
            children = self._order_children(at)
            own = self._cut_own(at)
            inside = [] if at == branch else [piece for child in children for piece in nodes[child].pieces]
            if own is not None and own.kind == "choice" and self._terminator in _OVERLAPPING:
                below = [piece for child in children for piece in nodes[child].pieces]
                node.pieces = [replace(own, inside=tuple(one for one in below if one.kind == "choice"))]
                for child in children:
                    nodes[child] = _Node()
                continue
            node.pieces = [own, *inside] if own is not None and own.kind == "choice" else inside
            node.leaving += self._leave(at, children, 0.0 if own is None else own.high, is_owned=owned[at])
            if node.leaving <= 0 or at == ROOT:
                continue
            above = int(self.trie.parent[at])
            if node.leaving < (_LEAST_OF_STEP if branch in (at, above) else _LEAST):
                nodes[above].leaving += node.leaving
            else:
                after = self._texts[at][len(self._selection.healed) :]
                p = node.leaving
                node.pieces.append(Piece("elsewhere", p, p, p, after=after))
        return nodes

    def _find_owned(self) -> BoolArray:
        """Return bool[N], nodes after which every other text belongs to a choice."""
        ends = np.zeros(len(self.trie))
        if self._terminator == "unless-continued":
            ends[self.trie.path_node] = 1.0
        return np.asarray(self.trie.accumulate(ends) > 0)

    def _cut_own(self, at: int) -> Piece | None:
        """Return the choice that ends at a node, or None."""
        end = int(self._selection.choices.trie.end_path[self._old[at]])
        if end < 0:
            return None
        choice = int(self._first[end])
        low, high = float(self._low[choice]), float(self._high[choice])
        if not self._finished[choice]:
            return Piece("open", 0.0, 0.0, 0.0)
        return Piece("choice", high, low, high, choice, n=1)

    def _leave(self, at: int, children: Sequence[int], own: float, *, is_owned: bool) -> float:
        """Return the mass that leaves the trie right after a node.

        Where a row was not read, the mass is added to what is open. Before the end of
        the healed bytes nothing is known to leave.
        """
        mass, is_leaf = float(self._mass[at]), not len(children)
        if is_owned or math.isnan(mass) or len(self._texts[at]) < len(self._selection.healed):
            return 0.0
        if is_leaf and own == 0.0 and self.trie.end_path[at] >= 0:
            end = int(self._selection.choices.trie.end_path[self._old[at]])
            self._open += 0.0 if self._finished[self._first[end]] else mass
            return 0.0 if not self._finished[self._first[end]] else mass
        known = [float(self._mass[child]) for child in children if not math.isnan(self._mass[child])]
        if children and not known:
            self._open += max(0.0, mass - own)
            return 0.0
        more = self._more[at] - sum(self._more[child] for child in children)
        return max(0.0, mass - own - sum(known) - float(more))

    def _fit(self, groups: list[tuple[bytes, list[Piece]]], rest: list[Piece], examples: BeamResult | None) -> Strip:
        """Return the strip of pieces whose widths sum to 1.

        Args:
            groups: The text of each slice, with its pieces.
            rest: The other pieces.
            examples: Probable texts, or None.
        """
        choices = self._selection.choices
        everything = [*(one for _, pieces in groups for one in pieces), *rest]
        tops = [one for one in everything if one.kind == "choice"]
        low, high = sum(one.low for one in tops), sum(one.high for one in tops)
        is_bounded = any(one.high - one.low > _KNOWN for one in tops)
        shrink = max(0.0, 1 - low) / (high - low) if high > 1 and high > low else 1.0
        more = min(float(self._more[ROOT]), max(0.0, 1 - low))
        left = max(0.0, 1 - low - shrink * (high - low) - more)
        n_open = int((~self._finished & choices.distinct).sum())
        may_be_open = n_open > 0 or self._selection.grammar is not None
        not_read = min(max(self._open, self._selection.certificate.open_mass if may_be_open else 0.0), left)
        left -= not_read
        named = sum(one.width for one in everything if one.kind == "elsewhere")
        scale = 0.0 if is_bounded or not named else min(1.0, left / named)

        def fit(piece: Piece) -> Piece:
            if piece.kind == "choice":
                width = piece.low + shrink * (piece.high - piece.low)
                return replace(piece, width=width, inside=tuple(map(fit, piece.inside)))
            p = piece.width * scale
            return replace(piece, width=p, low=p, high=p)

        slices = [
            (text, [one for one in map(fit, pieces) if one.width or one.choice is not None]) for text, pieces in groups
        ]
        others = [one for one in map(fit, rest) if one.width]
        if (unnamed := left - scale * named) > _ROUNDING:
            bounds = (left, max(left, 1 - low - more)) if is_bounded else (unnamed, unnamed)
            others.append(Piece("elsewhere", unnamed, *bounds))
        if self._n_more:
            others.append(Piece("more", more, more, more, n=self._n_more))
        if not_read > _ROUNDING:
            others.append(Piece("open", not_read, 0.0, not_read, n=n_open))
        afters = [one.after for one in everything if one.kind == "elsewhere"]
        texts = [self._texts[int(node)][len(self._selection.healed) :] for node in self.trie.path_node]
        found = _Examples(examples, texts, afters, has_longer=self._terminator == "eog")
        made = tuple(self._make_slice(text, pieces, found) for text, pieces in slices)
        return Strip(made, tuple(map(found.add_to, others)), is_bounded)

    def _make_slice(self, text: bytes, pieces: list[Piece], examples: _Examples) -> Slice:
        """Return the slice of a first step, with its choices step by step."""
        local = self._selection.choices.logp_local
        steps = tuple((one.choice, math.exp(local[one.choice])) for one in choices_in(pieces) if one.choice is not None)
        whole = sum(one.width for one in pieces)
        return Slice(text[len(self._selection.healed) :], whole, tuple(map(examples.add_to, pieces)), steps)


class _Examples:
    """Probable texts, each given to the piece of the longest text that it continues.

    Args:
        found: The texts, or None.
        known: Texts of choices, which are no examples.
        afters: Texts after which a piece leaves the trie.
        has_longer: Whether a text that continues a choice is no part of it.
    """

    def __init__(
        self, found: BeamResult | None, known: Sequence[bytes], afters: Sequence[bytes], *, has_longer: bool
    ) -> None:
        self._texts: dict[bytes, dict[bytes, float]] = {one: {} for one in (*afters, b"")}
        if found is None:
            return
        for one in (*found.hypotheses, *found.incomplete):
            data, logp = b"", -found.log_heal
            for token, following in zip(one.tokens, [*(token.piece for token in one.tokens[1:]), b""], strict=True):
                data, logp = data + token.piece, logp + token.logp
                text = data[len(found.healed) :]
                if not text or _WORD.match(following) or any(choice.startswith(text) for choice in known):
                    continue
                if has_longer or not text.startswith(tuple(known)):
                    after = max((one for one in self._texts if text.startswith(one) and text != one), key=len)
                    self._texts[after].setdefault(text, math.exp(min(0.0, logp)))
                break

    def add_to(self, piece: Piece) -> Piece:
        """Return a piece of texts elsewhere with its most probable examples.

        An example is the shortest text that leaves the trie there and ends a word.
        """
        if piece.kind != "elsewhere":
            return piece
        texts = sorted(self._texts[piece.after].items(), key=lambda one: -one[1])
        return replace(piece, examples=tuple((text.decode("utf-8", "replace"), p) for text, p in texts[:_N_EXAMPLES]))
