"""A product of alternatives too large to be listed: its token paths, and searches of them for the most probable texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from selectrie.core.automaton import Automaton, ChoiceAutomaton
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost, Limits
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.automaton.best_first import AutomatonSearch
from selectrie.decoding.automaton.product import ProductAutomaton
from selectrie.decoding.automaton.records import AutomatonOutcome, AutomatonSpec
from selectrie.decoding.beam.records import BeamSpec
from selectrie.decoding.beam.search import BeamTask
from selectrie.decoding.scoring.tolerance import ROUNDING
from selectrie.engine.scheduler.task_group import Errand
from selectrie.errors import OptionError, PromptTooLongError
from selectrie.options import Beam, Search
from selectrie.tokenization.products import Ground, Part, cut_product, neighbours, open_ground, spellings
from selectrie.tokenization.records import PromptText

MOST_NODES = 6_000
"""Nodes that a search evaluates where no budget is given."""
MOST_FOUND = 64
"""Texts found that are kept."""
_BEAM_PART = 2
"""One part in so many of the budget goes to a wide beam and what is near its best, where the rest of it proved nothing."""
_MOST_CLIMBS = 8
"""Times that texts near the best found are looked at."""
_NARROW, _WIDE = 8, 64
"""Paths of the beam that comes first, and of a wide one at most."""
_SECOND_NODES = 100
"""Nodes, and twice those of the proof of the first k, that may be spent on making certain which text is the second."""


@dataclass(frozen=True, slots=True, eq=False)
class Hunt:
    """What is searched for. parts: literals and sorted alternatives. k: how many of the best must be certain; a second text is looked for in any case.

    terminator: "auto", "eog" or "text". budget: nodes; None: `MOST_NODES`. width: nodes a call. cuts: whether chunks are looked for.
    """

    prompt: PromptText
    parts: tuple[Part, ...]
    following: bytes
    terminator: str
    k: int
    budget: int | None
    width: int
    cuts: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class ProductPaths:
    """Token paths of the product. automaton: over what follows the ground's context. longest: tokens of a path, at most.

    canonical, own: of paths that the tokenizer would not make (`AutomatonSpec`); None where the automaton has none.
    """

    ground: Ground
    automaton: Automaton
    longest: int
    canonical: Callable[[Sequence[int]], bool] | None = None
    own: Callable[[Sequence[int]], Sequence[int]] | None = None


def paths_of_product(vocabulary: Vocabulary, hunt: Hunt) -> ProductPaths:
    """The token paths of the product: of its chunks where it can be cut, else of a grammar, whose paths are checked."""
    cut = cut_product(vocabulary, hunt.prompt, hunt.parts, hunt.following) if hunt.cuts else None
    if cut is not None:
        automaton = ProductAutomaton(cut.paths)
        return ProductPaths(cut.ground, automaton, automaton.longest)
    ground = open_ground(vocabulary, hunt.prompt, hunt.parts, hunt.following)
    if ground is None:
        raise OptionError(
            "options",
            "of the block",
            "fewer: this model's tokens do not spell them byte by byte, so they have to be listed",
        )
    return _of_grammar(vocabulary, hunt.parts, ground)


def _of_grammar(vocabulary: Vocabulary, parts: tuple[Part, ...], ground: Ground) -> ProductPaths:
    """Every token path that spells a text of the product; those count that the tokenizer makes."""
    from selectrie.grammar import Grammar
    from selectrie.grammar.rules.expressions import Alternatives, RuleSet, Text
    from selectrie.grammar.rules.expressions import Sequence as InOrder

    items = [
        Text(part) if isinstance(part, bytes) else Alternatives(tuple(Text(option) for option in part))
        for part in parts
    ]
    grammar = Grammar(RuleSet({"root": InOrder((*items, Text(ground.tail)))}), name="joint")

    def own(tokens: Sequence[int]) -> Sequence[int]:
        paths = ground.paths_of(vocabulary, [ground.text_of(vocabulary.decode(tokens))])
        return () if paths is None else paths[0]

    longest = sum(len(part) if isinstance(part, bytes) else max(map(len, part)) for part in parts)
    longest += len(ground.healed) + len(ground.put) + len(ground.tail)
    return ProductPaths(
        ground,
        grammar.automaton(vocabulary, prefix=ground.healed + ground.put),
        longest,
        canonical=lambda tokens: tuple(own(tokens)) == tuple(tokens),
        own=own,
    )


def check_fits(paths: ProductPaths, limits: Limits) -> None:
    """Raise `PromptTooLongError` where the longest path does not fit behind the page."""
    needed = len(paths.ground.context) + paths.longest + 1
    if needed > limits.nodes:
        raise PromptTooLongError(
            needed_tokens=needed,
            available_tokens=limits.nodes,
            remedy="shorten the page before the block, or load with a larger n_ctx",
        )


class ProductSearch:
    """What searches of a product find, all together.

    terminator: "eog" or "none". tolerance: nats by which layout can move the difference of two log-probabilities.
    tokens, logp: of each text found; the log-probability is that of the path from the ground's context: healed bytes are not taken off.
    best_open: bound on it for all other texts; open_mass: bound on the probability of them all. n_evaluated: rows read.
    """

    def __init__(self, begun: Errand, paths: ProductPaths, hunt: Hunt, terminator: str, tau: float) -> None:
        self._begun, self._paths, self._hunt, self._terminator = begun, paths, hunt, terminator
        self.tolerance = 2 * tau * (paths.longest + 1)
        self.tokens: dict[bytes, tuple[int, ...]] = {}
        self.logp: dict[bytes, float] = {}
        self.best_open, self.open_mass = np.inf, 1.0
        self.n_evaluated, self.cost = 0, Cost()

    @property
    def left(self) -> int:
        """What is left of the budget."""
        return (self._hunt.budget or MOST_NODES) - self.n_evaluated

    def run(self) -> None:
        """Find the k best texts, and a second one, as far as the budget goes.

        A narrow beam finds texts to compare with, then everything that could be better than the k-th of them is looked at. Where
        that is done, what is near the best, and all that could be better than the second, for a little more; where it is not, a
        wide beam, and what is near its best.
        """
        k, places = self._hunt.k, max(2, self._hunt.k)
        self._beam(_NARROW)
        before = self.n_evaluated
        self.explore(self.place(k), self.left - self.left // _BEAM_PART)
        spent = self.n_evaluated - before
        if not self.is_certain(k):
            self._beam(min(_WIDE, self.left // (2 * self._paths.longest)))
            self._climb(self.left)
        elif not self.is_certain(places):
            self._climb(min(self.left, spent + _SECOND_NODES))
            self.explore(self.place(places), min(self.left, 2 * spent + _SECOND_NODES))

    def _climb(self, budget: int) -> None:
        """Look at texts that differ from the best in one option, again where one of them is better."""
        ground, parts = self._paths.ground, self._hunt.parts
        for _ in range(_MOST_CLIMBS):
            if not self.logp or budget < 1:
                return
            best = min(self.logp, key=lambda text: (-self.logp[text], text))
            near = neighbours(parts, best)
            paths = ground.paths_of(self._vocabulary, near) if near else None
            if paths is None:
                return
            before = self.n_evaluated
            self._read(ChoiceAutomaton(TokenTrie.from_sequences(paths)), (self.place(max(2, self._hunt.k)), budget))
            budget -= self.n_evaluated - before
            if self.place(1) <= self.logp[best]:
                return

    def place(self, k: int) -> float:
        """Log-probability of the k-th best text found; -inf where fewer are."""
        ranked = sorted(self.logp.values(), reverse=True)
        return ranked[k - 1] if len(ranked) >= k else -np.inf

    def is_apart(self, k: int) -> bool:
        """Is nothing that was not found as near to the k-th as layout can move scores?"""
        return bool(self.best_open == -np.inf or self.place(k) - self.best_open > self.tolerance)

    def is_certain(self, k: int) -> bool:
        """Are the first k found the first k of all?"""
        return self.best_open == -np.inf or self.place(k) > self.best_open + ROUNDING

    def explore(self, least: float, budget: int) -> None:
        """Look at all that could be as good as `least`, best first, as far as the budget goes."""
        if budget < 1:
            return
        outcome = self._read(self._paths.automaton, (least, budget))
        kth = outcome.found[MOST_FOUND - 1].score if len(outcome.found) >= MOST_FOUND else -np.inf
        least_read = max(kth, least) - self.tolerance - 2 * ROUNDING
        self.best_open = min(self.best_open, max(outcome.best_open, least_read))
        self.open_mass = min(self.open_mass, outcome.open_mass)
        self._keep_best()

    def _read(self, automaton: Automaton, wanted: tuple[float, int]) -> AutomatonOutcome:
        """Search an automaton. wanted: the least log-probability of interest, and nodes at most."""
        paths, (least, budget) = self._paths, wanted
        spec = AutomatonSpec(
            self._vocabulary,
            max_tokens=paths.longest,
            terminator=self._terminator,
            search=Search(k=MOST_FOUND, budget_nodes=budget, width=self._hunt.width),
            canonical=paths.canonical,
            own=paths.own,
            tolerance=self.tolerance + ROUNDING,
            least_score=least,
        )
        handle = self._begun.begin(AutomatonSearch(paths.ground.context, automaton, spec))
        outcome = handle.result()
        for path in outcome.found:
            self._add(path.data, path.tokens.tolist(), path.score)
        self.n_evaluated += outcome.n_evaluated
        self.cost += handle.cost
        return outcome

    def _keep_best(self) -> None:
        """Forget all but the best; they count as open."""
        for text in sorted(self.logp, key=lambda text: (-self.logp[text], text))[MOST_FOUND:]:
            del self.tokens[text]
            logp = self.logp.pop(text)
            self.best_open = max(self.best_open, logp)
            self.open_mass += float(np.exp(logp))

    def _beam(self, width: int) -> None:
        """Look with a beam."""
        places = max(2, self._hunt.k)
        if width < places:
            return
        paths = self._paths
        beam = Beam(width=width, n=places, max_tokens=paths.longest, canonical_only=paths.canonical is not None)
        spec = BeamSpec(self._vocabulary, beam, self._terminator, canonical=paths.canonical)
        handle = self._begun.begin(BeamTask(paths.ground.context, paths.automaton, spec))
        outcome = handle.result()
        for path in outcome.finished:
            self._add(path.data, path.tokens.tolist(), path.logp)
        self.n_evaluated += outcome.n_evaluated
        self.cost += handle.cost

    @property
    def _vocabulary(self) -> Vocabulary:
        return self._begun.owner.scheduler.model.vocabulary

    def _add(self, data: bytes, tokens: list[int], logp: float) -> None:
        text = self._paths.ground.text_of(data)
        if not spellings(self._hunt.parts, text, 1):  # tokens that spell another text than they are of
            return
        self.tokens.setdefault(text, tuple(tokens))
        self.logp.setdefault(text, logp)
