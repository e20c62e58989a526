"""What a beam search is asked and finds, and how its paths grow (`BeamExpander`)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from selectrie.core.automaton import Automaton, allowed_ids, allows, is_any
from selectrie.core.numerics import Interval
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import NO_NODE, ROOT, BoolArray, FloatArray, IntArray
from selectrie.decoding.search_state import PathSpec, PathTree
from selectrie.errors import OptionError
from selectrie.options import DEFAULT_BEAM, BeamSearchParams, natural
from selectrie.results import TokenScore


@dataclass(frozen=True, slots=True, eq=False)
class BeamSpec(PathSpec):
    """The specification of a beam search, checked on construction.

    Attributes:
        beam: The options. This task ignores `beam.exact`, and uses the field
            `terminator` in place of `beam.terminator`.
        may_start: Returns whether the tokenizer's encoding of some text may begin with
            these tokens. It may err, so paths that it refuses are not followed and
            count in `BeamOutcome.lost`.
        tolerance: Nats per row by which the layout of calls may move a log-probability.
        reads_only_best: Whether only the most probable tokens that may follow are read.
            The others have bounds, and are not followed.
    """

    beam: BeamSearchParams = DEFAULT_BEAM
    may_start: Callable[[Sequence[int]], bool] | None = None
    reads_only_best: bool = False


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
    """A text that a beam search found.

    Attributes:
        tokens: int32[n], its best path, including tokens that spell healed bytes.
        token_logp: float64[n], the log-probability of each token.
        data: Its bytes, without healed ones.
        logp_end: Log-probability of the terminator, 0 if incomplete.
        logp: Log-probability of the text, conditional on the healed bytes. Where joints
            are added up, it covers all paths of the text.
        logp_path: Log-probability of this path alone.
        score: The score by which texts are ordered.
        n_paths: Number of its paths that were found.
        complete: Whether it is a text that the automaton accepts.
        group: Number of the group that found it (0 for greedy decoding).
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
    """The texts that a beam search found, with counts of its work.

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
        unread: The best such score of a path whose last token was not read.
        n_merged: Number of finished paths beyond the first of each text.
        n_dead_ends: Number of paths that could neither end nor go on.
        n_refused: Paths that the automaton accepts and that are not the tokenizer's
            encoding of their text.
        n_evaluated: Number of rows read.
        n_repeated: Number of nodes evaluated again.
        n_steps: Number of tokens of the longest path.
        close_steps: Steps in which the tolerance, or a token that was not read, could
            have changed what was kept.
        heal: Log-probability of the healed bytes (`HealedMass.log_heal`), on which all
            scores are already conditional.
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
    heal: Interval[float]


Key = tuple[bytes | int, ...]
"""Identifies the text of a path: its bytes, split at control tokens, and these."""


@dataclass(slots=True, eq=False)
class FinishedText:
    """A text that a beam search finished.

    Attributes:
        key: The text's bytes and control tokens, which identify it.
        paths: Log-probability of each of its paths, by the path's last node.
        logp: Log-probability of the text.
        best: The last node of its best path.
        score: The score by which texts are ordered.
    """

    key: Key
    paths: dict[int, float] = field(default_factory=dict)
    logp: float = -np.inf
    best: int = NO_NODE
    score: float = -np.inf


class FinishedHypotheses:
    """The texts finished so far; the n best of them are looked for.

    Ties are ordered by their tokens.

    Args:
        tree: The paths of the search.
        n: Number of best texts.
        length_penalty: Exponent of the number of tokens in scores.
        merges: Whether the probabilities of a text's paths are added up. Otherwise the
            best path represents the text.
    """

    def __init__(self, tree: PathTree, n: int, length_penalty: float, *, merges: bool) -> None:
        self._tree, self._n, self._penalty, self.merges = tree, n, length_penalty, merges
        self.texts: dict[Key, FinishedText] = {}
        self._kth: float | None = None

    def add(self, node: int, logp: float, key: Key) -> None:
        """Add a finished path to its text, unless it was added before.

        Args:
            node: The path's last node.
            logp: Its log-probability, terminator included.
            key: Identifies its text.
        """
        text = self.texts.setdefault(key, FinishedText(key))
        if node in text.paths:
            return
        text.paths[node] = logp
        if text.best == NO_NODE or self._rank_key(text, node) < self._rank_key(text, text.best):
            text.best = node
        # Sorted, so that the sum does not depend on the order in which paths were
        # finished.
        text.logp = add_up(sorted(text.paths.values())) if self.merges else text.paths[text.best]
        text.score = self.score(text.logp, self._tree.n_text[text.best])
        self._kth = None

    def _rank_key(self, text: FinishedText, node: int) -> tuple[float, tuple[int, ...]]:
        """Return the sort key of a text's path; the best path has the smallest.

        If probabilities are added up, the most probable path is the best, else the one
        with the best score.
        """
        logp = text.paths[node]
        return -(logp if self.merges else self.score(logp, self._tree.n_text[node])), self._tree.tokens(node)

    def score(self, logp: float, n_tokens: int) -> float:
        """Return the score of a text: logp / n_tokens ** length_penalty.

        A path without tokens counts as one token.
        """
        return logp / max(1, n_tokens) ** self._penalty if self._penalty else logp

    @property
    def kth(self) -> float:
        """Return the score of the n-th best text; -inf if there are fewer."""
        if self._kth is None:
            scores = sorted((text.score for text in self.texts.values()), reverse=True)
            self._kth = scores[self._n - 1] if len(scores) >= self._n else -np.inf
        return self._kth

    @property
    def n_paths(self) -> int:
        """Return the number of finished paths of all texts."""
        return sum(len(text.paths) for text in self.texts.values())

    def ranked(self) -> list[FinishedText]:
        """Return all texts, best first."""
        return sorted(self.texts.values(), key=lambda text: (-text.score, self._tree.tokens(text.best)))

    def is_decided(self, bound: float, log_open: float, longest: int) -> bool:
        """Return whether no unfinished path can change which texts are the first n.

        Args:
            bound: The best score that an unfinished path can reach.
            log_open: Log of the summed probability of all unfinished paths. If
                probabilities are added up, any text may gain all of it.
            longest: Maximum number of tokens of a path.
        """
        if self.kth == -np.inf:
            return bound == -np.inf
        if not self.merges:
            return self.kth >= bound
        rivals = [log_open, *(float(np.logaddexp(t.logp, log_open)) for t in self.ranked()[self._n :])]
        return self.kth >= max(self.bound(rival, 0, longest) for rival in rivals)

    def bound(self, logp: float, depth: int, longest: int) -> float:
        """Return the best score that an unfinished path can reach.

        It may grow to the longest length, but never becomes more probable.

        Args:
            logp: Its log-probability so far.
            depth: Its number of tokens so far.
            longest: Maximum number of tokens of a path.
        """
        return self.score(logp, longest if logp <= 0 else depth)


def add_up(logps: Iterable[float]) -> float:
    """Return the log of the summed probability of all `logps`; -inf for none."""
    total = -np.inf
    for logp in logps:
        total = float(np.logaddexp(total, logp))
    return total


Follower = tuple[int, float, float]
"""A token, its log-probability, and its log-probability minus its penalty."""


class Candidates:
    """Iterates over the tokens that may follow one path, best first, ties by id.

    Each item is a `Follower`, with log-probabilities under the full softmax. Tokens of
    probability 0 do not appear. The row is sorted only as far as it is read: first
    `n_looked[0]` tokens, then twice as many each time, and at most `n_looked[1]`.

    Args:
        rows, i: The row that predicts the tokens.
        allowed: bool[V] or int32[] ids, the tokens that may follow.
        n_looked: Number of tokens that are looked up at first, and the maximum. Tokens
            of `penalty` are looked up in addition.
        penalty: Nats by token that are subtracted, for the order only.
    """

    def __init__(
        self,
        rows: Rows,
        i: int,
        allowed: BoolArray | IntArray,
        n_looked: tuple[int, int],
        penalty: Mapping[int, float] | None = None,
    ) -> None:
        self._rows, self._i, self._allowed = rows, i, allowed
        self._n, self._n_max = max(1, n_looked[0]), max(1, n_looked[1])
        self._penalty = penalty or {}

    def __iter__(self) -> Iterator[Follower]:
        n, n_read = min(self._n, self._n_max), 0
        while True:
            tokens, logp, value, is_all = self._best(n)
            yield from zip(tokens[n_read:].tolist(), logp[n_read:].tolist(), value[n_read:].tolist(), strict=True)
            if is_all or n == self._n_max:
                return
            n_read, n = len(tokens), min(2 * n, self._n_max)

    def _best(self, n: int) -> tuple[IntArray, FloatArray, FloatArray, bool]:
        """Return ids, logp, and logp minus penalty, of the n best tokens.

        The fourth element says whether these are all tokens.
        """
        # That many are enough: a penalty moves only its own token back.
        n_looked = n + len(self._penalty)
        tokens, logp = self._rows.top(self._i, n_looked, self._allowed)
        is_all = len(tokens) < n_looked
        if not self._penalty:
            return tokens, logp, logp, is_all
        value = logp - np.array([self._penalty.get(token, 0.0) for token in tokens.tolist()])
        order = np.lexsort((tokens, -value))
        order = order if is_all else order[:n]
        return tokens[order], logp[order], value[order], is_all


class CandidateQueue:
    """The tokens that may follow several paths, merged into one queue, best first.

    The order is by the path's sum of log-probabilities, the token's included, minus the
    token's penalty. Ties go by the order of tokens.
    """

    def __init__(self, paths: Iterable[tuple[float, int, int, Iterator[Follower]]]) -> None:
        """Merge the tokens that may follow each path.

        Args:
            paths: (sum of log-probabilities, rank in the order of tokens, node, the
                tokens that may follow).
        """
        self._heap: list[tuple[float, int, int, int, float, float, Iterator[Follower]]] = []
        for logp, rank, node, followers in paths:
            self._push(logp, rank, node, followers)

    def _push(self, logp: float, rank: int, node: int, followers: Iterator[Follower]) -> None:
        """Add the next of a path's tokens, if there is one."""
        for token, edge, value in followers:
            heapq.heappush(self._heap, (-(logp + value), rank, token, node, edge, logp, followers))
            return

    @property
    def value(self) -> float:
        """Return the value that orders the next entry; -inf if there is none."""
        return -self._heap[0][0] if self._heap else -np.inf

    @property
    def logp(self) -> float:
        """Return the largest sum of log-probabilities among the paths' next entries.

        Penalties are not subtracted. -inf if no entry is left.
        """
        return max((logp + edge for *_, edge, logp, _ in self._heap), default=-np.inf)

    @property
    def nodes(self) -> set[int]:
        """Return the nodes of the paths that still have entries."""
        return {node for _, _, _, node, *_ in self._heap}

    def pop(self) -> tuple[int, int, float]:
        """Remove and return the next entry: node, token, the token's logp."""
        _, rank, token, node, edge, logp, followers = heapq.heappop(self._heap)
        self._push(logp, rank, node, followers)
        return node, token, edge


_SHOWN_PER_PATH = 4
"""Number of tokens that `expand` is shown for each path of the beam's width."""
_MAX_AHEAD = 4
"""Number of tokens that are tried after a path to see whether a text is there."""
_MAX_TRIED = 64
"""Maximum number of paths tried for that; beyond it, a text is assumed."""


class BeamExpander:
    """The paths of a beam search; each is identified by its last node in `tree`.

    Attributes:
        tree: All paths that were reached.
        ends: Nodes whose paths are complete texts, and canonical if that is required.
        carries: Nodes whose paths may go on.
        n_dead_ends: Number of paths that could do neither.
        n_refused: Number of paths that the automaton accepts and that are not
            canonical.
        refused_logp: The best sum of log-probabilities of a path that was refused
            because of `spec.may_start`.

    Args:
        automaton: The texts that may be written.
        spec: The options of the search.
    """

    def __init__(self, automaton: Automaton, spec: BeamSpec) -> None:
        self._automaton, self._spec = automaton, spec
        self._longest = spec.beam.max_tokens
        self.tree = PathTree(automaton.start(), spec.healing)
        state = self.tree.state[ROOT]
        self.n_refused = 0
        self.ends: set[int] = {ROOT} if automaton.can_end(state) and self._is_canonical(()) else set()
        self.carries: set[int] = {ROOT} if is_any(automaton.allowed(state)) else set()
        self._dead: set[tuple[int, int]] = set()
        self._joins: dict[tuple[int, int], bool] = {}
        self._doubtful: set[tuple[int, int]] = set()
        self._starts: dict[tuple[int, ...], bool] = {}
        self.refused_logp = -np.inf
        self._chosen: dict[int, IntArray] = {}
        self._n_left, self._is_certain = 0, True

    @property
    def n_dead_ends(self) -> int:
        """Return the number of paths that could neither end nor go on."""
        return len(self._dead)

    def mark_stuck(self, node: int) -> None:
        """Record that a path cannot be extended: a dead end, unless it is a text."""
        if node not in self.ends:
            self._dead.add((self.tree.parent[node], self.tree.token[node]))

    def reach(self, parent: int, token: int, logp: float) -> int:
        """Return the node of a path extended by `token`, or NO_NODE.

        NO_NODE means that the path is a dead end, or that the tokenizer never writes
        it, nor any text that begins with it.

        Args:
            parent: Last node of the path.
            token: A token that the automaton allows there.
            logp: The token's log-probability.
        """
        tree = self.tree
        node = tree.find(parent, token)
        if node != NO_NODE or (parent, token) in self._dead:
            return node
        if not self.may_join(parent, token):
            if (parent, token) in self._doubtful:
                self.refused_logp = max(self.refused_logp, tree.logp[parent] + logp)
            return NO_NODE
        path, state = (*tree.tokens(parent), token), self._automaton.advance(tree.state[parent], token)
        can_end = self._automaton.can_end(state)
        if can_end and not self._is_canonical(path):
            can_end = False
            self.n_refused += 1
        _, counts = self._spec.healing.after(tree.n_healed[parent], token)
        is_longest = tree.n_text[parent] + counts >= self._longest
        goes_on = not is_longest and self._goes_on(path, state)
        if not (can_end or goes_on or is_longest):
            self._dead.add((parent, token))
            if not self._is_certain:
                self.refused_logp = max(self.refused_logp, tree.logp[parent] + logp)
            return NO_NODE
        node = tree.add(parent, token, logp, state)
        if can_end:
            self.ends.add(node)
        if goes_on:
            self.carries.add(node)
        return node

    def reach_unchecked(self, parent: int, token: int, logp: float) -> int:
        """Return a node of the path extended by `token`, only to read its row.

        The search itself need not be allowed to go there.
        """
        if parent in self.carries and allows(self._automaton.allowed(self.tree.state[parent]), token):
            node = self.reach(parent, token, logp)
            if node != NO_NODE:
                return node
        return self.tree.add_beside(parent, token, logp)

    @property
    def joins_all(self) -> bool:
        """Return whether `may_join` is True for all nodes and tokens."""
        return self._spec.may_be_adjacent is None and self._spec.may_start is None

    def may_join(self, parent: int, token: int) -> bool:
        """Return whether the tokenizer may write `token` after the path of `parent`.

        Always True if the specification has no such check.
        """
        if (parent, token) not in self._joins:
            path = (*self.tree.tokens(parent), token)
            may_join = self._may_join_last(path)
            self._joins[parent, token] = may_join and self._may_start(path)
            if may_join and not self._joins[parent, token]:
                self._doubtful.add((parent, token))
        return self._joins[parent, token]

    def _may_join_last(self, path: tuple[int, ...]) -> bool:
        """Return whether the last two tokens of a path may be neighbours."""
        may_be_adjacent = self._spec.may_be_adjacent
        return may_be_adjacent is None or len(path) < 2 or may_be_adjacent(*path[-2:])

    def _may_start(self, path: tuple[int, ...]) -> bool:
        """Return whether the tokenizer's encoding of a text may begin with a path."""
        if path not in self._starts:
            self._starts[path] = self._spec.may_start is None or self._spec.may_start(path)
        return self._starts[path]

    def _is_canonical(self, path: tuple[int, ...]) -> bool:
        """Return whether the path is the tokenizer's own encoding of its text.

        Always true if the specification has no such check.
        """
        return self._spec.canonical is None or bool(self._spec.canonical(path))

    def _goes_on(self, path: tuple[int, ...], state: int) -> bool:
        """Return whether the tokenizer may write a longer text that begins with a path.

        `_is_certain` then tells whether a negative answer is certain.
        """
        self._n_left, self._is_certain = _MAX_TRIED, True
        return self._leads_on(path, state, 0 if self.joins_all else _MAX_AHEAD)

    def _leads_on(self, path: tuple[int, ...], state: int, n_ahead: int) -> bool:
        """Return whether automaton and tokenizer allow `n_ahead` tokens after a path.

        Fewer are enough if a text ends there. The answer is True if it would take more
        than `_n_left` trials.
        """
        allowed = self._automaton.allowed(state)
        if n_ahead == 0:
            return is_any(allowed)
        tokens = allowed_ids(allowed)
        if len(tokens) > self._n_left:
            return True
        # Long tokens first: they are most often the tokenizer's own.
        for token in tokens[np.argsort(-self._spec.vocabulary.lengths[tokens], kind="stable")].tolist():
            self._n_left -= 1
            longer = (*path, token)
            if not self._may_join_last(longer):
                continue
            if not self._may_start(longer):
                # `may_start` may err.
                self._is_certain = False
                continue
            after = self._automaton.advance(state, token)
            if self._automaton.can_end(after) and self._is_canonical(longer):
                return True
            if self._leads_on(longer, after, n_ahead - 1):
                return True
        return False

    def needs_row(self, node: int) -> bool:
        """Return whether the node's row is needed to extend or to end its path."""
        return node in self.carries or self.ends_by_row(node)

    def ends_by_row(self, node: int) -> bool:
        """Return whether a text ends at the node with a probability from its row."""
        if node not in self.ends or self._spec.terminator != "unless-continued":
            return node in self.ends and self._spec.terminator == "eog"
        return is_any(self._automaton.allowed(self.tree.state[node]))

    def end_reads(self, node: int) -> Reads:
        """Return the `Reads` that `end_logp` needs from the row of a node."""
        if node not in self.ends:
            return Reads(1)
        allowed, eog = self._tokens_past(node), self._spec.vocabulary.eog
        if allowed is not None:
            return Reads.of_row(rests=[allowed])
        return Reads.of_row(eog, masses=[eog]) if self._spec.reads_only_best else Reads.of_row(masses=[eog])

    def end_logp(self, node: int, rows: Rows, i: int) -> float:
        """Return the log-probability that a text ends at the node, from its row."""
        allowed = self._tokens_past(node)
        return float(rows.log_mass(i, self._spec.vocabulary.eog) if allowed is None else rows.log_rest(i, allowed))

    def _tokens_past(self, node: int) -> IntArray | None:
        """Return the tokens that continue the text of a node.

        None if an end-of-generation token ends it.
        """
        if self._spec.terminator != "unless-continued":
            return None
        return allowed_ids(self._automaton.allowed(self.tree.state[node]))

    def reads(self, node: int, at_most: int) -> Reads:
        """Return the `Reads` that `followers` needs from the row of `node`.

        Args:
            at_most: Maximum number of tokens that are looked up, those with a penalty
                included.
        """
        if node not in self.carries:
            return Reads(1)
        if self._spec.beam.expand is not None:
            return Reads.everything(1)
        return Reads.of_row(tops=[(at_most, self._automaton.allowed(self.tree.state[node]))])

    def unread_max(self, node: int, rows: Rows, i: int, n_looked: int) -> float:
        """Return a bound on each log-probability that `followers` cannot look up.

        Args:
            rows, i: The row of the node.
            n_looked: Maximum number of tokens that are looked up.
        """
        if not self._spec.reads_only_best or node not in self.carries:
            return -np.inf
        return rows.unseen_max(i, n_looked, self._automaton.allowed(self.tree.state[node]))

    def followers(
        self, node: int, rows: Rows, i: int, n_looked: tuple[int, int], penalty: Mapping[int, float]
    ) -> Iterator[Follower]:
        """Return the tokens that may follow the path of `node`, best first.

        Both the automaton and `BeamSearchParams.expand`, if set, allow them.

        Args:
            rows, i: The row of the node.
            n_looked, penalty: As for `Candidates`.
        """
        if node not in self.carries:
            return iter(())
        allowed = self._automaton.allowed(self.tree.state[node])
        if self._spec.beam.expand is not None:
            if node not in self._chosen:
                self._chosen[node] = self._call_expand(self._spec.beam.expand, node, rows, i, allowed)
            allowed = self._chosen[node]
        return iter(Candidates(rows, i, allowed, n_looked, penalty))

    def _call_expand(
        self,
        expand: Callable[[PathView, Sequence[TokenScore]], Sequence[int]],
        node: int,
        rows: Rows,
        i: int,
        allowed: BoolArray | IntArray,
    ) -> IntArray:
        """Return the tokens with which the callback `expand` chose to go on.

        Raises `OptionError` for a token that the automaton does not allow.
        """
        spec = self._spec
        tokens, logp = rows.top(i, _SHOWN_PER_PATH * spec.beam.width, allowed)
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

    def key(self, node: int) -> Key:
        """Return the text of a path as a key, which is equal for all of its spellings.

        It has the path's bytes, split at control tokens, and these tokens' ids.
        """
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
