"""Finds the best texts of a joint block with too many texts to list them.

The texts are found by searches. They are then scored, and near ties rescored, as
choices are. The product is the set of all texts of the block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.automaton import ProductAutomaton
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import FloatArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding import scoring
from selectrie.decoding.scoring.tolerance import ROUNDING
from selectrie.decoding.trie.exhaustive import ScorePlan, ScoreTask
from selectrie.engine.rendering.product_search import (
    ProductPaths,
    ProductSearch,
    ProductSearchRequest,
    check_fits,
    paths_of_product,
)
from selectrie.engine.requests import choice_scores
from selectrie.engine.requests.choice_scores import SearchReport
from selectrie.engine.requests.constrained_prompt import may_alter
from selectrie.engine.requests.near_ties import EvaluatedSelect
from selectrie.engine.requests.reasons import budget_ended
from selectrie.engine.requests.select import settled
from selectrie.engine.requests.selection import PreparedSelect
from selectrie.engine.requests.session import Session
from selectrie.errors import ChoiceError, InternalError
from selectrie.options import ScoringRule, SearchParams
from selectrie.results import Certificate, Selection
from selectrie.tokenization.encoding import EncodedChoices
from selectrie.tokenization.healing import heal_plan
from selectrie.tokenization.products import ProductContext, TextAlternatives, one_varied

MAX_CONTINUING = 2_000
"""Maximum number of texts scored because they continue a text that was found.

They are needed to know how probable it is that one does.
"""
_MAX_STATES = 100_000
"""Maximum states examined to find out whether one text continues another.

Beyond it, that is assumed, which changes no score.
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Searched:
    """A product of texts with the results of its searches.

    Attributes:
        search_request: The request.
        paths: The token paths of the product.
        search: The results of the searches.
        letters: An automaton that reads the texts of the product byte by byte.
        terminator: The terminator of the texts; never "auto".
        doubt: Why texts may be missing, or "".
    """

    search_request: ProductSearchRequest
    paths: ProductPaths
    search: ProductSearch
    letters: ProductAutomaton
    terminator: str
    doubt: str

    @property
    def continues(self) -> bool:
        """Return whether the terminator is "unless-continued"."""
        return self.terminator == "unless-continued"


def search_product(session: Session, search_request: ProductSearchRequest) -> Selection:
    """Find the k best texts of a product and return a selection among them.

    The choices of the selection are the texts that were found, sorted by their bytes.

    Args:
        session: The model and the task group of the request.
        search_request: The product and the limits of the search.

    Raises:
        ChoiceError: If a text is empty and no text follows, or if more than
            `MAX_CONTINUING` texts would have to be scored because they continue texts
            that were found.
        PromptTooLongError: If the longest path does not fit.
    """
    model = session.model
    letters = _letters(search_request.parts)
    terminator = _terminator(search_request.terminator, letters)
    paths = paths_of_product(model.vocabulary, search_request)
    check_fits(paths, model.limits)
    search = ProductSearch(session, paths, search_request, "eog" if terminator == "eog" else "none")
    search.run()
    searched = _Searched(
        search_request, paths, search, letters, terminator, _doubt(model.vocabulary, search_request, paths.context)
    )
    prepared = _prepared(model.vocabulary, searched)
    if prepared is None:
        if not search_request.cuts:
            raise InternalError("a text of a joint block changes tokens that it was to leave alone")
        return search_product(session, replace(search_request, cuts=False))  # chunks depend on one another after all
    selection, kth = _selection(session, prepared, searched)
    if searched.continues and not selection.certificate.proved and search.left > 0:
        # A text that is worth less than it seemed leaves room for others.
        search.explore(kth, search.left)
        more = _prepared(model.vocabulary, searched)
        selection = selection if more is None else _selection(session, more, searched)[0]
    return selection


def _doubt(vocabulary: Vocabulary, search_request: ProductSearchRequest, context: ProductContext) -> str:
    """Return why the tokenizer may change a text of the product; "" if it changes none.

    Paths of such texts are not searched.
    """
    used = frozenset(b"".join([*_spelled(search_request.parts), context.tail]))
    return may_alter(vocabulary, context.healed + context.space_prefix, used)


def _spelled(parts: tuple[TextAlternatives, ...]) -> list[bytes]:
    """Return all literal texts and options of the parts, in one list."""
    return [option for part in parts for option in ([part] if isinstance(part, bytes) else part)]


def _terminator(terminator: str, letters: ProductAutomaton) -> str:
    """Return the terminator, with "auto" replaced by the one that it selects.

    "auto" is used where no text follows the block and no turn ends.
    """
    if terminator != "auto":
        return terminator
    if letters.can_end(letters.start()):
        reason = "may be empty, and an empty text can only be scored by the text after it"
        raise ChoiceError(f"the block {reason}: give text after it, or fewer options")
    return "unless-continued" if _continue_one_another(letters) else "none"


def _letters(parts: tuple[TextAlternatives, ...]) -> ProductAutomaton:
    """Return an automaton that reads the texts of the product byte by byte."""
    return ProductAutomaton([[*map(list, [part] if isinstance(part, bytes) else part)] for part in parts])


def _continue_one_another(letters: ProductAutomaton) -> bool:
    """Return whether some text of the product is a proper prefix of another.

    Also true if that was not found out within `_MAX_STATES` states.
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
    return bool(waiting)


def _continuing(letters: ProductAutomaton, text: bytes, max_texts: int) -> list[bytes]:
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


def _scored_texts(searched: _Searched) -> list[bytes]:
    """Return the texts to score, sorted.

    These are the texts found, or the first text of the product if none was found. With
    the terminator "unless-continued", all texts that continue them are added.
    """
    texts = dict.fromkeys(searched.search.tokens)
    if not texts:
        texts[b"".join(part if isinstance(part, bytes) else part[0] for part in searched.search_request.parts)] = None
    if searched.continues:
        for text in list(texts):
            texts.update(dict.fromkeys(_continuing(searched.letters, text, MAX_CONTINUING + 1)))
            if len(texts) > MAX_CONTINUING:
                raise ChoiceError(
                    f"more than {MAX_CONTINUING} texts of the block continue another one; "
                    "give text after the block, so that each has an end"
                )
    return sorted(texts)


def _prepared(vocabulary: Vocabulary, searched: _Searched) -> PreparedSelect | None:
    """Return a request to score the texts found, which are its choices.

    Returns None if the tokenizer's path for one of them differs from the one that the
    search found.
    """
    texts = _scored_texts(searched)
    wide, known = searched.paths.context, searched.search.tokens
    paths = wide.paths_of(vocabulary, texts)
    if paths is None or any(known.get(text, path) != path for text, path in zip(texts, paths, strict=True)):
        return None
    context = wide
    if searched.paths.canonical is not None:  # reopen no more of the prompt than one of the texts changes
        others = wide.paths_of(vocabulary, one_varied(searched.search_request.parts))
        context = wide if others is None else wide.narrowed(vocabulary, [*paths, *others])
    n_moved = len(context.tokens) - len(wide.tokens)
    encoded = _encoded(context, [path[n_moved:] for path in paths])
    shown = tuple(text.decode() for text in texts)
    trie = TokenTrie.from_flat(encoded.tokens, encoded.offsets)
    healing = heal_plan(vocabulary, trie, encoded.healed)
    needs = scoring.row_needs(trie, searched.terminator, healing.observations, vocabulary.eog)
    return PreparedSelect(
        texts=shown,
        vocabulary=vocabulary,
        encoded=encoded,
        trie=trie,
        needs=needs,
        healing=healing,
        rule=ScoringRule(),
        custom=None,
        terminator=searched.terminator,
        log_prior=None,
        lengths=scoring.Lengths.of(shown, trie),
        search=SearchParams(k=searched.search_request.k),
        method="exhaustive",
        premises=(),
        plan=ScorePlan(trie, needs),
    )


def _encoded(context: ProductContext, paths: list[tuple[int, ...]]) -> EncodedChoices:
    """Return paths after the context as the record that `encode_choices` returns."""
    own = context.prompt_tokens[len(context.tokens) :].tolist()
    return EncodedChoices(
        context=context.tokens,
        tokens=np.array([token for path in paths for token in path], dtype=np.int32),
        offsets=np.cumsum([0, *map(len, paths)], dtype=np.int64),
        first_scored=np.zeros(len(paths), dtype=np.int32),
        prompt_tokens=context.prompt_tokens,
        healed=context.healed,
        boundary_shift=np.array([_shift(own, path) for path in paths], dtype=np.int32),
        following_bytes=len(context.tail),
        boundary=context.boundary,
    )


def _shift(own: Sequence[int], path: Sequence[int]) -> int:
    """Return how many tokens of `own` the path changes, counted from its first change.

    `own` are the prompt tokens after the context.
    """
    same = next((i for i, (a, b) in enumerate(zip(own, path, strict=False)) if a != b), min(len(own), len(path)))
    return len(own) - same


def _selection(session: Session, prepared: PreparedSelect, searched: _Searched) -> tuple[Selection, float]:
    """Return the selection among the texts found, and the k-th best log-probability.

    Near ties are rescored. The certificate states what the search proves about all
    other texts. The log-probability is comparable with those of the search.
    """
    search, k, longest = searched.search, searched.search_request.k, searched.paths.longest
    handle = session.group.begin(ScoreTask(prepared.encoded.context, prepared.trie, prepared.needs), subject=prepared)
    evaluation = handle.result()
    scored = choice_scores.score(prepared, evaluation, None)
    offset, kth = _offset(prepared, scored, searched), _kth(scored.scores, k)
    search.cost += handle.cost
    log_open = _log_open(prepared, evaluation, searched)
    if scored.log_heal > -np.inf:  # every text begins with the healed bytes
        log_open = min(log_open, scored.log_heal + scored.heal_gap)
    certificate = _certificate(searched, kth, offset, _conditional(log_open, scored.log_heal))
    # Beside the scores it has the shift of a search's open mass (`ScoreBounds`).
    at = prepared.healing.log_heal(evaluation.edge_logp, evaluation.observed)[0]
    log_open -= at if at > -np.inf else 0.0
    if prepared.terminator in ("none", "text"):
        log_open += float(np.log(longest))  # texts that begin with one another may be equally probable
    report = SearchReport(certificate, replace(search.cost, rows_naive=prepared.rows_naive), log_open)
    scored, report, decision = settled(session, EvaluatedSelect(prepared, evaluation, None, report), scored)
    if not search.is_apart(k):  # an open text may be as near
        report = replace(report, certificate=replace(report.certificate, rescored=False))
    signature = choice_scores.signature(prepared, session)
    selection = choice_scores.selection(prepared, evaluation, scored, report, signature, decision=decision)
    ahead = 0.0 if selection.score == kth else selection.score - kth
    margin = min(selection.margin, ahead + certificate.bound_gap)
    return replace(selection, margin=margin), kth + offset


def _kth(scores: FloatArray, k: int) -> float:
    """Return the k-th best of the scores; -inf if there are fewer than k."""
    return float(np.sort(scores)[len(scores) - k]) if len(scores) >= k else -np.inf


def _offset(prepared: PreparedSelect, scored: choice_scores.ChoiceScores, searched: _Searched) -> float:
    """Return the number by which log-probabilities of the search exceed the scores.

    The two differ by the log-probability of the healed bytes, and of tokens between the
    contexts of the search and of the scores. It is computed from a text that has both
    numbers; 0.0 if there is none.
    """
    logp = searched.search.logp
    known = next((i for i, text in enumerate(prepared.texts) if text.encode() in logp), None)
    if known is None or scored.logp[known] == -np.inf:
        return 0.0
    ends = float(scored.terminator[known]) if searched.continues else 0.0
    return logp[prepared.texts[known].encode()] - (float(scored.logp[known]) - ends)


def _log_open(prepared: PreparedSelect, evaluation: scoring.TrieEvaluation, searched: _Searched) -> float:
    """Return the log of a bound on the probability of all texts that were not found.

    The probability is that after the context of `prepared`, healed bytes included. That
    of the tokens between the two contexts is taken from a text that was searched and
    scored; if there is none, the bound is inf.
    """
    search = searched.search
    if not search.open_mass:
        return -np.inf
    if len(prepared.encoded.context) == len(searched.paths.context.tokens):
        return float(np.log(search.open_mass))
    ends = searched.terminator if searched.terminator == "eog" else "none"  # as in the search
    logp = scoring.path_scores(prepared.trie, evaluation, ends).logp[prepared.trie.path_of]
    for text, scored in zip(prepared.texts, logp.tolist(), strict=True):
        found = search.logp.get(text.encode(), -np.inf)
        if min(found, scored) > -np.inf:
            return float(np.log(search.open_mass) - (found - scored))
    return np.inf


def _conditional(log_open: float, log_heal: float) -> float:
    """Return a bound on a probability, given the healed bytes.

    Their log-probability is at least `log_heal`.
    """
    if log_open == -np.inf:
        return 0.0
    return 1.0 if log_open >= log_heal else math.exp(log_open - log_heal)


def _certificate(searched: _Searched, kth: float, offset: float, open_mass: float) -> Certificate:
    """Return the certificate of the search.

    `kth` is the k-th best score of the texts found, `offset` is that of `_offset`, and
    `open_mass` the bound on the probability of other texts.
    """
    search, doubt = searched.search, searched.doubt
    gap = np.inf if search.best_open == -np.inf else kth - (search.best_open - offset)
    reason = "" if gap > ROUNDING else budget_ended(search.n_evaluated)
    return Certificate.best_first(
        bound_gap=gap,
        open_mass=open_mass,
        nodes_evaluated=search.n_evaluated,
        reason=doubt or reason,
    )
