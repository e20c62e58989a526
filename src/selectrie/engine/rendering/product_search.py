"""Searches the texts of a joint block with too many texts to list them.

The texts form a product: one alternative of each part, in order. The module finds the
token paths of the product and searches them for the most probable texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from selectrie.core.automaton import Automaton, ChoiceAutomaton, ProductAutomaton
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost, Limits
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.automaton.automaton_task import AutomatonOutcome, AutomatonSpec
from selectrie.decoding.automaton.best_first import AutomatonSearch
from selectrie.decoding.beam.records import BeamSpec
from selectrie.decoding.beam.search import BeamTask
from selectrie.decoding.scoring.tolerance import ROUNDING
from selectrie.engine.requests.session import Session
from selectrie.errors import OptionError
from selectrie.options import BeamSearchParams, SearchParams
from selectrie.tokenization.canonical import is_cut
from selectrie.tokenization.encoding import PromptText
from selectrie.tokenization.products import (
    ProductContext,
    TextAlternatives,
    cut_product,
    neighbours,
    open_context,
    spellings,
)

MAX_NODES = 6_000
"""Nodes that a search evaluates if no budget is given."""
MAX_TEXTS = 64
"""Number of texts found that are kept."""
_BEAM_PART = 2
"""Divisor of the budget: one such part is kept for a wide beam.

The beam, and the texts near its best, are evaluated if the rest proved nothing.
"""
_MAX_CLIMBS = 8
"""Maximum number of times that texts near the best one are evaluated."""
_NARROW, _WIDE = 8, 64
"""Width of the first beam, and maximum width of a wide one."""
_SECOND_NODES = 100
"""Nodes that may be spent on making certain which text is the second.

Up to twice the nodes of the proof of the first k are added.
"""


@dataclass(frozen=True, slots=True, eq=False)
class ProductSearchRequest:
    """A search for the best texts of a joint block with too many texts to list.

    Attributes:
        prompt: The page before the block.
        parts: For each part literal bytes, or a sorted tuple of alternatives.
        following: Bytes of the text after the block.
        terminator: "auto", "eog" or "text".
        k: How many of the best texts must be proven. A runner-up is always searched.
        budget: Maximum number of nodes to evaluate; None means `MAX_NODES`.
        width: Number of nodes in a model call.
        cuts: Whether the block may be cut into independent chunks.
    """

    prompt: PromptText
    parts: tuple[TextAlternatives, ...]
    following: bytes
    terminator: str
    k: int
    budget: int | None
    width: int
    cuts: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class ProductPaths:
    """The token paths of a product of texts.

    Attributes:
        context: The context that the paths follow.
        automaton: Automaton that accepts the paths.
        longest: Maximum number of tokens of a path.
        canonical: Returns whether a path is canonical (`AutomatonSpec`). None if the
            automaton accepts canonical paths only.
        canonical_path: Returns the canonical path for the text of a path. None if
            `canonical` is None.
        may_start: Returns whether a canonical path may begin with these tokens
            (`BeamSpec`). None if `canonical` is None.
    """

    context: ProductContext
    automaton: Automaton
    longest: int
    canonical: Callable[[Sequence[int]], bool] | None = None
    canonical_path: Callable[[Sequence[int]], Sequence[int]] | None = None
    may_start: Callable[[Sequence[int]], bool] | None = None


def paths_of_product(vocabulary: Vocabulary, search_request: ProductSearchRequest) -> ProductPaths:
    """Return the token paths of the product.

    If the block can be cut into chunks, they are the chunks' canonical paths. Otherwise
    they are all token paths, each of which is checked for being canonical.
    """
    cut = (
        cut_product(vocabulary, search_request.prompt, search_request.parts, search_request.following)
        if search_request.cuts
        else None
    )
    if cut is not None:
        automaton = ProductAutomaton(cut.paths)
        return ProductPaths(cut.context, automaton, automaton.longest)
    context = open_context(vocabulary, search_request.prompt, search_request.parts, search_request.following)
    if context is None:
        raise OptionError(
            "options",
            "of the block",
            "fewer: this model's tokens do not spell them byte by byte, so they have to be listed",
        )
    return _of_grammar(vocabulary, search_request.parts, context)


def _of_grammar(vocabulary: Vocabulary, parts: tuple[TextAlternatives, ...], context: ProductContext) -> ProductPaths:
    """Return every token path that spells a text of the product.

    Only canonical paths count, so each path found must be checked.
    """
    from selectrie.grammar import Grammar
    from selectrie.grammar.rules.expressions import Alternatives, RuleSet, Text
    from selectrie.grammar.rules.expressions import Concatenation as InOrder

    items = [
        Text(part) if isinstance(part, bytes) else Alternatives(tuple(Text(option) for option in part))
        for part in parts
    ]
    grammar = Grammar(RuleSet({"root": InOrder((*items, Text(context.tail)))}), name="joint")

    def own(tokens: Sequence[int]) -> Sequence[int]:
        paths = context.paths_of(vocabulary, [context.text_of(vocabulary.decode(tokens))])
        return () if paths is None else paths[0]

    def may_start(tokens: Sequence[int]) -> bool:
        spelled = vocabulary.decode(tokens)
        if len(spelled) < n_before or is_cut(spelled):
            return True
        paths = context.paths_of(vocabulary, [spelled[n_before:]])
        return paths is None or paths[0][: len(tokens) - 1] == tuple(tokens[:-1])

    n_before = len(context.healed) + len(context.space_prefix)
    longest = sum(len(part) if isinstance(part, bytes) else max(map(len, part)) for part in parts)
    longest += n_before + len(context.tail)
    return ProductPaths(
        context,
        grammar.automaton(vocabulary, prefix=context.healed + context.space_prefix),
        longest,
        canonical=lambda tokens: tuple(own(tokens)) == tuple(tokens),
        canonical_path=own,
        may_start=may_start,
    )


def check_fits(paths: ProductPaths, limits: Limits) -> None:
    """Raise `PromptTooLongError` if the longest path does not fit after its context."""
    required = len(paths.context.tokens) + paths.longest + 1
    if required > limits.nodes:
        raise limits.too_long(required, "shorten the page before the block")


class ProductSearch:
    """Searches a product of texts in several ways and collects the results.

    Attributes:
        tolerance: Nats below which the layout of calls may change the order of two
            log-probabilities.
        tokens: Tokens of each text found.
        logp: Log-probability of each text found: that of its whole path after
            `ProductContext.tokens`, healed bytes included.
        best_open: Bound on the log-probability of every other text.
        open_mass: Bound on the probability of all other texts together.
        n_evaluated: Number of rows read.
        cost: Cost of all searches.
    """

    def __init__(
        self,
        session: Session,
        paths: ProductPaths,
        search_request: ProductSearchRequest,
        terminator: str,
    ) -> None:
        self._group, self._vocabulary = session.group, session.model.vocabulary
        self._fill_rows = session.fill_rows
        self._paths, self._search_request, self._terminator = paths, search_request, terminator
        self.tolerance = (session.tolerance or 0.0) * math.sqrt(2 * (paths.longest + 1))
        self.tokens: dict[bytes, tuple[int, ...]] = {}
        self.logp: dict[bytes, float] = {}
        self.best_open, self.open_mass = np.inf, 1.0
        self.n_evaluated, self.cost = 0, Cost()

    @property
    def left(self) -> int:
        """Return how many nodes of the budget are left."""
        return (self._search_request.budget or MAX_NODES) - self.n_evaluated

    def run(self) -> None:
        """Find the k best texts, and at least the two best, within the budget.

        A narrow beam finds texts to compare with. Then every path that could be better
        than the k-th of them is evaluated. If that succeeds, the neighbours of the best
        text and every path that could be better than the second text are evaluated,
        with a small part of the budget. Otherwise a wide beam follows, and then the
        neighbours of its best text.
        """
        k, n_best = self._search_request.k, max(2, self._search_request.k)
        self._beam(_NARROW)
        before = self.n_evaluated
        self.explore(self.kth(k), self.left - self.left // _BEAM_PART)
        spent = self.n_evaluated - before
        if not self.is_certain(k):
            self._beam(min(_WIDE, self.left // (2 * self._paths.longest)))
            self._climb(self.left)
        elif not self.is_certain(n_best):
            self._climb(min(self.left, spent + _SECOND_NODES))
            self.explore(self.kth(n_best), min(self.left, 2 * spent + _SECOND_NODES))

    def _climb(self, budget: int) -> None:
        """Evaluate the texts that differ from the best one in a single option.

        If one of them is better, its neighbours follow, and so on for at most
        `_MAX_CLIMBS` rounds and `budget` nodes.
        """
        context, parts = self._paths.context, self._search_request.parts
        for _ in range(_MAX_CLIMBS):
            if not self.logp or budget < 1:
                return
            best = min(self.logp, key=lambda text: (-self.logp[text], text))
            near = neighbours(parts, best)
            paths = context.paths_of(self._vocabulary, near) if near else None
            if paths is None:
                return
            before = self.n_evaluated
            self._read(
                ChoiceAutomaton(TokenTrie.from_sequences(paths)),
                (self.kth(max(2, self._search_request.k)), budget),
            )
            budget -= self.n_evaluated - before
            if self.kth(1) <= self.logp[best]:
                return

    def kth(self, k: int) -> float:
        """Return the log-probability of the k-th best text found, or -inf."""
        ranked = sorted(self.logp.values(), reverse=True)
        return ranked[k - 1] if len(ranked) >= k else -np.inf

    def is_apart(self, k: int) -> bool:
        """Return whether no layout can raise another text to the k-th place."""
        return bool(self.best_open == -np.inf or self.kth(k) - self.best_open > self.tolerance)

    def is_certain(self, k: int) -> bool:
        """Return whether the first k texts found are the best k of the product."""
        return self.best_open == -np.inf or self.kth(k) > self.best_open + ROUNDING

    def explore(self, min_logp: float, budget: int) -> None:
        """Evaluate all that may reach `min_logp`, best first, in `budget` nodes."""
        if budget < 1:
            return
        outcome = self._read(self._paths.automaton, (min_logp, budget))
        kth = outcome.paths[MAX_TEXTS - 1].score if len(outcome.paths) >= MAX_TEXTS else -np.inf
        min_read = max(kth, min_logp) - self.tolerance - 2 * ROUNDING
        self.best_open = min(self.best_open, max(outcome.best_open, min_read))
        self.open_mass = min(self.open_mass, outcome.open_mass)
        self._keep_best()

    def _read(self, automaton: Automaton, limits: tuple[float, int]) -> AutomatonOutcome:
        """Search an automaton, add the texts found and return the outcome.

        `limits` are the least log-probability of interest and the maximum number of
        nodes.
        """
        paths, (min_logp, budget) = self._paths, limits
        spec = AutomatonSpec(
            self._vocabulary,
            max_tokens=paths.longest,
            terminator=self._terminator,
            search=SearchParams(k=MAX_TEXTS, budget_nodes=budget, width=self._search_request.width),
            canonical=paths.canonical,
            canonical_path=paths.canonical_path,
            tolerance=self.tolerance + ROUNDING,
            min_score=min_logp,
        )
        handle = self._group.begin(
            AutomatonSearch(paths.context.tokens, automaton, spec, fill_rows=self._fill_rows), subject=spec
        )
        outcome = handle.result()
        for path in outcome.paths:
            self._add(path.data, path.tokens.tolist(), path.score)
        self.n_evaluated += outcome.n_evaluated
        self.cost += handle.cost
        return outcome

    def _keep_best(self) -> None:
        """Drop all but the `MAX_TEXTS` best texts; the bounds then cover the others."""
        for text in sorted(self.logp, key=lambda text: (-self.logp[text], text))[MAX_TEXTS:]:
            del self.tokens[text]
            logp = self.logp.pop(text)
            self.best_open = max(self.best_open, logp)
            self.open_mass += float(np.exp(logp))

    def _beam(self, width: int) -> None:
        """Search with a beam of this width, and add the texts found."""
        n_best = max(2, self._search_request.k)
        if width < n_best:
            return
        paths = self._paths
        beam = BeamSearchParams(
            width=width, n=n_best, max_tokens=paths.longest, canonical_only=paths.canonical is not None
        )
        spec = BeamSpec(self._vocabulary, beam, self._terminator, canonical=paths.canonical, may_start=paths.may_start)
        handle = self._group.begin(BeamTask(paths.context.tokens, paths.automaton, spec), subject=spec)
        outcome = handle.result()
        for path in outcome.finished:
            self._add(path.data, path.tokens.tolist(), path.logp)
        self.n_evaluated += outcome.n_evaluated
        self.cost += handle.cost

    def _add(self, data: bytes, tokens: list[int], logp: float) -> None:
        text = self._paths.context.text_of(data)
        if not spellings(self._search_request.parts, text, 1):  # tokens that spell a text outside the product
            return
        self.tokens.setdefault(text, tuple(tokens))
        self.logp.setdefault(text, logp)
