"""Select among the texts of a grammar, listed or searched.

This leads from a request to its task and from the texts found to a `Selection`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from selectrie.core.model import Model
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost, FloatArray
from selectrie.decoding import scoring
from selectrie.decoding.automaton.best_first import AutomatonOutcome, AutomatonSearch
from selectrie.decoding.automaton.finished import FoundPath
from selectrie.engine.requests.constrained_prompt import (
    Constrained,
    Space,
    about,
    constrain,
    is_prefix_free,
    nothing_found,
    shown,
)
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.requests.unproved import search_ended
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import IncompatibleOptionsError, OptionError
from selectrie.grammar import Grammar
from selectrie.options import BEAM_TERMINATORS, SearchParams, one_of
from selectrie.results import Certificate, ChoiceTable, GrammarFacts, Selection, Signature
from selectrie.tokenization.prompts import Prompt

MOST_LISTED = 100_000
"""Maximum number of texts of a grammar for which all are choices.

A grammar with more is searched, unless it is a list of texts.
"""
RULES = ("joint", "token_mean")
"""Rules for which a prefix gives an upper bound, so that unseen texts can be pruned."""


def listed(grammar: Grammar) -> tuple[str, ...] | None:
    """Return all texts of a grammar, or None if it has to be searched.

    There are at most `MOST_LISTED`, unless the grammar is a list of texts.
    """
    if not isinstance(grammar, Grammar):
        raise OptionError("grammar", grammar, "a Grammar (Grammar.from_gbnf, from_regex, …)")
    return grammar.listed(MOST_LISTED)  # `constrain` refuses a grammar that cannot be compiled


@dataclass(frozen=True, slots=True, eq=False)
class PreparedGrammarSelect:
    """A request for the best text of a grammar, checked and tokenized."""

    asked: Constrained
    search: SearchParams
    rule: str


def prepare(model: Model, prompt: Prompt, grammar: Grammar, request: SelectRequest) -> PreparedGrammarSelect:
    """Check a selection among the texts of a grammar that are not listed."""
    rule = request.named_rule().name
    if request.custom is not None or rule not in RULES:
        raise OptionError("rule", request.rule, f"one of {RULES} with a grammar whose texts are not listed")
    if request.prior is not None:
        raise IncompatibleOptionsError("prior", "a grammar", "a prior weighs choices that are listed, so leave it out")
    if request.following:
        remedy = "append the text to the grammar instead (`Grammar.followed_by`)"
        raise IncompatibleOptionsError("following", "a grammar", remedy)
    one_of("terminator", request.terminator, BEAM_TERMINATORS)
    if request.search.method == "exhaustive":
        raise OptionError("method", "exhaustive", "'auto' or 'best_first' with a grammar whose texts are not listed")
    space = Space(model.limits, request.search.max_tokens)
    asked = constrain(
        model.vocabulary, space, prompt, grammar, terminator=request.terminator, prompting=request.prompting
    )
    return PreparedGrammarSelect(asked, request.search, rule)


def answer(group: TaskGroup, prepared_select: PreparedGrammarSelect, tolerance: float | None) -> Selection:
    """Search the grammar.

    Args:
        group: The group that the task belongs to.
        hunt: The request.
        tolerance: Nats per row by which layout may change a log-probability; None if
            it was not measured.

    Raises:
        NothingFoundError: If no text was found within `max_tokens` or the budget.
    """
    asked, search = prepared_select.asked, prepared_select.search
    on_found = None if search.on_found is None else partial(_tell_text, search.on_found)
    spec = asked.spec(search, rule=prepared_select.rule, merge_equal_text=prepared_select.rule == "joint")
    task = AutomatonSearch(asked.prompt, asked.automaton, spec, on_found=on_found)
    handle = group.begin_told(task, search.on_progress)
    outcome = handle.result()
    if not outcome.found:
        raise nothing_found(asked, outcome, search.max_tokens)
    return _selection(
        prepared_select,
        outcome,
        _certificate(outcome, replace(prepared_select, search=spec.search), tolerance),
        asked.cost(handle.cost, outcome.found),
        asked.signature(group.owner.scheduler.model.identity, group.owner.check, prepared_select.rule),
    )


def _tell_text(tell: Callable[[str, float], None], path: FoundPath) -> None:
    tell(shown(path.data), path.logp)


def _certificate(
    outcome: AutomatonOutcome, prepared_select: PreparedGrammarSelect, tolerance: float | None
) -> Certificate:
    """Return the certificate of a search.

    It is `rescored` if layout cannot change the order of the first k texts, nor bring a
    text that is still open among them.
    """
    search, rule, reason = prepared_select.search, prepared_select.rule, prepared_select.asked.reason(outcome.heal_gap)
    if not reason and not outcome.proved:
        reason = search_ended(search, outcome.n_evaluated)
    scores = np.array([path.score for path in outcome.found[: search.k + 1]])
    next_best = max([outcome.best_open, *scores[search.k :]])
    scores = np.append(scores[: search.k], [next_best] if next_best > -np.inf else [])
    n_rows = max(len(path.tokens) for path in outcome.found[: search.k + 1]) + 1
    moves = np.inf if tolerance is None else 2 * tolerance * (n_rows if rule == "joint" else 2)
    return Certificate(
        proved=not reason,
        bound_gap=outcome.bound_gap,
        open_mass=outcome.open_mass,
        nodes_evaluated=outcome.n_evaluated,
        nodes_inner=None,
        rescored=len(scores) < 2 or bool((-np.diff(scores)).min() > moves),
        n_rescored=0,
        method="best_first",
        reason=reason,
    )


def _selection(
    prepared_select: PreparedGrammarSelect,
    outcome: AutomatonOutcome,
    certificate: Certificate,
    cost: Cost,
    signature: Signature,
) -> Selection:
    asked, found = prepared_select.asked, outcome.found
    lengths = np.cumsum([0, *(len(path.tokens) for path in found)], dtype=np.int64)
    trie = TokenTrie.from_flat(np.concatenate([path.tokens for path in found]), lengths)
    scores = np.array([path.score for path in found])
    log_open = np.inf
    with np.errstate(divide="ignore"):
        if prepared_select.rule == "joint":
            log_open = float(np.log(outcome.open_mass))
            # A text may begin with another one; at each length they exclude each other.
            if asked.terminator == "none" and not is_prefix_free(asked.grammar):
                log_open += np.log(prepared_select.search.max_tokens)
    decision = scoring.posterior(scores, trie.path_of, log_open=log_open)
    # Order and proof are about single paths, and so is each log-probability. The
    # coverage counts all paths that were found.
    logp = scores if prepared_select.rule == "joint" else np.array([path.logp for path in found])
    table = ChoiceTable(
        texts=tuple(shown(path.data) for path in found),
        trie=trie,
        edge_logp=_edges(trie, found),
        pieces=asked.vocabulary.pieces,
        logp=logp,
        logp_upper=logp,
        logp_terminator=np.array([path.logp_terminator for path in found]),
        score=scores,
        probability=decision.probability,
        probability_low=decision.probability_low,
        probability_high=decision.probability_high,
        logp_local=np.full(len(found), np.nan),
        boundary_shift=np.zeros(len(found), dtype=np.int32),
    )
    greedy = [i for i, path in enumerate(found) if np.array_equal(path.tokens, outcome.greedy)]
    return Selection(
        index=decision.winner,
        margin=float(min(decision.margin, scores[decision.winner] - outcome.best_open)),
        is_tie=decision.is_tie,
        coverage=scoring.coverage_of(np.array([path.logp for path in found])),
        top_tokens=asked.token_scores(*outcome.wanted),
        greedy_index=greedy[0] if greedy and outcome.greedy_ended else None,
        choices=table,
        rule=prepared_select.rule,
        terminator=asked.terminator,
        healed=asked.healed,
        log_heal=outcome.log_heal,
        heal_gap=outcome.heal_gap,
        certificate=certificate,
        cost=cost,
        signature=signature,
        grammar=GrammarFacts(
            name=asked.grammar.name,
            digest=asked.grammar.digest,
            about=about(strings=outcome.strings),
            max_tokens=prepared_select.search.max_tokens,
            any_length=certificate.proved and _holds_for_any_length(outcome, prepared_select.search.k),
            n_dead_ends=outcome.n_dead_ends,
            n_refused=outcome.n_other,
        ),
    )


def _holds_for_any_length(outcome: AutomatonOutcome, k: int) -> bool:
    """Return whether no text longer than `max_tokens` can be among the first k."""
    kth = outcome.found[k - 1].score if len(outcome.found) >= k else -np.inf
    return outcome.cut_bound == -np.inf or outcome.cut_bound < kth


def _edges(trie: TokenTrie, found: tuple[FoundPath, ...]) -> FloatArray:
    """Return the log-probability of each edge, float64[N], from the paths over it."""
    edges = np.full(len(trie.token), np.nan)
    for place, path in enumerate(found):
        node = int(trie.path_node[trie.path_of[place]])
        for logp in path.token_logp[::-1].tolist():
            edges[node] = logp
            node = int(trie.parent[node])
    return edges
