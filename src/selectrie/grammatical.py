"""Selecting and sampling among the texts of a grammar: from a request to its task, from what was found to records."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from selectrie import scoring
from selectrie.constraining import Constrained, Space, constrain
from selectrie.errand import Errand
from selectrie.errors import GrammarError, OptionError
from selectrie.grammar import Grammar
from selectrie.model import Model
from selectrie.options import Sampling, Search, Stopping, at_least, one_of, seed
from selectrie.prompts import Prompt
from selectrie.results import (
    Certificate,
    ChoiceTable,
    Draws,
    GrammarFacts,
    Hypothesis,
    Selection,
    Signature,
    TokenScore,
)
from selectrie.selecting import Asked
from selectrie.tasks.exact_sample import ExactOutcome, ExactSampleTask
from selectrie.tasks.found_paths import FoundPath
from selectrie.tasks.grammar_search import AutomatonOutcome, AutomatonSearch, AutomatonSpec
from selectrie.tasks.sample import Sampled, SampleSpec, SampleTask
from selectrie.trie import TokenTrie
from selectrie.types import Cost, FloatArray, ModelIdentity
from selectrie.version import __version__

MOST_LISTED = 100_000
"""Texts of a finite grammar that are choices; more are searched."""
RULES = ("joint", "token_mean")
"""That have a bound for texts nobody has seen."""
TERMINATORS = ("auto", "none", "eog")


def listed(grammar: Grammar) -> tuple[str, ...] | None:
    """All texts of a grammar, in the order of `Grammar.expand`; None where they are infinitely many, more than `MOST_LISTED`,
    or no texts (token terminals, a grammar that llguidance reads)."""
    if not isinstance(grammar, Grammar):
        raise OptionError("grammar", grammar, "a Grammar (Grammar.from_gbnf, from_regex, …)")
    try:
        count = grammar.count() if grammar.is_finite else None
        return None if count is None or count > MOST_LISTED else tuple(grammar.expand())
    except GrammarError:  # what cannot be compiled at all is refused by `constrain`
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Hunt:
    """A request for the best text of a grammar, checked and cut into tokens."""

    asked: Constrained
    search: Search
    rule: str


def prepare(model: Model, prompt: Prompt, grammar: Grammar, request: Asked) -> Hunt:
    """Check a selection among the texts of a grammar that are not listed."""
    rule = request.named_rule().name
    if request.custom is not None or rule not in RULES:
        raise OptionError("rule", request.rule, f"one of {RULES} with a grammar whose texts are not listed")
    if request.prior is not None:
        raise OptionError("prior", request.prior, "nothing with a grammar whose texts are not listed")
    if request.following:
        raise OptionError("following", request.following, "nothing with a grammar: let it end with that text")
    one_of("terminator", request.terminator, TERMINATORS)
    if request.search.method == "exhaustive":
        raise OptionError("method", "exhaustive", "'auto' or 'best_first' with a grammar whose texts are not listed")
    space = Space(model.limits, request.search.max_tokens)
    asked = constrain(
        model.vocabulary, space, prompt, grammar, terminator=request.terminator, prompting=request.prompting
    )
    return Hunt(asked, request.search, rule)


def spec_of(asked: Constrained, search: Search, rule: str = "joint") -> AutomatonSpec:
    """What a task on the grammar's automaton goes by."""
    own = search.canonical_only
    return AutomatonSpec(
        asked.vocabulary,
        max_tokens=search.max_tokens,
        terminator=asked.terminator,
        rule=rule,
        search=search,
        healed=asked.healed,
        put=asked.delimiter,
        canonical=asked.canonicity.is_canonical if own else None,
        viable=asked.canonicity.may_join if own else None,
        last=int(asked.prompt[-1]) if asked.healed else None,
        merge_equal_text=rule == "joint",
    )


def select(errand: Errand, hunt: Hunt, tau: float | None) -> Selection:
    """Search the grammar. tau: nats a row that layout may move, None = not measured.

    Raises `OptionError` where no text was found within `max_tokens` or the budget.
    """
    asked, search = hunt.asked, hunt.search
    tell = search.on_found
    on_found: Callable[[FoundPath], None] | None = None
    if tell is not None:
        on_found = lambda path: tell(_text(path.data), path.logp)  # noqa: E731
    task = AutomatonSearch(asked.prompt, asked.automaton, spec_of(asked, search, hunt.rule), on_found=on_found)
    progress = search.on_progress
    handle = errand.begin(task, None if progress is None else lambda: progress(task.n_evaluated, 0))
    outcome = handle.result()
    if not outcome.found:
        raise _nothing_found(search, is_empty=outcome.proved, refused=outcome.n_other)
    rows_naive = sum(len(asked.prompt) + len(path.tokens) for path in outcome.found)
    return _selection(
        hunt,
        outcome,
        _certificate(outcome, search, hunt.rule, tau),
        replace(handle.cost, rows_naive=rows_naive),
        _signature(asked, hunt.rule, errand.owner.scheduler.model.identity, tau),
    )


def _nothing_found(search: Search, *, is_empty: bool, refused: int) -> OptionError:
    why = f"; {refused} were found that the tokenizer would not write so (canonical_only)" if refused else ""
    if is_empty:
        return OptionError("max_tokens", search.max_tokens, f"more: no text of the grammar has so few tokens{why}")
    return OptionError("budget_nodes", search.budget_nodes, f"more: no text of the grammar was finished{why}")


def _certificate(outcome: AutomatonOutcome, search: Search, rule: str, tau: float | None) -> Certificate:
    """`settled`: nothing else among the first k or open is as near as layout can move scores."""
    scores = np.array([path.score for path in outcome.found[: search.k + 1]])
    if len(scores) <= search.k and outcome.best_open > -np.inf:
        scores = np.append(scores, outcome.best_open)
    n_rows = max(len(path.tokens) for path in outcome.found[: search.k + 1]) + 1
    moves = np.inf if tau is None else 2 * tau * (n_rows if rule == "joint" else 2)
    return Certificate(
        proved=outcome.proved,
        bound_gap=outcome.bound_gap,
        open_mass=outcome.open_mass,
        nodes_evaluated=outcome.n_evaluated,
        nodes_inner=None,
        settled=len(scores) < 2 or bool((-np.diff(scores)).min() > moves),
        n_settled=0,
        method="best_first",
    )


def _selection(
    hunt: Hunt, outcome: AutomatonOutcome, certificate: Certificate, cost: Cost, signature: Signature
) -> Selection:
    asked, found = hunt.asked, outcome.found
    lengths = np.cumsum([0, *(len(path.tokens) for path in found)], dtype=np.int64)
    trie = TokenTrie.from_flat(np.concatenate([path.tokens for path in found]), lengths)
    scores = np.array([path.score for path in found])
    log_open = np.inf
    with np.errstate(divide="ignore"):
        if hunt.rule == "joint":
            log_open = float(np.log(outcome.open_mass))
    decision = scoring.posterior(scores, trie.path_of, log_open=log_open)
    logp = np.array([path.logp for path in found])
    table = ChoiceTable(
        texts=tuple(_text(path.data) for path in found),
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
        coverage=scoring.coverage_of(logp),
        wanted=tuple(
            _token(asked, token, logp)
            for token, logp in zip(outcome.wanted[0].tolist(), outcome.wanted[1].tolist(), strict=True)
        ),
        greedy_index=greedy[0] if greedy and outcome.greedy_ended else None,
        choices=table,
        rule=hunt.rule,
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
            about=_about(outcome.strings),
            max_tokens=hunt.search.max_tokens,
            any_length=outcome.proved and bool(outcome.cut_bound < scores[min(hunt.search.k, len(scores)) - 1]),
            n_dead_ends=outcome.n_dead_ends,
            n_refused=outcome.n_other,
        ),
    )


def _edges(trie: TokenTrie, found: tuple[FoundPath, ...]) -> FloatArray:
    """float64[N]: log-probability of each edge, from the paths over it."""
    edges = np.full(len(trie.token), np.nan)
    for place, path in enumerate(found):
        node = int(trie.path_node[trie.path_of[place]])
        for logp in path.token_logp[::-1].tolist():
            edges[node] = logp
            node = int(trie.parent[node])
    return edges


def _signature(asked: Constrained, rule: str, identity: ModelIdentity, tau: float | None) -> Signature:
    return Signature(
        model=identity.name,
        model_digest=identity.digest,
        tokenizer_digest=identity.tokenizer_digest,
        backend=identity.backend,
        build=identity.build,
        processor=identity.processor,
        precision=identity.precision,
        tolerance=tau,
        rule=rule,
        premise="",
        terminator=asked.terminator,
        following_bytes=0,
        boundary=asked.boundary,
        version=__version__,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Lottery:
    """A request for texts drawn from a grammar, checked and cut into tokens. seed: of the first."""

    asked: Constrained
    search: Search
    n: int
    seed: int
    exact: bool


def prepare_draws(
    model: Model, prompt: Prompt, grammar: Grammar, request: Asked, wanted: tuple[int, int | None, bool]
) -> Lottery:
    """Check a request for draws; wanted: (n, seed, exact)."""
    n, given, exact = wanted
    at_least("n", n, 1, optional=False)
    first = seed("seed", given)
    if type(exact) is not bool:
        raise OptionError("exact", exact, "True or False")
    one_of("terminator", request.terminator, TERMINATORS)
    space = Space(model.limits, request.search.max_tokens)
    asked = constrain(
        model.vocabulary, space, prompt, grammar, terminator=request.terminator, prompting=request.prompting
    )
    first = int.from_bytes(os.urandom(4), "little") if first is None else first
    return Lottery(asked, request.search, n, first, exact)


def draw(errand: Errand, lottery: Lottery, tau: float | None) -> Draws:
    """Draw the texts. Raises `OptionError` where there is none within `max_tokens`, or the budget was used up: what was drawn
    until then is no sample, for short texts come first."""
    asked, search = lottery.asked, lottery.search
    signature = _signature(asked, "joint", errand.owner.scheduler.model.identity, tau)
    if not lottery.exact:
        return _draw_locally(errand, lottery, signature)
    task = ExactSampleTask(asked.prompt, asked.automaton, spec_of(asked, search), n=lottery.n, seed=lottery.seed)
    progress = search.on_progress
    handle = errand.begin(task, None if progress is None else lambda: progress(task.n_evaluated, 0))
    outcome = handle.result()
    texts = [text for text in outcome.texts if text is not None]
    if not outcome.is_complete:
        raise _nothing_found(search, is_empty=outcome.is_empty, refused=0)
    hypotheses = tuple(_hypothesis(asked, path) for path in texts)
    return _draws(lottery, hypotheses, outcome, handle.cost, signature)


def _draws(
    lottery: Lottery, texts: tuple[Hypothesis, ...], outcome: ExactOutcome | None, cost: Cost, signature: Signature
) -> Draws:
    asked = lottery.asked
    rows_naive = sum(len(asked.prompt) + len(text.tokens) for text in texts)
    return Draws(
        texts=texts,
        exact=outcome is not None,
        about=_about(outcome is not None and outcome.strings),
        seed=lottery.seed,
        max_tokens=lottery.search.max_tokens,
        mass=None if outcome is None else outcome.mass,
        mass_low=None if outcome is None else outcome.mass_low,
        mass_high=None if outcome is None else outcome.mass_high,
        n_attempts=len(texts) if outcome is None else outcome.n_attempts,
        healed=asked.healed,
        log_heal=0.0 if outcome is None else outcome.log_heal,
        heal_gap=0.0 if outcome is None else outcome.heal_gap,
        grammar=asked.grammar.name,
        grammar_digest=asked.grammar.digest,
        cost=replace(cost, rows_naive=rows_naive),
        signature=signature,
    )


def _draw_locally(errand: Errand, lottery: Lottery, signature: Signature) -> Draws:
    """Draw token by token among those that may follow. Log-probabilities are the model's own, not of the mask."""
    asked = lottery.asked
    spec = SampleSpec(
        asked.prompt,
        asked.vocabulary.pieces,
        asked.vocabulary.eog,
        lottery.seed,
        sampling=Sampling.UNCHANGED,
        stopping=Stopping(max_tokens=lottery.search.max_tokens),
        automaton=asked.automaton,
    )
    tasks = [SampleTask(replace(spec, seed=lottery.seed + i)) for i in range(lottery.n)]
    handles = [errand.begin(task) for task in tasks]
    texts = tuple(_sampled(asked, handle.result()) for handle in handles)
    return _draws(lottery, texts, None, sum((handle.cost for handle in handles), Cost()), signature)


def _sampled(asked: Constrained, sampled: Sampled) -> Hypothesis:
    n = len(sampled.tokens) - (sampled.ended_by is not None)
    end = float(sampled.logp[n:].sum())
    data = asked.vocabulary.decode(sampled.tokens[:n])[len(asked.healed) + len(asked.delimiter) :]
    path = FoundPath(data, sampled.tokens[:n], sampled.logp[:n], end, sampled.joint, sampled.joint)
    made = _hypothesis(asked, path)
    ended_by = {"eog": "eog", "automaton": "grammar"}.get(sampled.finish, "length")
    return replace(made, complete=ended_by != "length", ended_by=ended_by)


def _hypothesis(asked: Constrained, path: FoundPath) -> Hypothesis:
    tokens = zip(path.tokens.tolist(), path.token_logp.tolist(), strict=True)
    return Hypothesis(
        text=_text(path.data),
        data=path.data,
        tokens=tuple(_token(asked, token, logp) for token, logp in tokens),
        logp=path.logp,
        logp_path=path.logp,
        logp_end=path.logp_terminator,
        score=path.score,
        n_paths=1,
        complete=True,
        ended_by="eog" if asked.terminator == "eog" else "grammar",
    )


def _token(asked: Constrained, token: int, logp: float) -> TokenScore:
    piece = asked.vocabulary.pieces[token]
    return TokenScore(token, piece, logp, "" if piece else asked.vocabulary.texts[token])


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _about(strings: bool) -> str:  # noqa: FBT001 - the one thing it is about
    return "strings" if strings else "token paths"
