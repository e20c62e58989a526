"""Models without weights: every row is a known function of the token path."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from selectrie.backends.prefix_tree import CallPlan, PrefixTree, require_batch_multiple, require_rows
from selectrie.core import numerics
from selectrie.core.model import SOLO_SEQUENCES, Extension, Model, chain, rounds
from selectrie.core.path_model import REMOTE, Cancellation, PathLimits, RowBounds, RowQuery, check_queries
from selectrie.core.rows import DenseRows, Rows
from selectrie.core.types import (
    NO_NODE,
    ROOT,
    BoolArray,
    Capacity,
    IntArray,
    Limits,
    LogitArray,
    ModelIdentity,
    ModelKind,
)
from selectrie.core.vocabulary import TokenizerKind, Tokenizing, Vocabulary
from selectrie.errors import (
    CancelledError,
    CapacityError,
    ClosedError,
    DecodeInterrupted,
    NodeError,
    OptionError,
    SelectrieError,
    TextError,
)
from selectrie.options import at_least

DEFAULT_PIECES: tuple[bytes, ...] = (
    *(b" ", b"a", b"b", b"c", b"r", b"s", b"t", b"u", b".", b":", b"\n"),
    *(b" a", b" c", b" b", b"ca", b"at", b"cat", b" cat", b"bat", b" bat", b" car", b"\xc3", b"\xa9", "é".encode()),
)
"""Pieces of the default vocabulary of `make_vocabulary`, without control tokens."""

BOS, EOS = 0, 1


def make_vocabulary(pieces: Iterable[bytes] = DEFAULT_PIECES) -> Vocabulary:
    """Return a vocabulary of `<bos>`, `<eos>` and then `pieces`.

    Text becomes tokens by longest match from the left. The tokenizer raises `TextError`
    if no piece matches. The chat template writes each message as the first letter of
    its role, a colon, its content, `<eos>` and a newline. It ends with `a:` unless
    `add_generation_prompt=False`.
    """
    all_pieces = (b"", b"", *pieces)
    texts = ("<bos>", "<eos>", *(piece.decode("utf-8", "backslashreplace") for piece in all_pieces[2:]))
    return Vocabulary(
        pieces=all_pieces,
        texts=texts,
        bos=BOS,
        eos=EOS,
        eog=np.array([EOS], dtype=np.int32),
        control=np.array([BOS, EOS], dtype=np.int32),
        space_prefix=False,
        tokenize=_longest_match_tokenizer(all_pieces),
        chat_template=_render_chat,
        examine=lambda _: Tokenizing(TokenizerKind.LONGEST, frozenset()),
    )


def numbered_vocabulary(n_tokens: int) -> Vocabulary:
    """Return a vocabulary whose tokens are spelt `<0>`, `<1>` and so on.

    It serves models with random weights, whose prompts are token ids. BOS is 1 and EOS
    is 2, and no token is a control token. The tokenizer raises `TextError` for a text
    that is not a sequence of such tokens. There is no chat template.

    Args:
        n_tokens: Number of tokens, at least 3; fewer raise `OptionError`.
    """
    at_least("n_tokens", n_tokens, 3, optional=False)
    pieces = tuple(b"<%d>" % i for i in range(n_tokens))
    return Vocabulary(
        pieces=pieces,
        texts=tuple(piece.decode() for piece in pieces),
        bos=1,
        eos=2,
        eog=np.array([2], dtype=np.int32),
        control=np.array([], dtype=np.int32),
        space_prefix=False,
        tokenize=_longest_match_tokenizer(pieces),
    )


def _longest_match_tokenizer(pieces: Sequence[bytes]) -> Callable[[bytes], list[int]]:
    """Return a tokenizer that takes the longest matching piece at each position."""
    by_piece = {piece: token for token, piece in enumerate(pieces) if piece}
    longest = max(map(len, pieces))

    def tokenize(text: bytes) -> list[int]:
        tokens, at = [], 0
        while at < len(text):
            stop = next((s for s in range(at + longest, at, -1) if text[at:s] in by_piece), None)
            if stop is None:
                raise TextError("text", f"no token of this vocabulary begins at byte {at} of {text!r}")
            tokens.append(by_piece[text[at:stop]])
            at = min(stop, len(text))
        return tokens

    return tokenize


def spell(vocabulary: Vocabulary, pieces: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of tokens given by their texts, such as " cat" or "<eos>".

    Raises `KeyError` for a text that is not exactly one token.
    """
    ids = {text: token for token, text in enumerate(vocabulary.texts)}
    return tuple(ids[piece] for piece in pieces)


def _render_chat(messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
    """Render a chat with the template that `make_vocabulary` describes."""
    turns = "".join(f"{str(m['role'])[0]}:{m['content']}<eos>\n" for m in messages)
    return turns + ("a:" if template_args.get("add_generation_prompt", True) else "")


Path = tuple[int, ...]

WIDE = Limits(nodes=4096, sequences=256, rows_per_call=512, kind=ModelKind.ATTENTION, max_idle_rows=4096)
"""Limits that small tests never reach."""

NO_LIMIT = 1 << 30
"""Number of branches for a tree of which only the nodes are limited."""
_ROUNDED = 1e-9
"""Error by which written probabilities may miss a sum of 1."""


class FakeModel:
    """A model whose row for a node is `row_of(token path)`.

    `HashModel` and `TableModel` define that function. The model keeps to the port
    strictly: limits and rounds are enforced, and the next `extend` fills the buffer of
    the last one with NaN, so that rows read too late are noticed. Recurrent-state kinds
    keep a state only for kept nodes.

    How it works is up to `limits`: with `BatchSizes.fixed` a call is split among
    programs of fixed sizes, without `can_interrupt` an interrupt has no effect, and
    with `max_idle_rows=None` an idle node costs nothing.

    Attributes:
        calls: Number of calls that evaluated rows so far.
        rows: Number of distinct rows evaluated so far.
        evaluations: Number of evaluations of each path.
        call_sizes: Number of rows of each of these calls, without padding.
        program_sizes: Number of rows of each program so far, padding included.
        on_decode: Function called in the middle of every program, before the tree has
            changed.
    """

    def __init__(
        self, row_of: Callable[[Path], LogitArray], *, vocabulary: Vocabulary, limits: Limits, name: str
    ) -> None:
        self._row_of, self._vocabulary, self._limits, self._name = row_of, vocabulary, limits, name
        self._max_rows = limits.rows_per_call  # with a multiple of 1
        self._set_multiple(limits.batch_sizes.multiple)
        self._tree = PrefixTree(len(vocabulary.pieces))
        self._paths: dict[int, Path] = {ROOT: ()}
        self._states = {ROOT}
        self._last = np.empty((0, len(vocabulary.pieces)), dtype=np.float32)
        self._failure: SelectrieError | None = None
        self._is_decoding = self._is_interrupted = self._is_closed = False
        self.calls = 0
        self.rows = 0
        self.evaluations: Counter[Path] = Counter()
        self.call_sizes: list[int] = []
        self.program_sizes: list[int] = []
        self.on_decode: Callable[[], None] | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def identity(self) -> ModelIdentity:
        digest = self._vocabulary.digest
        return ModelIdentity(self._name, f"fake:{self._name}", digest, "selectrie.testing", "1", "none")

    @property
    def contexts(self) -> dict[int, Path]:
        """Return the token path of every node held, as a copy.

        Node 0, the empty context, is included.
        """
        return dict(self._paths)

    def row(self, path: Sequence[int]) -> LogitArray:
        """Return float32[V], the logits after a token path as the model defines them.

        The call is not counted, and no node is kept.
        """
        return self._row_of(tuple(int(token) for token in path))

    def fail_next(self, error: SelectrieError) -> None:
        """Make the next call that would evaluate rows raise `error`.

        It raises after its checks and before any change.
        """
        self._failure = error

    def set_batch_multiple(self, value: int) -> None:
        self._check_open()
        if self._limits.batch_sizes.is_fixed:
            raise OptionError("batch_multiple", value, "no multiple: this model's batch sizes are fixed")
        require_batch_multiple(value, max_rows=self._max_rows, tree=self._tree)
        self._set_multiple(value)

    def _set_multiple(self, multiple: int) -> None:
        """Set the multiple, and cut the rows per call to a multiple of it."""
        rows_per_call = self._max_rows // multiple * multiple
        batch_sizes = replace(self._limits.batch_sizes, multiple=multiple)
        self._limits = replace(self._limits, rows_per_call=rows_per_call, batch_sizes=batch_sizes)

    def extend(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> Extension:
        self._check_open()
        plan = self._tree.plan(parents, tokens, wanted, keep)
        again = self._find_missing_states(plan)
        evaluated = [e for e, node in enumerate(plan.node) if node == NO_NODE or plan.wanted[e] or e in again]
        dropped, stripped = self._find_room(plan, len(evaluated), rounds(np.asarray(parents), np.asarray(keep)))
        paths = self._entry_paths(plan)
        programs = self._limits.batch_sizes.programs(len(evaluated))
        if programs:
            self._decode(programs)
            self.calls += 1
            self.call_sizes.append(len(evaluated))
        matrix = np.empty((sum(plan.wanted), len(self._vocabulary.pieces)), dtype=np.float32)
        row_of = {e: i for i, e in enumerate(np.flatnonzero(plan.wanted).tolist())}
        for e, i in row_of.items():
            matrix[i] = self._row_of(paths[e])
        index = [row_of[e] for e in plan.entries_of_wanted(wanted)]
        self._last.fill(np.nan)
        self._last = matrix
        self.evaluations.update(paths[e] for e in evaluated)
        self.rows += len(evaluated)
        self._drop(dropped)
        self._states -= stripped
        nodes = self._tree.commit(plan, len(evaluated))
        for e, node in enumerate(plan.nodes_of_entries(nodes)):
            self._paths[node] = paths[e]
            if plan.keep[e]:
                self._states.add(node)
        rows = DenseRows(matrix, np.array(index, dtype=np.int64))
        return Extension(
            nodes=nodes,
            rows=rows,
            rows_evaluated=len(evaluated),
            rows_repeated=len(evaluated) - plan.n_new,
            rows_padded=sum(programs) - len(evaluated),
            n_programs=len(programs),
            decode_s=0.0,
        )

    def _find_missing_states(self, plan: CallPlan) -> set[int]:
        """Return the entries of existing nodes that are evaluated again for a state.

        These have none, and the call keeps or extends them. Raises `NodeError` for a
        parent that has no state and is no entry of the call.
        """
        if not self._limits.kind.is_recurrent:
            return set()
        stateless = {node: e for e, node in enumerate(plan.node) if node != NO_NODE and node not in self._states}
        again = {e for e in stateless.values() if plan.keep[e]}
        for parent in plan.parent:
            if parent in stateless:
                again.add(stateless[parent])
            elif parent >= 0 and parent not in self._states:
                raise NodeError(parent, "was not kept: a recurrent-state model cannot extend it")
        return again

    def _find_room(self, plan: CallPlan, n_rows: int, in_round: IntArray) -> tuple[list[int], set[int]]:
        """Return the cached nodes to drop for a call, and those to lose their state.

        Args:
            plan: The plan of the call.
            n_rows: Number of rows that it evaluates.
            in_round: The round of each element, as of `core.model.rounds`.

        Raises `CapacityError` if the call does not fit.
        """
        limits = self._limits
        require_rows(n_rows, limits.rows_per_call)
        if not limits.kind.is_recurrent:
            return self._tree.make_room(plan, nodes=limits.nodes, sequences=limits.sequences), set()
        if in_round.any():
            raise CapacityError("rounds in one call", required=int(in_round.max()) + 1, available=1)
        dropped = self._tree.make_room(plan, nodes=limits.nodes, sequences=NO_LIMIT)
        kept = [node for node, keep in zip(plan.node, plan.keep, strict=True) if keep]
        n_more = sum(node == NO_NODE or node not in self._states for node in kept)
        excess = len(self._states - {ROOT} - set(dropped)) + n_more - limits.sequences
        protected = plan.live_nodes() | set(dropped) | {ROOT}
        idle = [node for node in self._states - protected if not self._tree.references[node]]
        if excess > len(idle):
            raise CapacityError("states", required=n_more, available=n_more - excess + len(idle))
        idle.sort(key=lambda node: (self._tree.used[node], node))
        return dropped, set(idle[: max(0, excess)])

    def _entry_paths(self, plan: CallPlan) -> list[Path]:
        """Return the token path of each entry of a plan."""
        paths: list[Path] = []
        for parent, token in zip(plan.parent, plan.token, strict=True):
            paths.append((*(self._paths[parent] if parent >= 0 else paths[~parent]), token))
        return paths

    def _decode(self, programs: Sequence[int]) -> None:
        """Run programs of these numbers of rows; all they do is call `on_decode`.

        Raises the error of `fail_next`, and `DecodeInterrupted` after an interrupt.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self._is_decoding = True
        try:
            for size in programs:
                if self.on_decode is not None:
                    self.on_decode()
                if self._is_interrupted:
                    raise DecodeInterrupted("the decode was interrupted")
                self.program_sizes.append(size)
        finally:
            self._is_decoding = self._is_interrupted = False

    def match_prefix(self, tokens: IntArray) -> tuple[int, int]:
        self._check_open()
        node, depth = self._tree.match_prefix(
            tokens, self._states.__contains__ if self._limits.kind.is_recurrent else None
        )
        self._tree.inc_ref(node)
        return node, depth

    def release(self, nodes: IntArray, *, forget: bool = False) -> None:
        self._check_open()
        self._drop(self._tree.release(nodes, forget=forget))

    def capacity(self) -> Capacity:
        self._check_open()
        tree, limits = self._tree, self._limits
        n_states = sum(1 for node in self._states if node != ROOT and tree.references[node])
        branches = limits.sequences - (n_states if limits.kind.is_recurrent else tree.n_held_leaves)
        return Capacity(limits.rows_per_call, limits.nodes - tree.n_held, branches, tree.n_nodes)

    def trim(self, idle_rows: int) -> int:
        self._check_open()
        idle = self._tree.idle(idle_rows)
        self._drop(idle)
        return len(idle)

    def _drop(self, nodes: list[int]) -> None:
        """Drop nodes from the tree, with their states and paths."""
        self._tree.drop(nodes)
        for node in nodes:
            self._states.discard(node)
            del self._paths[node]

    def new_context(self, nodes: int, sequences: int = SOLO_SEQUENCES, rows: int | None = None) -> FakeModel:
        self._check_open()
        limits = replace(self._limits, nodes=max(nodes, 1), sequences=max(2, min(self._limits.sequences, sequences)))
        multiple = limits.batch_sizes.multiple
        rows = min(limits.rows_per_call, -(-(rows or limits.rows_per_call) // multiple) * multiple)
        limits = replace(limits, rows_per_call=rows)
        return FakeModel(self._row_of, vocabulary=self._vocabulary, limits=limits, name=self._name)

    def interrupt(self) -> None:
        self._is_interrupted = self._is_decoding and self._limits.can_interrupt

    def close(self) -> None:
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the model")


class HashModel(FakeModel):
    """A model with logits hashed from (seed, whole token path).

    Every context has its own row, and equal contexts have equal rows. The logit of a
    token is `sharpness` times a standard Gumbel variate: 1 gives rows with a few likely
    tokens, 0 uniform rows, and 3 rows that one token dominates. `planted` gives the
    logits to use instead after certain full token paths.
    """

    def __init__(
        self,
        seed: int,
        *,
        vocabulary: Vocabulary | None = None,
        limits: Limits = WIDE,
        sharpness: float = 1.0,
        planted: Mapping[Path, Sequence[float]] | None = None,
    ) -> None:
        vocabulary = vocabulary or make_vocabulary()
        size, known = len(vocabulary.pieces), dict(planted or {})

        def row_of(path: Path) -> LogitArray:
            if path in known:
                return np.asarray(known[path], dtype=np.float32)
            return hashed_logits(seed, path, size, sharpness)

        super().__init__(row_of, vocabulary=vocabulary, limits=limits, name=f"hash-{seed}")


class TableModel(FakeModel):
    """A model whose probabilities are written by hand.

    The table maps pieces to probabilities: `{(): {"a": 0.6, "b": 0.4}, ("a",): {"t":
    0.9}}`. Keys are the pieces after `prompt` (a tuple of pieces; default: `<bos>`).
    Values are the probabilities of the next pieces, with control tokens by their
    spelling.

    If the probabilities of a row add up to less than 1, the rest is spread evenly over
    the tokens that it does not name. Contexts not named, and contexts not below the
    prompt, are uniform. Raises `OptionError` for a row that has a negative probability
    or does not add up.
    """

    def __init__(
        self,
        table: Mapping[tuple[str, ...], Mapping[str, float]],
        *,
        vocabulary: Vocabulary | None = None,
        limits: Limits = WIDE,
        prompt: tuple[str, ...] = ("<bos>",),
    ) -> None:
        vocabulary = vocabulary or make_vocabulary()
        size = len(vocabulary.pieces)
        before = spell(vocabulary, prompt)
        logits = {before + spell(vocabulary, key): _table_row(vocabulary, key, row) for key, row in table.items()}

        def row_of(path: Path) -> LogitArray:
            return logits[path] if path in logits else np.zeros(size, dtype=np.float32)

        super().__init__(row_of, vocabulary=vocabulary, limits=limits, name="table")


def hashed_logits(seed: int, path: Path, size: int, sharpness: float) -> LogitArray:
    """Return float32[size], the logits that `HashModel` gives after a token path.

    They are `sharpness` times Gumbel variates drawn with blake2b of seed and path.
    """
    digest = blake2b(np.array([seed, *path], dtype="<i8").tobytes(), digest_size=16).digest()
    bits = np.random.Philox(key=int.from_bytes(digest, "little")).random_raw(size)
    uniform = (np.asarray(bits >> np.uint64(11), dtype=np.float64) + 0.5) * 2.0**-53
    return (-sharpness * np.log(-np.log(uniform))).astype(np.float32)


def _table_row(vocabulary: Vocabulary, key: tuple[str, ...], row: Mapping[str, float]) -> LogitArray:
    """Return float32[V], the log-probabilities of one row of a `TableModel`'s table."""
    named = list(spell(vocabulary, tuple(row)))
    p = np.array(list(row.values()), dtype=np.float64)
    rest, n_rest = 1.0 - float(p.sum()), len(vocabulary.pieces) - len(named)
    if (p < 0).any() or rest < -_ROUNDED or (n_rest == 0 and rest > _ROUNDED):
        raise OptionError("table", {key: dict(row)}, "probabilities that leave 0 to 1 to the tokens not named")
    full = np.full(len(vocabulary.pieces), 0.0 if rest < _ROUNDED else rest / n_rest)
    full[named] = p
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(full), dtype=np.float32)


LIMITS = PathLimits(named_ids=1024, top_ids=64, queries_per_request=64, requests_in_flight=4, path_tokens=4096)
"""Limits that small tests never reach."""

SUMMED = 1e-6
"""Bound on the error of 1 minus a sum of float32 probabilities."""


class PathsOf:
    """A `PathModel` on top of a model that runs in this process.

    Args:
        model: The model. Nothing else may use it; `close` closes it.
        limits: Limits of the queries. A path can be no longer than the model's memory.
        hides_rest: Whether the bounds of a row follow only from the probabilities in
            it, as a server's do: the rest is 1 minus their sum, and no other token is
            more probable than the last of the most probable ones. Otherwise both bounds
            are exact.
        tolerance: Value of `PathModel.tolerance`, in nats.
    """

    def __init__(
        self, model: Model, *, limits: PathLimits = LIMITS, hides_rest: bool = False, tolerance: float = 0.0
    ) -> None:
        self._model, self._hides_rest, self.tolerance = model, hides_rest, tolerance
        self.limits = replace(limits, path_tokens=min(limits.path_tokens, model.limits.nodes))
        self._lock, self._is_closed = threading.Lock(), False

    @property
    def vocabulary(self) -> Vocabulary:
        return self._model.vocabulary

    @property
    def identity(self) -> ModelIdentity:
        return replace(self._model.identity, precision=REMOTE)

    def rows(self, queries: Sequence[RowQuery], cancellation: Cancellation) -> list[RowBounds]:
        check_queries(queries, self.limits, len(self.vocabulary.pieces))
        return [self._answer_query(query, cancellation) for query in queries]

    def _answer_query(self, query: RowQuery, cancellation: Cancellation) -> RowBounds:
        """Evaluate the path of a query, and return its row."""
        with self._lock:
            if self._is_closed:
                raise ClosedError("the model")
            if cancellation.is_cancelled:
                raise CancelledError
            node, rows = _evaluate_path(self._model, query.path)
            row = self._row_bounds(rows, query)
            self._model.release(np.array([node], dtype=np.int32))
            return row

    def _row_bounds(self, rows: Rows, query: RowQuery) -> RowBounds:
        """Return row 0 as the answer to a query: log-probabilities and bounds."""
        top, top_logp = rows.top(0, query.top)
        ids = np.unique(np.concatenate([query.named, top])).astype(np.int32)
        logp = rows.logp(0, ids)
        if not self._hides_rest:
            others = np.ones(len(self.vocabulary.pieces), dtype=np.bool_)
            others[ids] = False
            best = rows.top(0, 1, others)[1]
            return RowBounds(ids, logp, (rows.log_rest(0, ids),) * 2, float(best[0]) if len(best) else -np.inf)
        rest = 1.0 - float(numerics.exp(logp).sum())
        low, high = (float(np.log(p)) if p > 0 else -np.inf for p in (rest - SUMMED, rest + SUMMED))
        return RowBounds(ids, logp, (low, high), float(top_logp[-1]) if 0 < query.top == len(top) else high)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._model.close()


def _evaluate_path(model: Model, path: IntArray) -> tuple[int, Rows]:
    """Evaluate a path, and return its last node and a `Rows` with its row.

    The node holds a reference, which the caller releases.
    """
    node, depth = model.match_prefix(path[:-1])
    rows: Rows = DenseRows(np.empty((0, 0), dtype=np.float32))
    try:
        for start in range(depth, len(path), model.limits.rows_per_call):
            part = path[start : start + model.limits.rows_per_call]
            is_last = np.arange(len(part)) == len(part) - 1
            extension = model.extend(chain(node, len(part)), part, is_last, is_last)
            before, node, rows = node, int(extension.nodes[-1]), extension.rows
            model.release(extension.nodes[:-1])
            model.release(np.array([before], dtype=np.int32))
    except BaseException:
        model.release(np.array([node], dtype=np.int32))
        raise
    return node, rows
