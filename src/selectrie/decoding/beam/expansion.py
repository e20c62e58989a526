"""How paths grow: their tree, what may follow each path, and how a path ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from selectrie.core.automaton import Automaton, allows, is_any
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import NO_NODE, ROOT, BoolArray, IntArray
from selectrie.decoding.beam.candidates import Candidates, Follower
from selectrie.decoding.beam.hypotheses import Key
from selectrie.decoding.beam.records import BeamSpec, PathView
from selectrie.decoding.path_tree import PathTree
from selectrie.errors import OptionError
from selectrie.options import natural
from selectrie.results import TokenScore

_SHOWN = 4
"""How many tokens `expand` is shown for each path that is kept."""


class BeamExpander:
    """The paths of a search below a prompt, by their nodes in `tree`.

    Attributes:
        tree: The paths that were taken up.
        ends: Nodes whose paths are complete texts.
        carries: Nodes whose paths may go on.
        n_dead_ends: How many paths could do neither.
        refused_logp: The best sum of log-probabilities of a path that `may_start`
        refused.
    """

    def __init__(self, automaton: Automaton, spec: BeamSpec) -> None:
        self._automaton, self._spec = automaton, spec
        self._longest = spec.beam.max_tokens
        self.tree = PathTree(automaton.start(), spec.healing)
        state = self.tree.state[ROOT]
        self.ends: set[int] = {ROOT} if automaton.can_end(state) else set()
        self.carries: set[int] = {ROOT} if is_any(automaton.allowed(state)) else set()
        self._dead: set[tuple[int, int]] = set()
        self._is_canonical: dict[int, bool] = {}
        self._joins: dict[tuple[int, int], bool] = {}
        self._doubtful: set[tuple[int, int]] = set()
        self.refused_logp = -np.inf
        self._chosen: dict[int, IntArray] = {}

    @property
    def n_dead_ends(self) -> int:
        return len(self._dead)

    @property
    def n_refused(self) -> int:
        """Return how many finished paths the tokenizer would not make."""
        return sum(not is_canonical for is_canonical in self._is_canonical.values())

    def stuck(self, node: int) -> None:
        """Record that no token after this path leads anywhere.

        Unless the path is a text, it is a dead end.
        """
        if node not in self.ends:
            self._dead.add((self.tree.parent[node], self.tree.token[node]))

    def reach(self, parent: int, token: int, logp: float) -> int:
        """Return the path one token longer, or NO_NODE.

        NO_NODE means that it is a dead end, or that the tokens may not be neighbours.
        """
        tree = self.tree
        node = tree.find(parent, token)
        if node != NO_NODE or (parent, token) in self._dead:
            return node
        if not self.joins(parent, token):
            if (parent, token) in self._doubtful:
                self.refused_logp = max(self.refused_logp, tree.logp[parent] + logp)
            return NO_NODE
        state = self._automaton.advance(tree.state[parent], token)
        can_end = self._automaton.can_end(state)
        _, counts = self._spec.healing.after(tree.n_healed[parent], token)
        is_longest = tree.n_text[parent] + counts >= self._longest
        goes_on = not is_longest and is_any(self._automaton.allowed(state))
        if not (can_end or goes_on or is_longest):
            self._dead.add((parent, token))
            return NO_NODE
        node = tree.add(parent, token, logp, state)
        if can_end:
            self.ends.add(node)
        if goes_on:
            self.carries.add(node)
        return node

    def beside(self, parent: int, token: int, logp: float) -> int:
        """Return the path one token longer, whether or not the search may go there.

        Only its row is of interest.
        """
        if parent in self.carries and allows(self._automaton.allowed(self.tree.state[parent]), token):
            node = self.reach(parent, token, logp)
            if node != NO_NODE:
                return node
        return self.tree.add_beside(parent, token, logp)

    @property
    def joins_all(self) -> bool:
        """Return whether `joins` is always true."""
        return self._spec.may_be_adjacent is None and self._spec.may_start is None

    def joins(self, parent: int, token: int) -> bool:
        """Return whether the tokenizer may write this token after the path's last one.

        True if the search does not check this.
        """
        if (parent, token) not in self._joins:
            self._joins[parent, token] = self._may_join(parent, token)
        return self._joins[parent, token]

    def _may_join(self, parent: int, token: int) -> bool:
        may_be_adjacent, begins = self._spec.may_be_adjacent, self._spec.may_start
        if may_be_adjacent is not None and parent != ROOT and not may_be_adjacent(self.tree.token[parent], token):
            return False
        if begins is None or begins((*self.tree.tokens(parent), token)):
            return True
        self._doubtful.add((parent, token))
        return False

    def needs_row(self, node: int) -> bool:
        """Return whether anything after the path has to be read."""
        return node in self.carries or (self._spec.terminator == "eog" and node in self.ends)

    def reads(self, node: int, at_most: int) -> Reads:
        """Return what `followers` reads of the row of a path.

        Args:
            at_most: How many tokens are looked up at most, those with a penalty
                included.
        """
        if node not in self.carries:
            return Reads(1)
        if self._spec.beam.expand is not None:
            return Reads.everything(1)
        return Reads.of_row(tops=[(at_most, self._automaton.allowed(self.tree.state[node]))])

    def followers(
        self, node: int, rows: Rows, i: int, n_looked: tuple[int, int], penalty: Mapping[int, float]
    ) -> Iterator[Follower]:
        """Return what may follow a path by its row i, best first.

        Those are the tokens that the automaton and `expand` allow.

        Args:
            n_looked: How many tokens are looked up at first, and at most.
            penalty: As for `Candidates`.
        """
        if node not in self.carries:
            return iter(())
        allowed = self._automaton.allowed(self.tree.state[node])
        if self._spec.beam.expand is not None:
            if node not in self._chosen:
                self._chosen[node] = self._expanded(self._spec.beam.expand, node, rows, i, allowed)
            allowed = self._chosen[node]
        return iter(Candidates(rows, i, allowed, n_looked, penalty))

    def _expanded(
        self,
        expand: Callable[[PathView, Sequence[TokenScore]], Sequence[int]],
        node: int,
        rows: Rows,
        i: int,
        allowed: BoolArray | IntArray,
    ) -> IntArray:
        """Return the tokens that the caller goes on with.

        Raises `OptionError` for a token that the automaton does not allow.
        """
        spec = self._spec
        tokens, logp = rows.top(i, _SHOWN * spec.beam.width, allowed)
        pairs = zip(tokens.tolist(), logp.tolist(), strict=True)
        shown = [TokenScore.of(spec.vocabulary, token, score) for token, score in pairs]
        view = PathView(self.tree.tokens(node), self.data(node), self.tree.logp[node], node in self.ends)
        chosen, returned = [], expand(view, shown)
        if not isinstance(returned, Iterable):
            raise OptionError("expand", f"a callable that returned {returned!r}", "a callable that returns token ids")
        for token in returned:
            number = natural("expand", token, "a callable that returns token ids")
            if not allows(allowed, number):
                raise OptionError("expand", number, f"a callable that returns tokens that may follow {view.data!r}")
            chosen.append(number)
        return np.unique(np.array(chosen, dtype=np.int32))

    def is_canonical(self, node: int) -> bool:
        """Return whether the path is the tokenizer's own encoding of its text.

        True if the search does not check this.
        """
        if self._spec.canonical is None:
            return True
        if node not in self._is_canonical:
            self._is_canonical[node] = bool(self._spec.canonical(self.tree.tokens(node)))
        return self._is_canonical[node]

    def key(self, node: int) -> Key:
        """Return the bytes of a path, split at its control tokens, which are kept."""
        parts: list[bytes | int] = []
        text: list[bytes] = []
        for token in self.tree.tokens(node):
            piece = self._spec.vocabulary.pieces[token]
            if piece:
                text.append(piece)
            else:
                parts += [b"".join(text), token]
                text = []
        return (*parts, b"".join(text))

    def data(self, node: int) -> bytes:
        """Return the bytes of a path, without healed ones."""
        return self._spec.vocabulary.decode(self.tree.tokens(node))[len(self._spec.healed) :]
