"""The laws of the ports of models, checked on any model by random work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.model import Extension, Model, chain
from selectrie.core.path_model import Cancellation, PathModel, RowBounds, RowQuery
from selectrie.core.rows import Reads, Rows, TokenSet, TopTokens
from selectrie.core.types import ROOT, BoolArray, FloatArray, IntArray
from selectrie.errors import (
    CancelledError,
    CapacityError,
    ClosedError,
    DecodeError,
    DecodeInterrupted,
    NodeError,
    OptionError,
    ProtocolError,
    SelectrieError,
    TokenRangeError,
)
from selectrie.testing.oracles import extend_in_rounds

Path = tuple[int, ...]

_N_TOKENS = 6
"""Number of distinct tokens used.

There are few, so that equal nodes are requested again and again.
"""
_REMEMBERED_BYTES = 1 << 26
"""Maximum size of the kept rows of single-path evaluation.

A row of 152 000 tokens takes 1.2 MB.
"""


class LawBroken(AssertionError):
    """A model broke a law of its port.

    Attributes:
        law: Number of the law in the docstring of the module `selectrie.core.model`,
            or of the class `core.path_model.PathModel`.
        path: Token ids of the path on which it happened; () if there is none.
        difference_nats: Difference of two log-probabilities that should be equal; None
            if the law is about something else.
    """

    def __init__(self, law: int, what: str, *, path: Path = (), difference_nats: float | None = None) -> None:
        self.law, self.path, self.difference_nats = law, path, difference_nats
        moved = "" if difference_nats is None else f" by {difference_nats:.3g} nats"
        super().__init__(f"law {law}: {what}{moved} (path {list(path)})")


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The result of `check_model`: the rows it compared and the calls it made.

    Attributes:
        rows_compared: Number of rows compared with single-path evaluation.
        worst_nats: Largest difference in a log-probability, in nats.
        calls: Number of extends made.
        refusals: Number of calls that raised an error, as the laws require.
        repeated: Number of rows evaluated again for nodes that existed (not counted if
            calls are cut into rounds).
    """

    rows_compared: int
    worst_nats: float
    calls: int
    refusals: int
    repeated: int


def check_model(
    make_model: Callable[[], Model],
    *,
    seed: int,
    steps: int = 200,
    tolerance_nats: float = 0.0,
    longest: int = 24,
    fail_next: Callable[[Model], None] | None = None,
    interrupt_next: Callable[[Model], None] | None = None,
) -> ModelReport:
    """Check the laws of the model port with random calls to a model.

    Every row is compared with that of its path evaluated alone.

    An operation adds nodes, evaluates a prompt and extends its end in the same call,
    asks for an existing node again, releases, forgets or trims nodes, makes a call that
    must raise an error, or interrupts the model while no call runs. Calls of
    recurrent-state models are cut by `model.rounds`. Both models are closed at the end.

    Args:
        make_model: Returns a fresh, empty model. It is called twice; the second model
            evaluates paths alone.
        seed: Seed of the random operations.
        steps: Number of random operations.
        tolerance_nats: Largest difference of a log-probability that is allowed.
        longest: Number of tokens of the longest path tried. For a sliding window it
            should exceed the window.
        fail_next: Makes the next decode of a model fail with a `DecodeError`. None
            leaves such failures out.
        interrupt_next: Makes `interrupt` be called in the middle of the next decode of
            a model. The call must then fail if `limits.can_interrupt` is set, and
            succeed otherwise. None leaves such interrupts out.

    Raises:
        LawBroken: If a row differs or a call breaks a law. Any other error of the model
            is passed on.
    """
    model, alone = make_model(), make_model()
    try:
        check = _Check(
            model,
            alone,
            np.random.default_rng(seed),
            tolerance_nats=tolerance_nats,
            longest=longest,
            fail_next=fail_next,
            interrupt_next=interrupt_next,
        )
        check.check_batch_sizes()
        solo_before = check.solo_rows()
        for _ in range(steps):
            check.step()
        check.finish(solo_before)
        return ModelReport(check.rows_compared, check.worst_nats, check.calls, check.refusals, check.repeated)
    finally:
        model.close()
        alone.close()


class _Check:
    """The state of one `check_model`: two models, and the references held on the first.

    The first model is tested; the second evaluates each path alone.
    """

    def __init__(
        self,
        model: Model,
        alone: Model,
        rng: np.random.Generator,
        *,
        tolerance_nats: float,
        longest: int,
        fail_next: Callable[[Model], None] | None,
        interrupt_next: Callable[[Model], None] | None,
    ) -> None:
        self._model, self._alone, self._rng = model, alone, rng
        self._tolerance, self._longest = tolerance_nats, longest
        self._fail_next, self._interrupt_next = fail_next, interrupt_next
        n_vocabulary = len(model.vocabulary.pieces)
        bos = model.vocabulary.bos
        ids = rng.choice(n_vocabulary, size=min(_N_TOKENS, n_vocabulary), replace=False)
        self._tokens: list[int] = [int(t) for t in ids]
        self._start: Path = (int(bos),) if bos is not None else (self._tokens[0],)
        self._held: list[tuple[int, Path, bool]] = []  # node, path, may be a parent; one entry per reference
        self._expected: dict[Path, FloatArray] = {}
        self._empty_capacity = model.capacity()
        self.rows_compared = self.calls = self.refusals = self.repeated = 0
        self.worst_nats = 0.0

    def step(self) -> None:
        """Do one random operation."""
        operations = [self._grow, self._grow, self._grow, self._extend_prompt, self._extend_again]
        operations += [self._release, self._forget, self._trim, self._refuse, self._interrupt_idle]
        if self._fail_next is not None:
            operations.append(self._fail_decode)
        if self._interrupt_next is not None:
            operations.append(self._interrupt_decode)
        operations[int(self._rng.integers(len(operations)))]()

    def finish(self, solo_before: FloatArray) -> None:
        """Release all references, and check that no node is left.

        Also check that a solo model computes the bits of `solo_before`.
        """
        if not np.array_equal(self.solo_rows(), solo_before):
            raise LawBroken(1, "a solo model computed other bits after other work", path=self._start)
        self._give_back(list(range(len(self._held))), forget=False)
        self._model.trim(0)
        if self._model.capacity() != self._empty_capacity:
            raise LawBroken(
                5, f"{self._model.capacity()} is left of {self._empty_capacity} after everything was released"
            )
        node, depth = self._model.match_prefix(_ids(self._start * 2))
        self._model.release(_ids([node]))
        if (node, depth) != (ROOT, 0):
            raise LawBroken(5, f"node {node} of depth {depth} survived trim(0)", path=self._start)

    def check_batch_sizes(self) -> None:
        """Check the batch sizes of the empty model, and `set_batch_multiple`."""
        limits = self._model.limits
        sizes = limits.batch_sizes
        if limits.rows_per_call % sizes.multiple:
            raise LawBroken(6, f"{limits.rows_per_call} rows per call are no multiple of {sizes.multiple}")
        self._must_refuse_multiple(OptionError, 0)
        self._must_refuse_multiple(OptionError, 1 << 40)
        if sizes.is_fixed:
            self._must_refuse_multiple(OptionError, 1)
            return
        self._model.set_batch_multiple(1)
        self._model.set_batch_multiple(sizes.multiple)
        if self._model.limits != limits:
            raise LawBroken(6, f"limits were {limits}, and are {self._model.limits} after the multiple was set back")

    def _must_refuse_multiple(self, expected: type[SelectrieError], value: int) -> None:
        """Check that `set_batch_multiple` raises `expected` and changes no limit."""
        limits = self._model.limits
        try:
            self._model.set_batch_multiple(value)
        except expected:
            pass
        else:
            raise LawBroken(6, f"set_batch_multiple({value}) must raise {expected.__name__}, and was accepted")
        if self._model.limits != limits:
            raise LawBroken(6, f"a refused set_batch_multiple({value}) changed the limits to {self._model.limits}")

    def solo_rows(self) -> FloatArray:
        """Return float64[V], the row of a fixed short path on a new small context."""
        solo = self._model.new_context(8)
        try:
            if solo.limits.batch_sizes != self._model.limits.batch_sizes:
                raise LawBroken(6, f"a solo model has other batch sizes: {solo.limits.batch_sizes}")
            return _evaluate_alone(solo, (*self._start, *self._tokens[:3]))
        finally:
            solo.close()

    def _grow(self) -> None:
        """Add new nodes below random held nodes and below each other."""
        parents_held = [(node, path) for node, path, is_parent in self._held if is_parent and len(path) < self._longest]
        parents: list[int] = []
        paths: list[Path] = []
        for _ in range(int(self._rng.integers(1, self._call_size() + 1))):
            j = int(self._rng.integers(len(paths))) if paths and self._rng.random() < 0.5 else None
            if j is not None and len(paths[j]) < self._longest:
                parents.append(~j)
                paths.append((*paths[j], self._random_token()))
            elif parents_held:
                node, path = parents_held[int(self._rng.integers(len(parents_held)))]
                parents.append(node)
                paths.append((*path, self._random_token()))
            else:
                parents.append(ROOT)
                paths.append(self._start)
        n = len(paths)
        self._extend(parents, paths, self._rng.random(n) < 0.6, self._rng.random(n) < 0.5)

    def _extend_prompt(self) -> None:
        """Add a longer run of tokens below the node that `match_prefix` returns.

        Its end is extended by two tokens in the same call.
        """
        length = int(self._rng.integers(1, max(2, self._longest // 2)))
        prompt = (*self._start, *(self._random_token() for _ in range(length)))
        node, depth = self._model.match_prefix(_ids(prompt))
        if not 0 <= depth <= len(prompt) or (depth == 0) != (node == ROOT):
            raise LawBroken(1, f"match_prefix returned node {node} at depth {depth}", path=prompt)
        self._held.append((node, prompt[:depth], True))
        size = self._call_size()
        paths = [prompt[:n] for n in range(depth + 1, len(prompt) + 1)][:size]
        parents = [node, *(~i for i in range(len(paths) - 1))][: len(paths)]
        if paths and len(paths) + 2 <= size:
            end = len(paths) - 1
            paths += [(*paths[end], self._random_token()), (*paths[end], self._random_token())]
            parents += [~end, ~end]
        if paths:
            keep = np.arange(len(paths)) >= len(paths) - 3  # the end and its two children
            self._extend(parents, paths, np.ones(len(paths), dtype=np.bool_), keep)

    def _extend_again(self) -> None:
        """Ask for a held node again, and check that node and row are the same.

        If its row is not wanted, nothing must be evaluated.
        """
        nodes = {path: node for node, path, is_parent in self._held if is_parent}
        known = [(node, path) for node, path, _ in self._held if path and (path[:-1] in nodes or len(path) == 1)]
        if not known:
            return
        node, path = known[int(self._rng.integers(len(known)))]
        parent, no = nodes.get(path[:-1], ROOT), np.array([False])
        got = self._extend([parent], [path], np.array([True]), no)
        if got is None:
            return
        if int(got[0]) != node:
            raise LawBroken(1, f"an existing node came back as {got[0]} and not as {node}", path=path)
        tokens = _ids(path[-1:])
        quiet = self._model.extend(_ids([parent]), tokens, no, no)
        self._held.append((int(quiet.nodes[0]), path, not self._model.limits.kind.is_recurrent))
        _check_size(self._model, quiet)
        if quiet.rows_evaluated:
            raise LawBroken(1, "an existing node was evaluated again for a row that was not wanted", path=path)

    def _release(self) -> None:
        self._give_back(self._random_held(), forget=False)

    def _forget(self) -> None:
        self._give_back(self._random_held(), forget=True)

    def _trim(self) -> None:
        self._model.trim(int(self._rng.choice([0, 1, 8, 64])))

    def _refuse(self) -> None:
        """Make a call that is not valid, and check its error.

        The error must be of the right type, and the tree must not change.
        """
        n = self._model.limits.rows_per_call + 1
        dead = max((node for node, _, _ in self._held), default=0) + 1_000_000
        run = chain(ROOT, n)
        one = _ids([self._start[0]])
        cases: list[tuple[type[SelectrieError], IntArray, IntArray]] = [
            (CapacityError, run, np.full(n, one[0], dtype=np.int32)),
            (NodeError, _ids([dead]), one),
            (NodeError, _ids([~0]), one),
            (TokenRangeError, _ids([ROOT]), _ids([len(self._model.vocabulary.pieces)])),
            (TokenRangeError, _ids([ROOT]), _ids([-1])),
        ]
        expected, parents, tokens = cases[int(self._rng.integers(len(cases)))]
        self._must_raise(expected, parents, tokens)
        if any(path for _, path, _ in self._held) and not self._model.limits.batch_sizes.is_fixed:
            self._must_refuse_multiple(ProtocolError, 1)

    def _fail_decode(self) -> None:
        """Make a decode fail half-way, and check that the tree does not change."""
        leaves = self._two_leaves()
        if leaves is not None and self._fail_next is not None:
            self._fail_next(self._model)
            self._must_raise(DecodeError, *leaves)

    def _interrupt_decode(self) -> None:
        """Interrupt a decode half-way, and check that it ends then or goes on."""
        leaves = self._two_leaves()
        if leaves is None or self._interrupt_next is None:
            return
        self._interrupt_next(self._model)
        if self._model.limits.can_interrupt:
            self._must_raise(DecodeInterrupted, *leaves, law=8)
        else:
            self._must_succeed(*leaves)

    def _interrupt_idle(self) -> None:
        """Interrupt while no call runs, and check that the next call is made."""
        leaves = self._two_leaves()
        if leaves is not None:
            self._model.interrupt()
            self._must_succeed(*leaves)

    def _two_leaves(self) -> tuple[IntArray, IntArray] | None:
        """Return the parents and tokens of a call that adds two leaves.

        None if the model may lack the capacity for it.
        """
        capacity = self._model.capacity()
        if min(capacity.rows, capacity.nodes, capacity.sequences) < 2:
            return None
        parents = [node for node, path, is_parent in self._held if is_parent and len(path) < self._longest] or [ROOT]
        parent = parents[int(self._rng.integers(len(parents)))]
        return _ids([parent, ROOT]), _ids(self._tokens[:2])

    def _must_succeed(self, parents: IntArray, tokens: IntArray) -> None:
        """Make a call, check that no interrupt ends it, and release its nodes."""
        wanted = np.ones(len(parents), dtype=np.bool_)
        try:
            nodes = self._model.extend(parents, tokens, wanted, ~wanted).nodes
        except DecodeInterrupted as error:
            raise LawBroken(8, "a call was ended by an interrupt that must have no effect") from error
        self._model.release(nodes)

    def _must_raise(self, expected: type[SelectrieError], parents: IntArray, tokens: IntArray, *, law: int = 5) -> None:
        """Check that a call raises `expected` and leaves the tree as it was.

        `law` is the number of the law that it breaks otherwise.
        """
        capacity, depths = self._model.capacity(), self._depths()
        n = len(parents)
        wanted, keep = np.ones(n, dtype=np.bool_), np.arange(n) == n - 1
        try:
            self._model.extend(parents, tokens, wanted, keep)
        except expected:
            pass
        else:
            raise LawBroken(law, f"a call of {n} rows that must raise {expected.__name__} was accepted")
        self.refusals += 1
        if self._model.capacity() != capacity:
            raise LawBroken(5, f"a refused call changed the capacity from {capacity} to {self._model.capacity()}")
        if self._depths() != depths:
            raise LawBroken(5, "a refused call changed what match_prefix returns")

    def _depths(self) -> list[tuple[int, int]]:
        """Return the results of `match_prefix` for all held paths."""
        matches = [self._model.match_prefix(_ids(path)) for path in sorted({path for _, path, _ in self._held})]
        self._model.release(_ids([node for node, _ in matches]))
        return matches

    def _extend(self, parents: list[int], paths: list[Path], wanted: BoolArray, keep: BoolArray) -> IntArray | None:
        """Make one call of `extend`, check its rows, and hold its nodes.

        Returns the node of each path. If the call raised `CapacityError` and could not
        be expected to fit, releases some nodes and returns None.
        """
        capacity = self._model.capacity()
        tokens = _ids([path[-1] for path in paths])
        up = _ids(parents)
        self.calls += 1
        try:
            if self._model.limits.kind.is_recurrent:
                nodes, rows = extend_in_rounds(self._model, up, tokens, wanted, keep)
            else:
                extension = self._model.extend(up, tokens, wanted, keep)
                _check_size(self._model, extension)
                nodes, rows = extension.nodes, extension.rows
                self.repeated += extension.rows_repeated
        except CapacityError:
            if len(paths) <= min(capacity.rows, capacity.nodes, capacity.sequences):
                raise
            self.refusals += 1
            self._give_back(self._random_held(), forget=bool(self._rng.integers(2)))
            return None
        if len(nodes) != len(paths) or len(rows) != int(wanted.sum()):
            raise LawBroken(
                2, f"extend returned {len(nodes)} nodes and {len(rows)} rows, not {len(paths)} and {wanted.sum()}"
            )
        is_recurrent = self._model.limits.kind.is_recurrent
        parent_of = [bool(k) or not is_recurrent for k in keep]
        self._held += list(zip(nodes.tolist(), paths, parent_of, strict=True))
        wanted_paths = [path for path, is_wanted in zip(paths, wanted, strict=True) if is_wanted]
        whole = rows.fetch(lambda: Reads.everything(len(rows)))
        for i, path in enumerate(wanted_paths):
            self._compare(whole, i, path)
        if wanted_paths:
            self._compare_part(rows, whole, self.calls % len(rows), wanted_paths)
        return nodes

    def _compare(self, rows: Rows, i: int, path: Path) -> None:
        """Compare all log-probabilities of row i with those of its path alone."""
        expected = self._expected.get(path)
        if expected is None:
            if len(self._expected) * len(rows.logits(i)) * 8 > _REMEMBERED_BYTES:
                self._expected.clear()
            expected = self._expected[path] = _evaluate_alone(self._alone, path)
        difference = _largest_difference(rows.logp(i, np.arange(len(rows.logits(i)))), expected)
        self.rows_compared += 1
        if not difference <= self._tolerance:
            raise LawBroken(4, "a row differs from evaluating its path alone", path=path, difference_nats=difference)
        self.worst_nats = max(self.worst_nats, difference)

    def _compare_part(self, rows: Rows, whole: Rows, i: int, paths: list[Path]) -> None:
        """Fetch single values of row i, and compare them with those of `whole`.

        `rows` are the rows of a call, `whole` the same rows with all of their values,
        and `paths` the path of each.
        """
        ids, every = _ids(self._tokens), np.arange(len(rows))
        one, top = TokenSet(i, ids), TopTokens(i, 3)
        owner = np.full(len(ids), i)
        part = rows.fetch(lambda: Reads(len(rows), owner, ids, masses=(one,), rests=(one,), tops=(top,), best=True))
        for what, found, expected in (
            ("log-probabilities of tokens", part.logp(i, ids), whole.logp(i, ids)),
            ("mass of tokens", part.log_mass(i, ids), whole.log_mass(i, ids)),
            ("mass of other tokens", part.log_rest(i, ids), whole.log_rest(i, ids)),
            ("most probable tokens", part.top(i, top.k)[1], whole.top(i, top.k)[1]),
            ("best tokens", whole.logp(every, part.best()), whole.logp(every, whole.best())),
        ):
            difference = _largest_difference(found, expected)
            if not difference <= self._tolerance:
                raise LawBroken(7, f"fetched {what} differ", path=paths[i], difference_nats=difference)

    def _give_back(self, indices: list[int], *, forget: bool) -> None:
        """Release the references at these indices of `_held`."""
        nodes = _ids([self._held[index][0] for index in indices])
        self._model.release(nodes, forget=forget)
        gone = set(indices)
        self._held = [held for index, held in enumerate(self._held) if index not in gone]

    def _random_held(self) -> list[int]:
        """Return the indices of a random share of `_held`."""
        share = self._rng.random()
        return [index for index in range(len(self._held)) if self._rng.random() < share]

    def _call_size(self) -> int:
        """Return the maximum number of rows of a random call."""
        return min(self._model.limits.rows_per_call, max(12, self._longest // 2))

    def _random_token(self) -> int:
        return self._tokens[int(self._rng.integers(len(self._tokens)))]


def _largest_difference(one: FloatArray | float, other: FloatArray | float) -> float:
    """Return the largest absolute difference, where -inf equals -inf."""
    left, right = np.asarray(one), np.asarray(other)
    with np.errstate(invalid="ignore"):
        return float(np.where(left == right, 0.0, np.abs(left - right)).max(initial=0.0))


def _check_size(model: Model, extension: Extension) -> None:
    """Check that a call was split and padded as the model's batch sizes say."""
    n_rows, sizes = extension.rows_evaluated, model.limits.batch_sizes
    found = (extension.n_programs, n_rows + extension.rows_padded)
    expected = (len(sizes.programs(n_rows)), sizes.padded(n_rows))
    if found != expected:
        raise LawBroken(6, f"programs and rows of a call of {n_rows} rows are {found}, not {expected}")


def _evaluate_alone(model: Model, path: Path) -> FloatArray:
    """Return the float64[V] log-probabilities after a path, evaluated alone.

    The path is evaluated from the empty tree as one unbranched run, and then forgotten.
    """
    held, step = [ROOT], model.limits.rows_per_call
    logp = np.empty(0)
    for start in range(0, len(path), step):
        part = _ids(path[start : start + step])
        parents = chain(held[-1], len(part))
        is_last = np.arange(len(part)) == len(part) - 1
        extension = model.extend(parents, part, is_last, is_last)
        _check_size(model, extension)
        held += extension.nodes.tolist()
        rows = extension.rows.fetch(lambda: Reads.everything(1))
        logp = rows.logp(0, np.arange(len(rows.logits(0))))
    model.release(_ids(held[1:]), forget=True)
    return logp


_N_ALL = 4096
"""Number of tokens up to which whole rows are asked for, in pieces."""
_SUMMED_NATS = 1e-6
"""Nats by which float32 exponentials may move the sum of a row."""
_WAIT_S = 30.0
"""Seconds after which a call that was cancelled counts as going on."""


@dataclass(frozen=True, slots=True)
class PathModelReport:
    """The result of `check_path_model`.

    Attributes:
        rows_compared: Number of rows compared with the same row asked for alone.
        worst_nats: Largest difference of a log-probability.
        refusals: Number of calls that raised an error, as the laws require.
    """

    rows_compared: int
    worst_nats: float
    refusals: int


def check_path_model(
    model: PathModel,
    *,
    seed: int,
    steps: int = 100,
    longest: int = 12,
    n_asked: Callable[[], int] | None = None,
    stall_next: Callable[[], None] | None = None,
) -> PathModelReport:
    """Check the laws of `core.path_model.PathModel` with random queries.

    Values of one row may differ by the model's own `tolerance`. The model is closed at
    the end.

    Args:
        model: The model.
        seed: Seed of the random queries.
        steps: Number of random calls.
        longest: Number of tokens of the longest path.
        n_asked: Returns the number of queries that have reached the server so far.
            Refused calls must not change it. None if it cannot be counted.
        stall_next: Makes the next call wait until it is cancelled. None leaves this
            check out.

    Raises:
        LawBroken: If a law is broken. Any other error of the model is passed on.
    """
    check = _PathCheck(model, np.random.default_rng(seed), min(longest, model.limits.path_tokens), n_asked)
    try:
        for _ in range(steps):
            check.step()
        check.check_threads()
        check.check_cancellation(stall_next)
    finally:
        model.close()
    check.check_closed()
    return PathModelReport(check.rows_compared, check.worst_nats, check.refusals)


class _PathCheck:
    """The state of one `check_path_model`, with the log-probabilities seen so far."""

    def __init__(
        self, model: PathModel, rng: np.random.Generator, longest: int, n_asked: Callable[[], int] | None
    ) -> None:
        self._model, self._rng, self._longest = model, rng, longest
        self._n_asked: Callable[[], int] = int if n_asked is None else n_asked
        self._n_tokens = len(model.vocabulary.pieces)
        self._tokens = [int(t) for t in rng.choice(self._n_tokens, size=min(_N_TOKENS, self._n_tokens), replace=False)]
        bos = model.vocabulary.bos
        self._start = self._tokens[0] if bos is None else bos
        self._margin = model.tolerance + _SUMMED_NATS
        self._known: dict[Path, dict[int, float]] = {}  # log-probabilities from queries that were asked alone
        self.rows_compared = self.refusals = 0
        self.worst_nats = 0.0

    def step(self) -> None:
        """Make one random call."""
        [self._ask_several, self._ask_several, self._ask_whole_row, self._refuse][int(self._rng.integers(4))]()

    def _random_query(self) -> RowQuery:
        """Return a valid query about a random path, within the model's limits."""
        limits, n = self._model.limits, int(self._rng.integers(self._longest))
        path = [self._start, *(int(token) for token in self._rng.choice(self._tokens, size=n))]
        n_named = int(self._rng.integers(min(limits.named_ids, self._n_tokens, 20) + 1))
        named = self._rng.choice(self._n_tokens, size=n_named, replace=False)
        top = int(self._rng.integers(2)) * int(self._rng.integers(min(limits.top_ids, self._n_tokens) + 1))
        return RowQuery(_ids(path[: self._longest]), _ids(named), top)

    def _ask_several(self) -> None:
        """Ask several queries at once, and compare each row with it asked alone."""
        n = int(self._rng.integers(1, min(self._model.limits.queries_per_request, 6) + 1))
        queries = [self._random_query() for _ in range(n)]
        if n > 1 and self._rng.random() < 0.5:  # another query about a path that is in the call
            queries[-1] = replace(queries[-1], path=queries[0].path)
        self._compare(queries, self._ask(queries))

    def _ask(self, queries: list[RowQuery]) -> list[RowBounds]:
        """Return the model's answers, after checking their number."""
        rows = self._model.rows(queries, Cancellation())
        if len(rows) != len(queries):
            raise LawBroken(2, f"{len(queries)} queries gave {len(rows)} rows")
        return rows

    def _compare(self, queries: list[RowQuery], rows: list[RowBounds]) -> None:
        """Check each row, and compare it with the row of its query asked alone."""
        for query, row in zip(queries, rows, strict=True):
            self._check_row(query, row)
            (alone,) = self._ask([query])
            path: Path = tuple(query.path.tolist())
            known = self._known.setdefault(path, {})
            known.update(zip(alone.ids.tolist(), alone.logp.tolist(), strict=True))
            values = np.array([known.get(token, np.nan) for token in row.ids.tolist()])
            self._compare_values(path, row.logp[~np.isnan(values)], values[~np.isnan(values)])
            self.rows_compared += 1

    def _compare_values(self, path: Path, values: FloatArray, expected: FloatArray) -> None:
        """Check that log-probabilities differ by at most the model's tolerance."""
        difference = np.where(values == expected, 0.0, np.abs(values - expected)).max(initial=0.0)
        self.worst_nats = max(self.worst_nats, float(difference))
        if difference > self._model.tolerance:
            raise LawBroken(1, "a row depends on what else is asked", path=path, difference_nats=float(difference))

    def _check_row(self, query: RowQuery, row: RowBounds) -> None:
        """Check that a row answers its query and that its bounds are consistent."""
        path: Path = tuple(query.path.tolist())
        if len(row.ids) != len(row.logp) or (np.diff(row.ids) <= 0).any():
            raise LawBroken(2, "the tokens of a row are not distinct and ascending", path=path)
        if len(np.setdiff1d(query.named, row.ids)) or len(row.ids) < min(query.top, self._n_tokens):
            raise LawBroken(2, "a row lacks tokens that were asked for", path=path)
        ranked = np.sort(row.logp)[::-1]
        if query.top and query.top <= len(ranked) and row.rest_max > ranked[query.top - 1] + self._margin:
            raise LawBroken(2, f"a token of the {query.top} most probable ones may be missing", path=path)
        low, high = row.log_rest
        if not low <= high:
            raise LawBroken(3, f"the rest is bounded by {low} and {high}", path=path)
        known = numerics.logsumexp(row.logp)
        if np.logaddexp(known, low) > self._margin or np.logaddexp(known, high) < -self._margin:
            raise LawBroken(3, "the probabilities and the rest do not sum to 1", path=path)

    def _ask_whole_row(self) -> None:
        """Ask for all tokens of a row in pieces, and check the bounds of a query's row.

        Does nothing for vocabularies of more than `_N_ALL` tokens.
        """
        query = self._random_query()
        path: Path = tuple(query.path.tolist())
        if self._n_tokens > _N_ALL or not self._model.limits.named_ids:
            return
        step = min(self._model.limits.named_ids, self._n_tokens)
        pieces = [np.arange(start, min(start + step, self._n_tokens)) for start in range(0, self._n_tokens, step)]
        logp = np.full(self._n_tokens, np.nan)
        for piece in pieces:
            (row,) = self._ask([RowQuery(query.path, _ids(piece))])
            self._check_row(RowQuery(query.path, _ids(piece)), row)
            logp[row.ids] = row.logp
        (row,) = self._ask([query])
        self._check_row(query, row)
        self._compare_values(path, row.logp, logp[row.ids])
        others = np.delete(logp, row.ids)
        if others.max(initial=-np.inf) > row.rest_max + self._margin:
            raise LawBroken(3, "another token is more probable than `rest_max`", path=path)
        rest = numerics.logsumexp(others)
        if not row.log_rest[0] - self._margin <= rest <= row.log_rest[1] + self._margin:
            raise LawBroken(3, f"the rest is {rest}, outside of its bounds {row.log_rest}", path=path)

    def _refuse(self) -> None:
        """Make a call with an invalid query, and check its error."""
        limits, query = self._model.limits, self._random_query()
        several = _ids(np.arange(limits.named_ids + 1) % self._n_tokens)
        too_long = _ids(np.full(limits.path_tokens + 1, self._start))
        cases: list[tuple[type[SelectrieError], RowQuery]] = [
            (OptionError, replace(query, path=_ids([]))),
            (OptionError, replace(query, path=too_long)),
            (OptionError, replace(query, named=several)),
            (OptionError, replace(query, top=limits.top_ids + 1)),
            (OptionError, replace(query, top=-1)),
            (OptionError, replace(query, named=_ids([self._start, self._start]))),
            (TokenRangeError, replace(query, path=_ids([self._start, self._n_tokens]))),
            (TokenRangeError, replace(query, named=_ids([-1]))),
        ]
        expected, wrong = cases[int(self._rng.integers(len(cases)))]
        before = self._n_asked()
        self._must_raise(4, expected, [self._random_query(), wrong], Cancellation())
        if self._n_asked() != before:
            raise LawBroken(4, "something was asked before a call was refused")

    def _must_raise(
        self, law: int, expected: type[SelectrieError], queries: list[RowQuery], cancellation: Cancellation
    ) -> None:
        """Check that a call raises `expected`; the call breaks law `law` otherwise."""
        error = self._error_of(queries, cancellation)
        if not isinstance(error, expected):
            raise LawBroken(law, f"a call that must raise {expected.__name__} ended with {error!r}")
        self.refusals += 1

    def _error_of(self, queries: list[RowQuery], cancellation: Cancellation) -> BaseException | None:
        """Make a call, and return the error that it raises, or None."""
        try:
            self._model.rows(queries, cancellation)
        except BaseException as error:  # noqa: BLE001 - the caller compares it
            return error
        return None

    def check_threads(self) -> None:
        """Ask in several threads at once, and compare the rows."""
        calls = [[self._random_query() for _ in range(2)] for _ in range(8)]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(self._ask, calls))
        for queries, rows in zip(calls, answers, strict=True):
            self._compare(queries, rows)

    def check_cancellation(self, stall_next: Callable[[], None] | None) -> None:
        """Cancel a call before it is made, and one that waits; check their errors."""
        cancellation = Cancellation()
        cancellation.cancel()
        self._must_raise(5, CancelledError, [self._random_query()], cancellation)
        if stall_next is None:
            return
        cancellation, query = Cancellation(), self._random_query()
        stall_next()
        errors: list[BaseException | None] = []
        call = threading.Thread(target=lambda: errors.append(self._error_of([query], cancellation)), daemon=True)
        call.start()
        cancellation.cancel()
        call.join(_WAIT_S)
        if not errors or not isinstance(errors[0], CancelledError):
            raise LawBroken(5, f"a call that was cancelled ended so: {errors or 'not at all'}")
        self._compare([query], self._ask([query]))

    def check_closed(self) -> None:
        """Close the closed model again, and check that it answers no query."""
        self._model.close()
        self._must_raise(5, ClosedError, [self._random_query()], Cancellation())


def _ids(values: object) -> IntArray:
    return np.asarray(values, dtype=np.int32)
