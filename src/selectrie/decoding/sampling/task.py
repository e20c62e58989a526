"""Draws one sequence token by token; a draft does not change the text.

Every draw depends only on the row, the tokens so far, the seed and the step, never on
other work in the same call. A draft is a small tree of tokens that may follow, proposed
by a drafter. With it, the tip (the last token) and the tree are evaluated in one call.
A token is then drawn from the tip's row. If it was guessed, the next one is drawn from
the row of that guess, and so on until a token is drawn that was not guessed. So guesses
save calls and change nothing.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from selectrie.core.automaton import Automaton
from selectrie.core.numerics import uniform
from selectrie.core.rows import Reads, Rows, TopTokens
from selectrie.core.types import NO_NODE, Capacity, FloatArray, IntArray
from selectrie.decoding.sampling.sampler import Sampler
from selectrie.decoding.sampling.sequence import AllowedTokens, DrawnText, DrawnTokens
from selectrie.decoding.task import Ask, TaskBase
from selectrie.errors import OptionError, ProtocolError, TokenRangeError
from selectrie.options import DEFAULT_SAMPLING, DEFAULT_STOPPING, SamplingParams, StopParams, at_least, natural
from selectrie.results import TokenScore
from selectrie.tokenization.healing import HealedBytes


class Drafter(Protocol):
    """Guesses the tokens that may follow a text (speculative decoding).

    A guess changes no number and no draw: a right one saves calls, a wrong one costs
    rows.
    """

    def propose(self, tokens: IntArray, max_tokens: int) -> tuple[IntArray, IntArray]:
        """Return a tree of tokens below the last of `tokens`.

        Called on the thread that runs the model, before each of its calls. An exception
        ends only this sequence.

        Args:
            tokens: int32[T], prompt and text so far; read-only, valid during the call.
            max_tokens: Maximum number of proposals, at least 1. Proposals beyond it are
                dropped.

        Returns:
            int32[n] parents and int32[n] tokens; n may be 0. A parent is the index of
            an earlier proposal, or -1 for the last of `tokens`.
        """
        ...


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """Limits on the size of a draft.

    Attributes:
        max_tokens: Maximum number of proposals.
        depth: Maximum depth of a proposal below the last token of the text.
        sequences: Maximum number of leaves.
        n_vocabulary: Number of token ids.
    """

    max_tokens: int
    depth: int
    sequences: int
    n_vocabulary: int

    @property
    def is_empty(self) -> bool:
        """Return whether the limits leave no room for a proposal."""
        return self.max_tokens < 1 or self.depth < 1 or self.sequences < 1


class DraftTree:
    """A tree of proposed tokens below the tip, the last token of the text.

    Position 0 is the tip; the proposals have the positions from 1 on.

    Attributes:
        parents: The position of each parent, which is smaller than the child's.
        tokens: The token of each proposal.
    """

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.tokens: list[int] = []
        self._child: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def child(self, position: int, token: int) -> int | None:
        """Return the position of `token` below `position`, None if not proposed."""
        return self._child.get((position, token))

    @staticmethod
    def of(proposed: tuple[IntArray, IntArray], limits: DraftLimits, barred: Container[int]) -> DraftTree:
        """Return the part of a drafter's tree that fits the limits.

        Equal paths are kept once. Raises `OptionError` if `proposed` is not a tree, and
        `TokenRangeError` for an unknown token.

        Args:
            proposed: Result of `Drafter.propose`.
            barred: Tokens that end the sequence; no path goes through them.
        """
        tree = DraftTree()
        position, depth = {NO_NODE: 0}, [0]
        n_leaves = 1
        carries: set[int] = set()
        for i, (parent, token) in enumerate(zip(*_check_proposal(proposed, limits.n_vocabulary), strict=True)):
            up = position.get(parent)
            if up is None or token in barred or depth[up] == limits.depth:
                continue
            known = tree.child(up, token)
            if known is not None:
                position[i] = known
                continue
            new_leaf = up in carries
            if len(tree) == limits.max_tokens or n_leaves + new_leaf > limits.sequences:
                continue
            n_leaves += new_leaf
            carries.add(up)
            tree.parents.append(up)
            tree.tokens.append(token)
            position[i] = tree._child[up, token] = len(tree)
            depth.append(depth[up] + 1)
        return tree


def _check_proposal(proposed: tuple[IntArray, IntArray], n_vocabulary: int) -> tuple[list[int], list[int]]:
    """Return the parents and tokens of a drafter's tree as lists.

    Raises `OptionError` or `TokenRangeError` if they are no tree of tokens.
    """
    expected = (
        "two integer arrays of equal length from `propose`: parents (indices of earlier proposals, -1 for the tip) "
        "and tokens"
    )
    try:
        parents, tokens = (np.asarray(part) for part in proposed)
    except (TypeError, ValueError):
        raise OptionError("draft", proposed, expected) from None
    for part in (parents, tokens):
        if part.ndim != 1 or len(part) != len(tokens) or (len(part) and part.dtype.kind not in "iu"):
            raise OptionError("draft", proposed, expected)
    for index, parent in enumerate(parents.tolist()):
        if not NO_NODE <= parent < index:
            raise OptionError("draft", proposed, f"{expected}; the parent of proposal {index} is {parent}")
    for token in tokens.tolist():
        if not 0 <= token < n_vocabulary:
            raise TokenRangeError(token, n_vocabulary)
    return parents.tolist(), tokens.tolist()


class GuessTask(TaskBase[list[int], tuple[IntArray, IntArray]]):
    """Grows a tree of guesses, level by level, on a draft model.

    Each level holds the `branching` most probable continuations of the level before.
    The result is int32[n] parents (index of an earlier guess, -1 for the prompt's end)
    and int32[n] tokens. Guess j is local row j + 1. The last level is not evaluated, so
    the task takes depth - 1 asks.

    Args:
        prompt: int32[T], the tokens before the guesses.
        max_tokens: Maximum number of guesses.
        depth: Maximum depth of a guess.
        branching: Number of guesses on each level.
        barred: int32[], tokens that are not guessed.
    """

    def __init__(self, prompt: IntArray, *, max_tokens: int, depth: int, branching: int, barred: IntArray) -> None:
        self._max_tokens, self._branching, self._barred = max_tokens, min(branching, max_tokens), barred
        self._depth = min(depth, -(-max_tokens // self._branching))
        floor = Capacity(rows=self._branching, nodes=self._branching * (self._depth - 1), sequences=self._branching)
        super().__init__(prompt, floor, [NO_NODE])
        self._n_tops = self._branching + len(barred)
        self._parents: list[int] = []
        self._tokens: list[int] = []
        self._joint: list[float] = []
        self._frontier: list[int] = []
        self._live: set[int] = set()
        self._n_levels = 0

    def _next_ask(self, _capacity: Capacity) -> tuple[Ask, list[int]] | None:
        """Return the ask for the last level of guesses; None if no level follows."""
        if self._n_levels == self._depth or not self._frontier or len(self._tokens) == self._max_tokens:
            return None
        everyone = np.ones(len(self._frontier), dtype=np.bool_)
        carries = {self._parents[index] for index in self._frontier}
        # Parents come before their children.
        for index in range(len(self._parents) - 1, -1, -1):
            if index in carries:
                carries.add(self._parents[index])
        gone = self._live - carries
        self._live = (self._live - gone) | set(self._frontier)
        ask = Ask(
            parents=np.array([self._parents[index] + 1 for index in self._frontier], dtype=np.int32),
            tokens=np.array([self._tokens[index] for index in self._frontier], dtype=np.int32),
            wanted=everyone,
            keep=everyone.copy(),
            release=np.array(sorted(gone), dtype=np.int32) + np.int32(1),
        )
        return ask, self._frontier

    def _reads(self, guesses: list[int]) -> Reads:
        return Reads(len(guesses), tops=tuple(TopTokens(i, self._n_tops) for i in range(len(guesses))))

    def _read(self, guesses: list[int], rows: Rows) -> None:
        """Add the most probable continuations of a level as the next level."""
        candidates: list[tuple[float, int, int]] = []
        for i, parent in enumerate(guesses):
            ids, logp = rows.top(i, self._n_tops)
            so_far = 0.0 if parent == NO_NODE else self._joint[parent]
            free = ~np.isin(ids, self._barred)
            candidates += [
                (-so_far - more, parent, token)
                for token, more in zip(ids[free].tolist(), logp[free].tolist(), strict=True)
            ]
        candidates = sorted(candidates)[: min(self._branching, self._max_tokens - len(self._tokens))]
        first = len(self._tokens)
        for joint, parent, token in candidates:
            self._parents.append(parent)
            self._tokens.append(token)
            self._joint.append(-joint)
        self._frontier = list(range(first, len(self._tokens)))
        self._n_levels += 1

    def _result(self) -> tuple[IntArray, IntArray]:
        return np.array(self._parents, dtype=np.int32), np.array(self._tokens, dtype=np.int32)


_SEED_BITS = 128
"""Number of bits of the key for the random numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class SampleSpec:
    """The specification of one sequence to be drawn, checked on construction.

    Attributes:
        prompt: int32[T], T >= 1, the tokens before the sequence.
        pieces, texts: Bytes and spelling of every token (`Vocabulary`); texts may be
            left out.
        eog: int32[], ids that end a generation.
        seed: Seed of the uniform numbers, one for each step.
        sampling, stopping: The options.
        n_alternatives: Number of most probable tokens recorded at every step.
        named: Ids whose log-probabilities are recorded at every step.
        automaton: Gives the tokens that may come next; the sequence also ends where it
            allows no token.
        tolerance: Nats by which the layout of model calls may move a log-probability.
            Steps whose draw this could change are recorded.
        drafter: Guesses tokens ahead; None for no draft.
        healed: Bytes of the prompt that are no longer part of `prompt`. The first
            tokens spell them, and an automaton given with them must itself accept them
            first.
    """

    prompt: IntArray
    pieces: Sequence[bytes] = field(repr=False)
    eog: IntArray
    seed: int
    sampling: SamplingParams = DEFAULT_SAMPLING
    stopping: StopParams = DEFAULT_STOPPING
    texts: Sequence[str] = field(default=(), repr=False)
    n_alternatives: int = 0
    automaton: Automaton | None = None
    tolerance: float = 0.0
    drafter: Drafter | None = None
    healed: HealedBytes | None = None
    named: Sequence[int] = ()

    def __post_init__(self) -> None:
        if len(self.prompt) == 0:
            raise ProtocolError("a sequence needs a prompt of at least one token")
        if self.automaton is not None and self.stopping.min_tokens:
            raise ProtocolError("an automaton decides where a sequence ends, not min_tokens")
        named = [*self.stopping.stop_tokens, *self.sampling.logit_bias, *self.named]
        for ids in (self.prompt, self.eog, np.array(named, dtype=np.int64)):
            wrong = ids[(ids < 0) | (ids >= len(self.pieces))]
            if len(wrong):
                raise TokenRangeError(int(wrong[0]), len(self.pieces))
        natural("seed", self.seed, "a whole number of at least 0")
        if self.seed >> _SEED_BITS:
            raise OptionError("seed", self.seed, f"a whole number below 2**{_SEED_BITS}")
        at_least("n_alternatives", self.n_alternatives, 0, optional=False)
        if not 0 <= self.tolerance < np.inf:
            raise OptionError("tolerance", self.tolerance, "a finite number of nats, at least 0")


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """The outcome of a `SampleTask`: a sequence and how it ended.

    Attributes:
        text: The text up to a stop string, which is not part of it. If the prompt ended
            inside a character, the text has that character whole.
        data: The text's bytes without those of the prompt, including an incomplete
            character at the end.
        tokens: int32[n], all drawn tokens, including those that spell healed bytes, one
            that ended the sequence, and those of a stop string.
        logp: float64[n], log-probability of each token under the full softmax.
        log_heal: Log-probability of the healed bytes along the drawn path: the sum over
            the steps that spelt them of the log-probability of all tokens that agree
            with the bytes then left. 0.0 if no byte was healed.
        alternatives: The most probable tokens at each step; empty unless requested.
        named: Log-probabilities of the named ids at each step; empty unless requested.
        finish: "eog", "stop" (a string or a token), "length", "callback", "automaton"
            or "deadline".
        stop: The stop string found, or None.
        ended_by: The last token if it is not text: end of generation, or a stop token.
        seed: The seed.
        close_steps: Steps whose draw a change within the tolerance could change.
        n_drafted, n_accepted: Number of guesses evaluated, and of guesses drawn.
    """

    text: str
    data: bytes
    tokens: IntArray
    logp: FloatArray
    log_heal: float
    alternatives: tuple[tuple[TokenScore, ...], ...]
    named: tuple[tuple[float, ...], ...]
    finish: str
    stop: str | None
    ended_by: int | None
    seed: int
    close_steps: tuple[int, ...]
    n_drafted: int
    n_accepted: int

    @property
    def joint(self) -> float:
        """Return the log-probability of all tokens together, given the healed bytes.

        A token that ended the sequence is included.
        """
        return float(self.logp.sum()) - self.log_heal


@dataclass(frozen=True, slots=True, eq=False)
class _LastAsk:
    """The last ask: its first element, and the guesses below it.

    Attributes:
        first: The local row of the first element.
        tree: The guesses.
    """

    first: int
    tree: DraftTree

    def __len__(self) -> int:
        return 1 + len(self.tree)


class SampleTask(TaskBase[_LastAsk, Sampled]):
    """A task that draws one sequence, token by token.

    Each ask is for the last drawn token and for as many guesses below it as the
    capacity allows. Raises `ProtocolError` if the automaton allows no token where it
    cannot end. An exception of the stop callback, the automaton or the drafter is
    raised by `tell` or `ask`, and the task cannot be used afterwards.
    """

    def __init__(self, spec: SampleSpec) -> None:
        self._max_tokens = spec.stopping.max_tokens
        self._n_healing = 0  # tokens that spelt only healed bytes
        n_healed = 0 if spec.healed is None else len(spec.healed.data)
        floor = Capacity(rows=1, nodes=self._max_tokens - 1 + n_healed, sequences=1)
        super().__init__(spec.prompt, floor, _LastAsk(0, DraftTree()))
        self._spec = spec
        self._tokens = DrawnTokens(spec.prompt, spec.pieces, spec.texts, spec.n_alternatives, spec.named)
        self._healed, self._n_spelt, self._log_heal = spec.healed, 0, 0.0
        self._text = DrawnText(spec.prompt, spec.pieces, spec.stopping.stop, self.healed)
        self._sampler = Sampler(spec.sampling, spec.prompt)
        automaton = spec.healed if spec.automaton is None else spec.automaton
        late = spec.stopping.stop_tokens if spec.stopping.min_tokens else None
        ignores = spec.stopping.ignore_eog
        self._choice = AllowedTokens(len(spec.pieces), spec.eog, automaton, ignore_eog=ignores, late=late)
        self._ends = frozenset(spec.eog.tolist()) | frozenset(spec.stopping.stop_tokens)
        self._finish = ""
        self._ended_by: int | None = None
        self._tip, self._next_local, self._n_held = 0, 1, 0
        self._leaving: list[int] = []
        self._walked: list[int] = []
        self._n_drafted = self._n_accepted = 0
        if self._choice.is_over:
            self._end("automaton")

    @property
    def healed(self) -> bytes:
        """Return the bytes of the prompt that the first tokens must spell."""
        return b"" if self._spec.healed is None else self._spec.healed.data

    @property
    def states(self) -> int:
        """Return how many states a recurrent model holds for this task at once.

        One is the state of the last evaluated token and one that of the next; guesses
        do not count.
        """
        return 2

    @property
    def finish(self) -> str | None:
        """Return why the sequence ended (`Sampled.finish`); None while it goes on."""
        return self._finish if self._is_finished else None

    @property
    def n_tokens(self) -> int:
        """Return how many tokens have been drawn so far."""
        return len(self._tokens)

    def new_text(self) -> str:
        """Return the text that has become certain since the last call.

        It consists of whole characters, before any stop string.
        """
        return self._text.new()

    def drawn(self, start: int = 0) -> tuple[TokenScore, ...]:
        """Return the tokens drawn from step `start` on, with log-probabilities."""
        return self._tokens.token_scores(start)

    def alternatives(self, start: int = 0) -> tuple[tuple[TokenScore, ...], ...]:
        """Return the most probable tokens at each step from `start` on, if recorded."""
        return tuple(self._tokens.alternatives[start:])

    def named(self, start: int = 0) -> tuple[tuple[float, ...], ...]:
        """Return log-probabilities of the named ids at each step from `start` on."""
        return tuple(self._tokens.named[start:])

    def expire(self) -> None:
        """End the sequence now with the tokens drawn so far.

        Rows that arrive later are ignored. No effect if the sequence has ended.
        """
        if not self._is_finished:
            self._end("deadline")

    def _next_ask(self, capacity: Capacity) -> tuple[Ask, _LastAsk]:
        """Return the ask for the last drawn token and guesses below it."""
        tree = self._draft(capacity)
        self._n_drafted += len(tree)
        n = 1 + len(tree)
        ask = Ask(
            parents=np.array([self._tip, *(~parent for parent in tree.parents)], dtype=np.int32),
            tokens=np.array([self._tokens.last, *tree.tokens], dtype=np.int32),
            wanted=np.ones(n, dtype=np.bool_),
            keep=np.ones(n, dtype=np.bool_),
            release=np.array(self._leaving, dtype=np.int32),
            spent=np.array(self._walked, dtype=np.int32),
        )
        first, self._next_local = self._next_local, self._next_local + n
        return ask, _LastAsk(first, tree)

    def _result(self) -> Sampled:
        """Return the sequence."""
        return Sampled(
            text=self._text.text,
            data=self._text.data,
            tokens=self._tokens.drawn.copy(),
            logp=np.array(self._tokens.logp, dtype=np.float64),
            log_heal=self._log_heal,
            alternatives=tuple(self._tokens.alternatives),
            named=tuple(self._tokens.named),
            finish=self._finish,
            stop=self._text.stop,
            ended_by=self._ended_by,
            seed=self._spec.seed,
            close_steps=tuple(self._tokens.close_steps),
            n_drafted=self._n_drafted,
            n_accepted=self._n_accepted,
        )

    def _draft(self, capacity: Capacity) -> DraftTree:
        """Return the drafter's guesses below the last drawn token, within the limits.

        From the row of a guess at depth d, the token d + 1 after the last one is drawn.
        So no guess is deeper than tokens may still be drawn, and none ends the
        sequence.
        """
        fits = DraftLimits(
            max_tokens=min(capacity.rows, capacity.nodes - self._n_held) - 1,
            depth=self._max_tokens + self._n_healing - len(self._tokens) - 1,
            sequences=capacity.sequences,
            n_vocabulary=len(self._spec.pieces),
        )
        if self._spec.drafter is None or fits.is_empty:
            return DraftTree()
        return DraftTree.of(self._spec.drafter.propose(self._tokens.context, fits.max_tokens), fits, self._ends)

    def _reads(self, last: _LastAsk) -> Reads:
        """Return the reads of a greedy draw from each row, or whole rows.

        The tokens that may be drawn after a guess are known before only if they never
        change.
        """
        n = len(last)
        if not self._sampler.n_top or (n > 1 and not self._choice.is_constant):
            return Reads.everything(n)
        masses = [] if self._healed is None else [self._healed.allowed(self._n_spelt)]
        tops = [(self._sampler.n_top, self._choice.allowed)]
        if self._spec.n_alternatives:
            tops.append((self._spec.n_alternatives, None))
        named = np.asarray(self._spec.named, dtype=np.int32)
        return Reads.concatenated([Reads.of_row(named, masses=masses, tops=tops)] * n)

    def _read(self, last: _LastAsk, rows: Rows) -> None:
        """Draw from the first row, then from the row of each guess that was drawn."""
        walked = [0]
        while True:
            token = self._draw(rows, walked[-1])
            position = None if self._is_finished else last.tree.child(walked[-1], token)
            if position is None:
                break
            walked.append(position)
        on_path = set(walked)
        self._n_accepted += len(walked) - 1
        # Guesses that were not drawn are released by the next ask.
        self._leaving = [last.first + position for position in range(len(last)) if position not in on_path]
        self._walked = [last.first + position for position in walked if last.first + position > 0]
        self._n_held += len(self._walked)
        self._tip = last.first + walked[-1]

    def _draw(self, rows: Rows, i: int) -> int:
        """Draw a token from row `i` and record it; end the sequence if it must end."""
        spec = self._spec
        drawn = self._sampler.draw(
            rows, i, uniform(spec.seed, len(self._tokens)), allowed=self._choice.allowed, tolerance=spec.tolerance
        )
        self._tokens.add(rows, i, drawn.token, close=drawn.close, logp=drawn.logp)
        self._heal(rows, i, drawn.token)
        self._sampler.accept(drawn.token)
        finish = self._finish_after(drawn.token)
        if finish is not None:
            self._end(finish)
        return drawn.token

    def _heal(self, rows: Rows, i: int, token: int) -> None:
        """Update `log_heal` by row `i`, from which `token` was drawn."""
        healed = self._healed
        if healed is None:
            return
        self._log_heal += rows.log_mass(i, healed.allowed(self._n_spelt))
        self._n_spelt = healed.advance(self._n_spelt, token)
        if healed.is_spelt(self._n_spelt):
            self._healed = None

    def _finish_after(self, token: int) -> str | None:
        """Add the token's text; return how it ends the sequence, None if it does not.

        A token that spells only healed bytes does not count towards the limits of the
        length, and its id does not end the sequence.
        """
        stopping = self._spec.stopping
        only_heals = self._text.only_heals(token)
        self._n_healing += only_heals
        n_tokens = len(self._tokens) - self._n_healing
        goes_on = only_heals or n_tokens <= stopping.min_tokens
        if token in self._ends and not goes_on:
            self._ended_by = token
            return "eog" if token in self._spec.eog else "stop"
        if self._text.feed(token, goes_on=goes_on):
            return "stop"
        if stopping.when is not None and not goes_on and stopping.when(self._text.text):
            return "callback"
        self._choice.advance(token)
        if self._choice.is_over:
            return "automaton"
        if n_tokens >= stopping.min_tokens:
            self._choice.admit_late()
        return "length" if n_tokens == self._max_tokens else None

    def _end(self, finish: str) -> None:
        """End the sequence for the reason `finish`."""
        self._text.end()
        self._finish, self._is_finished = finish, True
