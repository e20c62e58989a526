"""Selects among the texts of a grammar that cannot be listed, and draws from them."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.model import ModelDescription
from selectrie.core.numerics import ROUNDED_SUM, Interval
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost, FloatArray
from selectrie.decoding.automaton.automaton_search import AutomatonSearch
from selectrie.decoding.automaton.automaton_task import AutomatonOutcome, FinishedPath
from selectrie.decoding.automaton.exact_sampling import ExactOutcome, ExactSampleTask
from selectrie.decoding.sampling.task import Sampled, SampleSpec, SampleTask
from selectrie.decoding.scoring.rules import coverage_of, posterior
from selectrie.decoding.scoring.tolerance import ROUNDING
from selectrie.engine.requests.choice_scores import bound_coverage
from selectrie.engine.requests.constrained_prompt import (
    ConstrainedPrompt,
    constrain,
    decode_text,
    is_prefix_free,
    nothing_found_error,
    remove_following,
    result_subject,
    shorten_following,
)
from selectrie.engine.requests.reasons import (
    lower_gap,
    max_gap_change,
    reason_heal_unknown,
    reason_search_ended,
    reason_tokens_unread,
    reason_too_close,
)
from selectrie.engine.requests.selection import SelectRequest, check_terminator
from selectrie.engine.requests.session import Session
from selectrie.errors import IncompatibleOptionsError, NothingFoundError, OptionError, remedies
from selectrie.grammar import Grammar, read_grammar
from selectrie.grammar.grammar import GrammarLike
from selectrie.options import (
    BEAM_TERMINATORS,
    GRAMMAR_NODES,
    MAX_TEXTS,
    SamplingParams,
    SearchParams,
    StopParams,
    at_least,
    flag,
    one_of,
)
from selectrie.options import seed as checked_seed
from selectrie.results import (
    Certificate,
    ChoiceTable,
    GrammarFacts,
    Hypothesis,
    Samples,
    Selection,
    Signature,
    TokenScore,
)
from selectrie.tokenization.healing import HealedBytes
from selectrie.tokenization.prompts import Prompt

MAX_LISTED = 100_000
"""Maximum number of texts of a grammar for which every text becomes a choice.

A grammar with more texts is searched, unless it is given as a list of texts.
"""
BOUNDED_RULES = ("joint", "token_mean")
"""Rules for which a prefix gives an upper bound, so that unseen texts can be pruned."""


def list_texts(grammar: Grammar) -> tuple[str, ...] | None:
    """Return all texts of a grammar, or None if there are too many to list.

    At most `MAX_LISTED` texts are listed, unless the grammar is given as a list of
    texts.
    """
    return grammar.listed(MAX_LISTED)  # `constrain` refuses a grammar that cannot be compiled


@dataclass(frozen=True, slots=True, eq=False)
class PreparedGrammarSelect:
    """A request for the best text of a grammar, checked and tokenized.

    Attributes:
        constrained: Prompt and grammar as tokens and an automaton. If `following` is
            set, each of its texts ends with it.
        search: Options of the search.
        rule: Name of the rule, one of `BOUNDED_RULES`.
        grammar: The grammar whose texts are selected from.
        following: Text that must follow each text, or "".
    """

    constrained: ConstrainedPrompt
    search: SearchParams
    rule: str
    grammar: Grammar
    following: str = ""

    def run(self, session: Session) -> Selection:
        """Search the grammar and return the selection among the texts found.

        Raises:
            NothingFoundError: If no text was found within `max_tokens` or the budget.
        """
        constrained, on_found = self.constrained, self.search.on_found
        spec = replace(constrained.spec(self.search, rule=self.rule), max_children=session.max_named)
        end = self.following
        on_path = (
            None if on_found is None else lambda path: on_found(decode_text(path.data).removesuffix(end), path.logp)
        )
        task = AutomatonSearch(
            constrained.prompt, constrained.automaton, spec, on_found=on_path, fill_rows=session.fill_rows
        )
        handle = session.group.begin_counted(task, self.search.on_progress)
        outcome = handle.result()
        if not outcome.paths:
            raise nothing_found_error(constrained, outcome, self.search.max_tokens)
        selection = self._make_selection(
            outcome,
            self._make_certificate(outcome, spec.search, session),
            constrained.cost(handle.cost, outcome.paths),
            constrained.signature(session, self.rule),
        )
        return remove_following(selection, self.grammar, self.following)

    def _make_certificate(self, outcome: AutomatonOutcome, search: SearchParams, session: Session) -> Certificate:
        """Return the certificate of a search with these options, budget included.

        `rescored` is true if the layout of calls can neither change the order of the
        first k texts nor bring an open text among them. If the tolerance of a served
        model can, nothing is proved.
        """
        tolerance = session.tolerance
        k, reason = search.k, self.constrained.reason(outcome.heal.width)
        if not reason and not outcome.proved:
            has_unread = outcome.best_unread == outcome.best_open
            reason = reason_tokens_unread() if has_unread else reason_search_ended(search, outcome.n_evaluated)
        scores = np.array([path.score for path in outcome.paths[: k + 1]])
        next_best = max([outcome.best_open, *scores[k:]])
        scores = np.append(scores[:k], [next_best] if next_best > -np.inf else [])
        if not reason and self.rule != "joint":  # the healed bytes' log-probability is divided by other lengths
            nearest = min([outcome.bound_gap - ROUNDING, *(-np.diff(scores))])
            reason = (
                ""
                if nearest > outcome.heal.width or not outcome.heal.width
                else reason_heal_unknown(outcome.heal.width)
            )
        n_rows = max(len(path.tokens) for path in outcome.paths[: k + 1]) + 1
        n_moving = n_rows if self.rule == "joint" else 1
        moves = np.inf if tolerance is None else tolerance * math.sqrt(2 * n_moving)
        if session.is_served and tolerance:
            moves = 2 * tolerance * (n_rows if self.rule == "joint" else 2)
        is_certain = len(scores) < 2 or bool((-np.diff(scores)).min() > moves)
        if session.is_served and tolerance:
            is_certain &= outcome.bound_gap > max_gap_change(tolerance, outcome.n_steps if self.rule == "joint" else 0)
            reason = reason or ("" if is_certain else reason_too_close(tolerance))
        return Certificate.best_first(
            bound_gap=lower_gap(outcome.bound_gap, outcome.heal.width if self.rule != "joint" else 0.0),
            open_mass=outcome.open_mass,
            nodes_evaluated=outcome.n_evaluated,
            rescored=is_certain,
            reason=reason,
        )

    def _make_selection(
        self, outcome: AutomatonOutcome, certificate: Certificate, cost: Cost, signature: Signature
    ) -> Selection:
        """Return the selection among the texts that a search found."""
        constrained, texts = self.constrained, outcome.paths
        lengths = np.cumsum([0, *(len(path.tokens) for path in texts)], dtype=np.int64)
        trie = TokenTrie.from_flat(np.concatenate([path.tokens for path in texts]), lengths)
        scores = np.array([path.score for path in texts])
        log_open = np.inf
        with np.errstate(divide="ignore"):
            if self.rule == "joint":
                log_open = float(np.log(outcome.open_mass))
                # A text may begin with another one; texts of one length exclude each
                # other.
                if constrained.terminator == "none" and not is_prefix_free(constrained.grammar):
                    log_open += np.log(self.search.max_tokens)
        decision = posterior(
            Interval.point(scores),
            trie.path_of,
            log_open=log_open,
            slack=ROUNDED_SUM * np.maximum(np.abs(scores), 1.0),
        )
        # Order and proof are about the best path of each text, and so is each
        # log-probability. The coverage counts all paths that were found.
        logp = np.array([path.logp_path for path in texts])
        p = decision.bounds if outcome.strings else _raise_bounds(scores, decision.bounds, outcome.best_open)
        table = ChoiceTable(
            texts=tuple(decode_text(constrained.read(path.data)) for path in texts),
            trie=trie,
            edge_logp=_edge_logp(trie, texts),
            pieces=constrained.vocabulary.pieces,
            logp=logp,
            logp_upper=logp,
            logp_terminator=np.array([path.logp_terminator for path in texts]),
            score=scores,
            probability=(p.low + p.high) / 2,
            probability_low=p.low,
            probability_high=p.high,
            logp_local=np.full(len(texts), np.nan),
            boundary_shift=np.zeros(len(texts), dtype=np.int32),
            heal_gap=outcome.heal.width,
        )
        found = Interval.point(coverage_of(np.array([path.logp for path in texts])))
        coverage = bound_coverage(found, outcome.heal.width)
        return Selection(
            index=decision.winner,
            margin=float(min(decision.margin, scores[decision.winner] - outcome.best_open)),
            is_tie=decision.is_tie,
            coverage=float(coverage.low),
            coverage_high=coverage.high + outcome.open_mass if outcome.heal.width else None,
            top_tokens=TokenScore.along(constrained.vocabulary, *outcome.top_tokens),
            greedy_index=self._greedy_index(outcome),
            choices=table,
            rule=self.rule,
            terminator=constrained.terminator,
            healed=constrained.healed,
            log_heal=outcome.heal.low,
            heal_gap=outcome.heal.width,
            certificate=certificate,
            cost=cost,
            signature=signature,
            grammar=GrammarFacts(
                name=constrained.grammar.name,
                digest=constrained.grammar.digest,
                about=result_subject(strings=outcome.strings),
                max_tokens=self.search.max_tokens,
                any_length=certificate.proved and _holds_for_any_length(outcome, self.search.k),
                n_dead_ends=outcome.n_dead_ends,
                n_refused=outcome.n_other,
            ),
            notes=constrained.notes,
            skips_template=constrained.skips_template,
        )

    def _greedy_index(self, outcome: AutomatonOutcome) -> int | None:
        """Return the index of the text that masked greedy decoding picks.

        The text may have been found in other tokens. Return None if it was not found.
        """
        greedy = self.constrained.text_of(outcome.greedy)
        found = (i for i, path in enumerate(outcome.paths) if self.constrained.read(path.data) == greedy)
        return next(found, None) if outcome.greedy_ended else None


def prepare_grammar_select(
    model: ModelDescription, prompt: Prompt, grammar: Grammar, request: SelectRequest
) -> PreparedGrammarSelect:
    """Check and tokenize a selection among texts of a grammar that are not listed."""
    rule, search = request.named_rule().name, request.search
    if request.custom is not None or rule not in BOUNDED_RULES:
        raise OptionError("rule", request.rule, f"one of {BOUNDED_RULES} with a grammar whose texts are not listed")
    if request.prior is not None:
        raise IncompatibleOptionsError("prior", "a grammar", "a prior weighs choices that are listed, so leave it out")
    terminator = check_terminator(request)
    text = shorten_following(model.vocabulary, request.following)
    if search.method == "exhaustive":
        raise OptionError("method", "exhaustive", "'auto' or 'best_first' with a grammar whose texts are not listed")
    constrained = constrain(
        model,
        prompt,
        grammar.followed_by(text) if text else grammar,
        max_tokens=search.max_tokens,
        terminator="none" if text else terminator,
        prompting=request.prompting,
    )
    return PreparedGrammarSelect(constrained, search, rule, grammar, text)


def _raise_bounds(scores: FloatArray, bounds: Interval[FloatArray], best_open: float) -> Interval[FloatArray]:
    """Return bounds on the probabilities of texts that may have better paths.

    A path that is still open may spell a text that was found, with a score of up to
    `best_open`.

    Args:
        scores: float64[C], the score of each text's best path found.
        bounds: float64[C], bounds that assume that no text has a better path.
        best_open: The best bound of an open path, -inf for none.
    """
    raised = scores < best_open
    if not raised.any():
        return bounds
    with np.errstate(over="ignore"):
        others = (1 - bounds.high) * numerics.exp(np.array(numerics.logsumexp(scores) - best_open))
    return Interval(bounds.low, np.where(raised, 1 / (1 + others), bounds.high))


def _holds_for_any_length(outcome: AutomatonOutcome, k: int) -> bool:
    """Return whether no text longer than `max_tokens` can be among the first k."""
    kth = outcome.paths[k - 1].score if len(outcome.paths) >= k else -np.inf
    return outcome.cut_bound == -np.inf or outcome.cut_bound < kth


def _edge_logp(trie: TokenTrie, paths: tuple[FinishedPath, ...]) -> FloatArray:
    """Return the log-probability of each edge of the trie, float64[N].

    They are taken from the paths, which together cover all edges.
    """
    edges = np.full(len(trie.token), np.nan)
    for path, end in zip(paths, trie.path_node[trie.path_of].tolist(), strict=True):
        node = end
        for logp in path.token_logp[::-1].tolist():
            edges[node] = logp
            node = int(trie.parent[node])
    return edges


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSample:
    """A request for texts drawn from a grammar, checked and tokenized.

    Attributes:
        constrained: Prompt and grammar as tokens and an automaton.
        search: Limits of the search.
        n: Number of texts.
        seed: Seed of the first text.
        exact: Whether texts are drawn by their probability among all texts. Otherwise
            each token is drawn by its probability among the allowed tokens.
    """

    constrained: ConstrainedPrompt
    search: SearchParams
    n: int
    seed: int
    exact: bool

    def run(self, session: Session) -> Samples:
        """Draw the texts and return them.

        Raises `NothingFoundError` if no text of at most `max_tokens` tokens is
        possible, or if the budget was used up. The texts drawn until then are not a
        sample, since short texts come first.
        """
        return self._draw(session) if self.exact else self._draw_locally(session)

    def _draw(self, session: Session) -> Samples:
        """Draw texts by their probability among all texts of the grammar."""
        constrained, search = self.constrained, self.search
        budget = GRAMMAR_NODES + self.n * search.max_tokens
        task = ExactSampleTask(
            constrained.prompt,
            constrained.search_automaton(canonical_only=search.canonical_only),
            constrained.spec(search, budget=budget),
            n=self.n,
            seed=self.seed,
            tolerance=session.tolerance or 0.0,
        )
        handle = session.group.begin_counted(task, search.on_progress)
        outcome = handle.result()
        paths = [path for path in outcome.texts if path is not None]
        if not outcome.is_complete:
            raise self._shortage_error(outcome, len(paths))
        texts = tuple(constrained.hypothesis(path) for path in paths)
        doubt = constrained.doubt or _explain_unreachable(constrained)
        samples = self._make_samples(session, texts, outcome.close_steps, handle.cost)
        return replace(
            samples,
            exact=not doubt,
            reason=doubt,
            about=result_subject(strings=outcome.strings),
            mass=None if doubt else outcome.estimate,
            mass_low=None if doubt else outcome.mass.low,
            mass_high=None if doubt else outcome.mass.high,
            n_attempts=outcome.n_attempts,
            log_heal=outcome.heal.low,
            heal_gap=outcome.heal.width,
        )

    def _shortage_error(self, outcome: ExactOutcome, n_drawn: int) -> NothingFoundError:
        """Return the error for missing texts, with its cause and what helps."""
        name = self.constrained.grammar.name
        if outcome.is_empty:
            reason = f"none of at most {self.search.max_tokens} tokens is possible"
            return NothingFoundError(name, reason, remedies("raise `max_tokens`", "use a grammar of shorter texts"))
        reason = (
            f"the budget ended after {outcome.n_evaluated} rows and {outcome.n_attempts} walks, "
            f"when {n_drawn} of {self.n} texts were drawn, which are not a sample, since short texts come first"
        )
        remedy = remedies("raise `budget_nodes`", "draw fewer or shorter texts", "draw step by step (`exact=False`)")
        return NothingFoundError(name, reason, remedy)

    def _draw_locally(self, session: Session) -> Samples:
        """Draw each token from the model's row, renormalised over the allowed tokens.

        The log-probabilities in the result are those of the model, not renormalised.
        """
        constrained, vocabulary = self.constrained, self.constrained.vocabulary
        spec = SampleSpec(
            constrained.prompt,
            vocabulary.pieces,
            vocabulary.eog,
            self.seed,
            sampling=SamplingParams.UNCHANGED,
            stopping=StopParams(max_tokens=self.search.max_tokens),
            automaton=constrained.automaton,
            healed=HealedBytes(vocabulary, constrained.healed) if constrained.healed else None,
            tolerance=session.tolerance or 0.0,
        )
        tasks = [SampleTask(replace(spec, seed=self.seed + i)) for i in range(self.n)]
        with session.group.together():
            handles = [session.group.begin(task) for task in tasks]
        sequences = [handle.result() for handle in handles]
        return self._make_samples(
            session,
            tuple(_make_hypothesis(constrained, one) for one in sequences),
            tuple(one.close_steps for one in sequences),
            sum((handle.cost for handle in handles), Cost()),
        )

    def _make_samples(
        self, session: Session, texts: tuple[Hypothesis, ...], close_steps: tuple[tuple[int, ...], ...], cost: Cost
    ) -> Samples:
        """Return the record of texts that were drawn token by token."""
        constrained = self.constrained
        return Samples(
            texts=texts,
            exact=False,
            reason="",
            about=result_subject(strings=False),
            seed=self.seed,
            max_tokens=self.search.max_tokens,
            mass=None,
            mass_low=None,
            mass_high=None,
            n_attempts=len(texts),
            close_steps=None if session.tolerance is None else close_steps,
            healed=constrained.healed,
            log_heal=0.0,
            heal_gap=0.0,
            grammar=constrained.grammar.name,
            grammar_digest=constrained.grammar.digest,
            cost=constrained.cost(cost, texts),
            signature=constrained.signature(session, "joint"),
            notes=constrained.notes,
        )


def prepare_sample(
    model: ModelDescription,
    prompt: Prompt,
    grammar: GrammarLike,
    request: SelectRequest,
    *,
    n: int,
    seed: int | None,
    exact: bool,
) -> PreparedSample:
    """Check and tokenize a request to draw texts from a grammar."""
    at_least("n", n, 1, max_value=MAX_TEXTS, optional=False)
    first = checked_seed("seed", seed, n)
    flag("exact", exact)
    one_of("terminator", request.terminator, BEAM_TERMINATORS)
    search = request.search
    constrained = constrain(
        model,
        prompt,
        read_grammar(grammar),
        max_tokens=search.max_tokens,
        terminator=request.terminator,
        prompting=request.prompting,
    )
    first = int.from_bytes(os.urandom(4), "little") if first is None else first
    return PreparedSample(constrained, search, n, first, exact)


def _explain_unreachable(constrained: ConstrainedPrompt) -> str:
    """Return why some texts can never be drawn; "" if all can be.

    With terminator "none", a text that continues another text is never drawn.
    """
    if constrained.terminator != "none" or is_prefix_free(constrained.grammar):
        return ""
    return "terminator='none' ends a draw at the first text, so a text that continues another would never be drawn"


def _make_hypothesis(constrained: ConstrainedPrompt, sampled: Sampled) -> Hypothesis:
    """Return the record of a text that was drawn token by token."""
    n = len(sampled.tokens) - (sampled.ended_by is not None)
    end, joint = float(sampled.logp[n:].sum()), float(sampled.logp.sum())
    data = constrained.data_of(sampled.tokens[:n])
    path = FinishedPath(data, sampled.tokens[:n], sampled.logp[:n], end, logp=joint, logp_path=joint, score=joint)
    hypothesis = constrained.hypothesis(path)
    ended_by = {"eog": "eog", "automaton": "grammar"}.get(sampled.finish, "length")
    return replace(hypothesis, complete=ended_by != "length", ended_by=ended_by)
