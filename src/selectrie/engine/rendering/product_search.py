"""Finds the best texts of a joint block with too many texts to list them.

The texts form a product: one alternative of each part, in order. The token paths of the
product are searched for the most probable texts. These are then scored, and near ties
rescored, as choices are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.automaton import Automaton, ChoiceAutomaton, ProductAutomaton
from selectrie.core.numerics import common_length
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost, FloatArray, Limits
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.automaton.automaton_search import AutomatonSearch
from selectrie.decoding.automaton.automaton_task import AutomatonOutcome, AutomatonSpec
from selectrie.decoding.beam.expansion import BeamSpec
from selectrie.decoding.beam.search import BeamTask
from selectrie.decoding.scoring.evaluation import TrieEvaluation, row_needs
from selectrie.decoding.scoring.paths import path_scores
from selectrie.decoding.scoring.rules import Lengths
from selectrie.decoding.scoring.tolerance import ROUNDING
from selectrie.decoding.trie.exhaustive import ScorePlan, ScoreTask
from selectrie.engine.requests import choice_scores
from selectrie.engine.requests.choice_scores import SearchReport
from selectrie.engine.requests.constrained_prompt import may_alter
from selectrie.engine.requests.near_ties import EvaluatedSelect
from selectrie.engine.requests.reasons import reason_budget_ended
from selectrie.engine.requests.select import settle_scores
from selectrie.engine.requests.selection import PreparedSelect
from selectrie.engine.requests.session import Session
from selectrie.errors import ChoiceError, InternalError, OptionError
from selectrie.options import BeamSearchParams, SearchParams
from selectrie.results import Certificate, Selection
from selectrie.tokenization.canonical import is_cut
from selectrie.tokenization.encoding import EncodedChoices, PromptText
from selectrie.tokenization.healing import heal_plan
from selectrie.tokenization.products import (
    ProductContext,
    TextAlternatives,
    cut_product,
    neighbours,
    open_context,
    spellings,
    vary_each_part,
)

MAX_NODES = 6_000
"""Maximum number of nodes that a search evaluates if no budget is given."""
MAX_TEXTS = 64
"""Maximum number of found texts that are kept."""
_BEAM_PART = 2
"""Divisor of the budget: one such part is reserved for a wide beam.

The beam and the neighbours of its best text use it if the rest proved nothing.
"""
_MAX_CLIMBS = 8
"""Maximum number of rounds in which neighbours of the best text are evaluated."""
_SECOND_NODES = 100
"""Maximum number of nodes for proving which text is the second.

Up to twice the nodes of the proof of the first k are added.
"""
MAX_CONTINUING = 2_000
"""Maximum number of texts scored because they continue a found text.

Their probability is subtracted from the found text's ("unless-continued").
"""
_MAX_STATES = 100_000
"""Maximum number of states examined to see whether one text continues another.

Beyond it, one is assumed to, which changes no score.
"""
_NARROW, _WIDE = 8, 64
"""Width of the first beam, and maximum width of a wide one."""


@dataclass(frozen=True, slots=True, eq=False)
class ProductSearchRequest:
    """A search for the best texts of a joint block with too many texts to list.

    Attributes:
        prompt: The page before the block.
        parts: For each part literal bytes, or a sorted tuple of alternatives.
        following: Bytes of the text after the block.
        terminator: "auto", "eog" or "text".
        k: Number of best texts to prove. A runner-up is always searched.
        budget: Maximum number of nodes to evaluate; None means `MAX_NODES`.
        width: Number of nodes in a model call.
        cuts: Whether the block may be tokenized in independent chunks.
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

    If the block can be cut into independent chunks, they are the chunks' canonical
    paths (the tokenizer's own). Otherwise they are all token paths, and each path found
    is checked for being canonical.
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
    return _paths_of_grammar(vocabulary, search_request.parts, context)


def _paths_of_grammar(
    vocabulary: Vocabulary, parts: tuple[TextAlternatives, ...], context: ProductContext
) -> ProductPaths:
    """Return every token path that spells a text of the product.

    Only canonical paths count, so each path found must be checked.
    """
    from selectrie.grammar import Grammar
    from selectrie.grammar.rules import Alternatives, LiteralText, RuleSet
    from selectrie.grammar.rules import Concatenation as InOrder

    items = [
        LiteralText(part) if isinstance(part, bytes) else Alternatives(tuple(LiteralText(option) for option in part))
        for part in parts
    ]
    grammar = Grammar(RuleSet({"root": InOrder((*items, LiteralText(context.tail)))}), name="joint")

    def own(tokens: Sequence[int]) -> Sequence[int]:
        paths = context.paths_of(vocabulary, [context.text_of(vocabulary.decode(tokens))])
        return () if paths is None else paths[0]

    def may_start(tokens: Sequence[int]) -> bool:
        spelled = vocabulary.decode(tokens)
        # Before the text begins, or inside a character, nothing can be told.
        if len(spelled) < n_before or is_cut(spelled):
            return True
        paths = context.paths_of(vocabulary, [spelled[n_before:]])
        # The last token may still change with the text that follows.
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
        tolerance: Difference in nats below which the layout of model calls may change
            the order of two log-probabilities.
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
    def nodes_left(self) -> int:
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
        self._search_beam(_NARROW)
        before = self.n_evaluated
        self.explore(self.kth(k), self.nodes_left - self.nodes_left // _BEAM_PART)
        spent = self.n_evaluated - before
        if not self.is_certain(k):
            self._search_beam(min(_WIDE, self.nodes_left // (2 * self._paths.longest)))
            self._search_neighbours(self.nodes_left)
        elif not self.is_certain(n_best):
            self._search_neighbours(min(self.nodes_left, spent + _SECOND_NODES))
            self.explore(self.kth(n_best), min(self.nodes_left, 2 * spent + _SECOND_NODES))

    def _search_neighbours(self, budget: int) -> None:
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
            self._search_automaton(
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
        """Return whether no layout of calls can move another text to the first k."""
        return bool(self.best_open == -np.inf or self.kth(k) - self.best_open > self.tolerance)

    def is_certain(self, k: int) -> bool:
        """Return whether the first k texts found are the best k of the product."""
        return self.best_open == -np.inf or self.kth(k) > self.best_open + ROUNDING

    def explore(self, min_logp: float, budget: int) -> None:
        """Evaluate paths that may reach `min_logp`, best first, in `budget` nodes."""
        if budget < 1:
            return
        outcome = self._search_automaton(self._paths.automaton, (min_logp, budget))
        kth = outcome.paths[MAX_TEXTS - 1].score if len(outcome.paths) >= MAX_TEXTS else -np.inf
        min_read = max(kth, min_logp) - self.tolerance - 2 * ROUNDING
        self.best_open = min(self.best_open, max(outcome.best_open, min_read))
        self.open_mass = min(self.open_mass, outcome.open_mass)
        self._keep_best()

    def _search_automaton(self, automaton: Automaton, limits: tuple[float, int]) -> AutomatonOutcome:
        """Search an automaton, add the texts found and return the outcome.

        Args:
            automaton: Accepts the token paths.
            limits: The least log-probability of interest, and the maximum number of
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
        handle = self._group.begin(AutomatonSearch(paths.context.tokens, automaton, spec, fill_rows=self._fill_rows))
        outcome = handle.result()
        for path in outcome.paths:
            self._add_text(path.data, path.tokens.tolist(), path.score)
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

    def _search_beam(self, width: int) -> None:
        """Search with a beam of this width, and add the texts found."""
        n_best = max(2, self._search_request.k)
        # It could not keep enough paths.
        if width < n_best:
            return
        paths = self._paths
        beam = BeamSearchParams(
            width=width, n=n_best, max_tokens=paths.longest, canonical_only=paths.canonical is not None
        )
        spec = BeamSpec(
            self._vocabulary,
            beam,
            paths.may_start,
            terminator=self._terminator,
            canonical=paths.canonical,
        )
        handle = self._group.begin(BeamTask(paths.context.tokens, paths.automaton, spec))
        outcome = handle.result()
        for path in outcome.finished:
            self._add_text(path.data, path.tokens.tolist(), path.logp)
        self.n_evaluated += outcome.n_evaluated
        self.cost += handle.cost

    def _add_text(self, data: bytes, tokens: list[int], logp: float) -> None:
        """Add the text of a token path, if it belongs to the product."""
        text = self._paths.context.text_of(data)
        if not spellings(self._search_request.parts, text, 1):  # tokens that spell a text outside the product
            return
        self.tokens.setdefault(text, tuple(tokens))
        self.logp.setdefault(text, logp)


@dataclass(frozen=True, slots=True, eq=False)
class _SearchedProduct:
    """A product of texts with the results of its searches.

    Attributes:
        search_request: The request.
        paths: The token paths of the product.
        search: The results of the searches.
        letters: An automaton that reads the texts of the product byte by byte.
        terminator: The terminator of the texts; never "auto".
        doubt: Reason why texts may be missing from the search, or "".
    """

    search_request: ProductSearchRequest
    paths: ProductPaths
    search: ProductSearch
    letters: ProductAutomaton
    terminator: str
    doubt: str

    @property
    def continues(self) -> bool:
        """Return whether found texts lose the probability of texts that continue them.

        The terminator is then "unless-continued".
        """
        return self.terminator == "unless-continued"


def search_product(session: Session, search_request: ProductSearchRequest) -> Selection:
    """Find the k best texts of a product and return a selection among them.

    The choices of the selection are the found texts, sorted by their bytes.

    Args:
        session: The model and the task group of the request.
        search_request: The product and the limits of the search.

    Raises:
        ChoiceError: If a text is empty and no text follows, or if more than
            `MAX_CONTINUING` texts would have to be scored because they continue found
            texts.
        PromptTooLongError: If the longest path does not fit.
    """
    model = session.model
    letters = _byte_automaton(search_request.parts)
    terminator = _terminator(search_request.terminator, letters)
    paths = paths_of_product(model.vocabulary, search_request)
    check_fits(paths, model.limits)
    search = ProductSearch(session, paths, search_request, "eog" if terminator == "eog" else "none")
    search.run()
    searched = _SearchedProduct(
        search_request,
        paths,
        search,
        letters,
        terminator,
        _reason_for_missing(model.vocabulary, search_request, paths.context),
    )
    prepared = _prepare_scoring(model.vocabulary, searched)
    if prepared is None:
        if not search_request.cuts:
            raise InternalError("a text of a joint block changes tokens that it was to leave alone")
        return search_product(session, replace(search_request, cuts=False))  # chunks depend on one another after all
    selection, kth = _score_texts(session, prepared, searched)
    if searched.continues and not selection.certificate.proved and search.nodes_left > 0:
        # A text that is worth less than it seemed leaves room for others.
        search.explore(kth, search.nodes_left)
        more = _prepare_scoring(model.vocabulary, searched)
        selection = selection if more is None else _score_texts(session, more, searched)[0]
    return selection


def _reason_for_missing(vocabulary: Vocabulary, search_request: ProductSearchRequest, context: ProductContext) -> str:
    """Return why the tokenizer may change a text of the product; "" if it cannot.

    Paths of changed texts are not searched.
    """
    used = frozenset(b"".join([*_list_literals(search_request.parts), context.tail]))
    return may_alter(vocabulary, context.healed + context.space_prefix, used)


def _list_literals(parts: tuple[TextAlternatives, ...]) -> list[bytes]:
    """Return all literal texts and options of the parts, in one list."""
    return [option for part in parts for option in ([part] if isinstance(part, bytes) else part)]


def _terminator(terminator: str, letters: ProductAutomaton) -> str:
    """Return the terminator; "auto" is replaced by the one that it selects.

    "auto" is used where no text follows the block and no turn ends.
    """
    if terminator != "auto":
        return terminator
    if letters.can_end(letters.start()):
        reason = "may be empty, and an empty text can only be scored by the text after it"
        raise ChoiceError(f"the block {reason}: give text after it, or fewer options")
    return "unless-continued" if _continue_one_another(letters) else "none"


def _byte_automaton(parts: tuple[TextAlternatives, ...]) -> ProductAutomaton:
    """Return an automaton that reads the texts of the product byte by byte."""
    return ProductAutomaton([[*map(list, [part] if isinstance(part, bytes) else part)] for part in parts])


def _continue_one_another(letters: ProductAutomaton) -> bool:
    """Return whether some text of the product is a proper prefix of another.

    Also True if that was not found out within `_MAX_STATES` states.
    """
    waiting = [letters.start()]
    seen = set(waiting)
    while waiting and len(seen) < _MAX_STATES:
        state = waiting.pop()
        allowed = letters.allowed(state).tolist()
        if allowed and letters.can_end(state):
            return True
        for letter in allowed:
            after = letters.advance(state, letter)
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    # Not found out within the limit.
    return bool(waiting)


def _find_continuations(letters: ProductAutomaton, text: bytes, max_texts: int) -> list[bytes]:
    """Return up to `max_texts` other texts of the product that begin with `text`."""
    state = letters.start()
    for letter in text:
        state = letters.advance(state, letter)
    result: list[bytes] = []
    waiting = [(letters.advance(state, letter), text + bytes([letter])) for letter in letters.allowed(state).tolist()]
    while waiting and len(result) < max_texts:
        state, longer = waiting.pop()
        if letters.can_end(state):
            result.append(longer)
        waiting += [
            (letters.advance(state, letter), longer + bytes([letter])) for letter in letters.allowed(state).tolist()
        ]
    return result


def _texts_to_score(searched: _SearchedProduct) -> list[bytes]:
    """Return the texts to score, sorted.

    These are the found texts, or the first text of the product without any. With the
    terminator "unless-continued", all texts that continue them are added.
    """
    texts = dict.fromkeys(searched.search.tokens)
    if not texts:
        texts[b"".join(part if isinstance(part, bytes) else part[0] for part in searched.search_request.parts)] = None
    if searched.continues:
        for text in list(texts):
            texts.update(dict.fromkeys(_find_continuations(searched.letters, text, MAX_CONTINUING + 1)))
            if len(texts) > MAX_CONTINUING:
                raise ChoiceError(
                    f"more than {MAX_CONTINUING} texts of the block continue another one; "
                    "give text after the block, so that each has an end"
                )
    return sorted(texts)


def _prepare_scoring(vocabulary: Vocabulary, searched: _SearchedProduct) -> PreparedSelect | None:
    """Return the request to score the found texts as choices.

    None if the tokenizer's path for one of them differs from the path that the search
    found.
    """
    texts = _texts_to_score(searched)
    wide, known = searched.paths.context, searched.search.tokens
    paths = wide.paths_of(vocabulary, texts)
    if paths is None or any(known.get(text, path) != path for text, path in zip(texts, paths, strict=True)):
        return None
    context = wide
    if searched.paths.canonical is not None:  # reopen no more of the prompt than one of the texts changes
        others = wide.paths_of(vocabulary, vary_each_part(searched.search_request.parts))
        context = wide if others is None else wide.extend_unchanged(vocabulary, [*paths, *others])
    n_moved = len(context.tokens) - len(wide.tokens)
    encoded = _to_encoded_choices(context, [path[n_moved:] for path in paths])
    shown = tuple(text.decode() for text in texts)
    trie = TokenTrie.from_flat(encoded.tokens, encoded.offsets)
    healing = heal_plan(vocabulary, trie, encoded.healed)
    needs = row_needs(trie, searched.terminator, healing.observations, vocabulary.eog)
    return PreparedSelect(
        texts=shown,
        vocabulary=vocabulary,
        encoded=encoded,
        trie=trie,
        needs=needs,
        healing=healing,
        terminator=searched.terminator,
        lengths=Lengths.of(shown, trie),
        search=SearchParams(k=searched.search_request.k),
        plan=ScorePlan(trie, needs),
    )


def _to_encoded_choices(context: ProductContext, paths: list[tuple[int, ...]]) -> EncodedChoices:
    """Return paths after the context in the form that `encode_choices` returns."""
    own = context.prompt_tokens[len(context.tokens) :]
    shifts = [len(own) - common_length(own, np.array(path, dtype=np.int32)) for path in paths]
    return EncodedChoices(
        context=context.tokens,
        tokens=np.array([token for path in paths for token in path], dtype=np.int32),
        offsets=np.cumsum([0, *map(len, paths)], dtype=np.int64),
        first_scored=np.zeros(len(paths), dtype=np.int32),
        prompt_tokens=context.prompt_tokens,
        healed=context.healed,
        boundary_shift=np.array(shifts, dtype=np.int32),
        following_bytes=len(context.tail),
        boundary=context.boundary,
    )


def _score_texts(session: Session, prepared: PreparedSelect, searched: _SearchedProduct) -> tuple[Selection, float]:
    """Score the found texts; return the selection and the k-th best log-probability.

    Near ties are scored again. The certificate states what the search proves about all
    other texts. The log-probability is comparable with those of the search.
    """
    search, k, longest = searched.search, searched.search_request.k, searched.paths.longest
    handle = session.group.begin(ScoreTask(prepared.encoded.context, prepared.trie, prepared.needs))
    evaluation = handle.result()
    scored = choice_scores.score(prepared, evaluation, None)
    offset, kth = _logp_offset(prepared, scored, searched), _kth_best(scored.scores.low, k)
    search.cost += handle.cost
    log_open = _log_open_mass(prepared, evaluation, searched)
    if scored.heal.low > -np.inf:  # every text begins with the healed bytes
        log_open = min(log_open, scored.heal.high)
    certificate = _certificate(searched, kth, offset, _bound_given_healed(log_open, scored.heal.low))
    # What a search subtracts, as in `SearchReport`.
    at = prepared.healing.log_heal(evaluation.edge_logp, evaluation.observed).low
    log_open -= at if at > -np.inf else 0.0
    if prepared.terminator in ("none", "text"):
        log_open += float(np.log(longest))  # texts that begin with one another may be equally probable
    report = SearchReport(certificate, replace(search.cost, rows_naive=prepared.rows_naive), log_open)
    scored, report, decision = settle_scores(session, EvaluatedSelect(prepared, evaluation, None, report), scored)
    if not search.is_apart(k):  # an open text may be as near
        report = replace(report, certificate=replace(report.certificate, rescored=False))
    signature = choice_scores.signature(prepared, session)
    selection = choice_scores.selection(prepared, evaluation, scored, report, signature, decision=decision)
    ahead = 0.0 if selection.score == kth else selection.score - kth
    margin = min(selection.margin, ahead + certificate.bound_gap)
    return replace(selection, margin=margin), kth + offset


def _kth_best(scores: FloatArray, k: int) -> float:
    """Return the k-th best of the scores; -inf if there are fewer than k."""
    return float(np.sort(scores)[len(scores) - k]) if len(scores) >= k else -np.inf


def _logp_offset(prepared: PreparedSelect, scored: choice_scores.ChoiceScores, searched: _SearchedProduct) -> float:
    """Return by how much the search's log-probabilities exceed the scores.

    They differ by the log-probability of the healed bytes, and of tokens between the
    contexts of the search and of the scores. The difference is taken from a text that
    has both numbers; 0.0 if there is none.
    """
    logp = searched.search.logp
    known = next((i for i, text in enumerate(prepared.texts) if text.encode() in logp), None)
    if known is None or scored.logp.low[known] == -np.inf:
        return 0.0
    ends = float(scored.terminator[known]) if searched.continues else 0.0
    return logp[prepared.texts[known].encode()] - (float(scored.logp.low[known]) - ends)


def _log_open_mass(prepared: PreparedSelect, evaluation: TrieEvaluation, searched: _SearchedProduct) -> float:
    """Return the log of a bound on the probability of all texts that were not found.

    It is a probability after the context of `prepared`, healed bytes included. The
    tokens between the two contexts are accounted for by a text that was both searched
    and scored; without one, the bound is inf.
    """
    search = searched.search
    if not search.open_mass:
        return -np.inf
    if len(prepared.encoded.context) == len(searched.paths.context.tokens):
        return float(np.log(search.open_mass))
    ends = searched.terminator if searched.terminator == "eog" else "none"  # as in the search
    logp = path_scores(prepared.trie, evaluation, ends).logp.low[prepared.trie.path_of]
    for text, scored in zip(prepared.texts, logp.tolist(), strict=True):
        found = search.logp.get(text.encode(), -np.inf)
        if min(found, scored) > -np.inf:
            return float(np.log(search.open_mass) - (found - scored))
    return np.inf


def _bound_given_healed(log_open: float, log_heal: float) -> float:
    """Return the bound exp(`log_open`) conditioned on the healed bytes, at most 1.

    The log-probability of the healed bytes is at least `log_heal`.
    """
    if log_open == -np.inf:
        return 0.0
    return 1.0 if log_open >= log_heal else math.exp(log_open - log_heal)


def _certificate(searched: _SearchedProduct, kth: float, offset: float, open_mass: float) -> Certificate:
    """Return the certificate of the search.

    Args:
        searched: The product and its searches.
        kth: The k-th best score of the found texts.
        offset: Result of `_logp_offset`.
        open_mass: Bound on the probability of all other texts together.
    """
    search, doubt = searched.search, searched.doubt
    gap = np.inf if search.best_open == -np.inf else kth - (search.best_open - offset)
    reason = "" if gap > ROUNDING else reason_budget_ended(search.n_evaluated)
    return Certificate.best_first(
        bound_gap=gap,
        open_mass=open_mass,
        nodes_evaluated=search.n_evaluated,
        reason=doubt or reason,
    )
