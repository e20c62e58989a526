"""Searches the texts of a grammar with a beam, or exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.automaton import Automaton, ChoiceAutomaton
from selectrie.core.model import ModelDescription
from selectrie.core.numerics import Interval
from selectrie.core.path_model import REMOTE
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost
from selectrie.decoding.automaton.automaton_search import AutomatonSearch
from selectrie.decoding.automaton.automaton_task import AutomatonOutcome, accepts
from selectrie.decoding.beam.expansion import BeamOutcome, BeamPath, BeamSpec
from selectrie.decoding.beam.search import BeamTask
from selectrie.decoding.scoring.rules import coverage_of
from selectrie.decoding.scoring.tolerance import ROUNDING
from selectrie.engine.requests.choice_scores import bound_coverage
from selectrie.engine.requests.constrained_prompt import (
    UNREAD_REMEDY,
    ConstrainedPrompt,
    constrain,
    decode_text,
    nothing_found_error,
    result_subject,
)
from selectrie.engine.requests.reasons import (
    lower_gap,
    max_gap_change,
    reason_beam_ended,
    reason_tokens_unread,
    reason_too_close,
)
from selectrie.engine.requests.session import Session
from selectrie.engine.scheduler.model_thread import Handle
from selectrie.errors import InternalError, NothingFoundError, WholeRowsError, remedies, words
from selectrie.grammar import read_grammar
from selectrie.grammar.grammar import GrammarLike
from selectrie.options import BeamSearchParams, PromptParams, SearchParams, record
from selectrie.results import BeamCertificate, BeamResult, Hypothesis, Signature, TokenScore
from selectrie.tokenization.prompts import Prompt


@dataclass(frozen=True, slots=True, eq=False)
class PreparedBeamSearch:
    """A beam search, or the exact search in its place, checked and tokenized.

    Attributes:
        constrained: Prompt and grammar as tokens and an automaton.
        beam: Options of the search.
        handle: The beam search, if it is under way (`begin`).
    """

    constrained: ConstrainedPrompt
    beam: BeamSearchParams
    handle: Handle[BeamOutcome] | None = None

    def run(self, session: Session) -> BeamResult:
        """Search and return the result.

        Raises:
            NothingFoundError: If not even a prefix of a text was found.
        """
        return self._search_exactly(session) if self.beam.exact else self._search_with_beam(session)

    def begin(self, session: Session) -> PreparedBeamSearch:
        """Begin the search; return it for `run`, which waits for it.

        Searches that begin together share calls.
        """
        if self.beam.exact:
            return self
        automaton = self.constrained.search_automaton(canonical_only=self.beam.canonical_only)
        return replace(self, handle=self._begin_beam(session, self.beam, automaton))

    def _search_with_beam(self, session: Session) -> BeamResult:
        """Search with a beam and return the result."""
        constrained, beam = self.constrained, self.beam
        outcome, cost = self._run_searches(session)
        broken = outcome.broken if beam.incomplete or not outcome.finished else ()
        if not outcome.finished and not broken:
            raise _nothing_error(constrained, outcome)
        unfinished = "length" if outcome.stopped == "done" else outcome.stopped
        hypotheses = tuple(_make_hypothesis(constrained, path) for path in outcome.finished)
        incomplete = tuple(_make_hypothesis(constrained, path, unfinished) for path in broken)
        return BeamResult(
            hypotheses=hypotheses,
            incomplete=incomplete,
            greedy=None if outcome.greedy is None else _make_hypothesis(constrained, outcome.greedy),
            agrees_with_greedy=outcome.agrees_with_greedy,
            certificate=self._make_certificate(session, outcome, self._compute_gap(outcome), outcome.stopped),
            stopped=outcome.stopped,
            n_dead_ends=outcome.n_dead_ends,
            n_merged=outcome.n_merged,
            n_refused=outcome.n_refused,
            n_steps=outcome.n_steps,
            close_steps=outcome.close_steps,
            coverage=_bound_coverage([path.logp for path in outcome.finished], outcome.heal),
            healed=constrained.healed,
            log_heal=outcome.heal.low,
            heal_gap=outcome.heal.width,
            grammar=constrained.grammar.name,
            grammar_digest=constrained.grammar.digest,
            beam=beam,
            cost=constrained.cost(cost, [*hypotheses, *incomplete]),
            signature=self._signature(session),
            notes=constrained.notes,
        )

    def _run_searches(self, session: Session) -> tuple[BeamOutcome, Cost]:
        """Run the beam search; return its outcome and cost.

        After some prompts the tokenizer writes no text unchanged. If the beam then
        finishes no canonical path, a second search looks for texts in any tokens, and a
        third evaluates the canonical paths of these texts. The result then has no
        proof. Its greedy text is that of the second search, which is the same for every
        width.
        """
        constrained, beam = self.constrained, self.beam
        handle = self.handle or self.begin(session).handle
        if handle is None:
            raise InternalError("a beam search did not begin")
        outcome, cost = handle.result(), handle.cost
        if outcome.finished or not beam.canonical_only or beam.budget_nodes is not None or beam.expand is not None:
            return outcome, cost
        any_tokens = replace(beam, canonical_only=False, on_found=None)  # whose paths are not those of the result
        second, more = self._run_beam(session, any_tokens, constrained.automaton)
        cost += more
        found = [path for path in (second.greedy, *second.finished) if path is not None]
        paths = [constrained.canonicity.canonical_path(path.tokens.tolist()) for path in found]
        greedy = paths[0] if second.greedy is not None else []
        paths = [
            path
            for path in paths
            if 0 < constrained.healing.n_text(path) <= beam.max_tokens and accepts(constrained.automaton, path)
        ]
        if not paths:
            return outcome, cost
        ends = np.cumsum([0, *map(len, paths)], dtype=np.int64)
        # Wide enough for every path, so that each gets its exact score.
        trie = TokenTrie.from_flat(np.concatenate(paths).astype(np.int32), ends)
        width, n = max(beam.width, len(paths)), max(beam.n, len(paths))
        wide = replace(any_tokens, width=width, n=n, groups=1, diversity=0.0, on_found=beam.on_found)
        third, more = self._run_beam(session, wide, ChoiceAutomaton(trie))
        decoded = next((path for path in third.finished if path.tokens.tolist() == greedy), None)
        third = replace(
            third,
            finished=third.finished[: beam.n],
            greedy=decoded,
            agrees_with_greedy=None if decoded is None else decoded is third.finished[0],
            lost=max(outcome.lost, third.lost, *(path.score for path in third.finished[beam.n :])),
            unread=max(outcome.unread, third.unread),
            n_evaluated=outcome.n_evaluated + second.n_evaluated + third.n_evaluated,
            n_dead_ends=outcome.n_dead_ends,
        )
        return third, cost + more

    def _run_beam(self, session: Session, beam: BeamSearchParams, automaton: Automaton) -> tuple[BeamOutcome, Cost]:
        """Run one beam search over an automaton; return its outcome and cost."""
        handle = self._begin_beam(session, beam, automaton)
        return handle.result(), handle.cost

    def _begin_beam(self, session: Session, beam: BeamSearchParams, automaton: Automaton) -> Handle[BeamOutcome]:
        """Begin one beam search over an automaton; return its handle."""
        constrained, canonicity = self.constrained, self.constrained.canonicity
        # Another automaton accepts canonical paths alone, so the search need not check.
        is_checked = beam.canonical_only and automaton is constrained.automaton
        spec = BeamSpec(
            constrained.vocabulary,
            beam,
            terminator=constrained.terminator,
            healed=constrained.healed,
            canonical=canonicity.is_canonical if beam.canonical_only else None,
            may_be_adjacent=constrained.may_join if is_checked else None,
            may_start=canonicity.may_start if is_checked else None,
            tolerance=session.tolerance or 0.0,
            reads_only_best=session.max_named is not None,
        )
        tell, n_before = beam.on_found, len(constrained.delimiter)
        on_found = None if tell is None else lambda data, logp: self._report(tell, data[n_before:], logp)
        task = BeamTask(constrained.prompt, automaton, spec, on_found=on_found)
        return session.group.begin_counted(task, beam.on_progress)

    def _report(self, tell: Callable[[str, float], None], data: bytes, logp: float) -> None:
        """Call `BeamSearchParams.on_found` with the text of a path that was finished.

        Args:
            tell: The callback.
            data: Bytes of the path after the delimiter.
            logp: Its log-probability.
        """
        tell(decode_text(self.constrained.read(data)), logp)

    def _compute_gap(self, outcome: BeamOutcome) -> float:
        """Return the lowest score of a returned text minus a bound on dropped paths.

        The bound is `BeamOutcome.lost`. The gap is inf if nothing was dropped, and -inf
        if fewer texts were found than requested.
        """
        if outcome.lost == -math.inf:
            return math.inf
        if len(outcome.finished) < self.beam.n:
            return -math.inf
        n_tokens, penalty = self.constrained.healing.n_text, self.beam.length_penalty
        scores = (path.logp_path / max(1, n_tokens(path.tokens.tolist())) ** penalty for path in outcome.finished)
        return float(min(scores) - outcome.lost)

    def _make_certificate(
        self, session: Session, outcome: BeamOutcome | AutomatonOutcome, gap: float, stopped: str
    ) -> BeamCertificate:
        """Return the certificate of a search.

        With several groups or a callback, nothing is proved.

        Args:
            session: The session, whose tolerance a proof on a served model must
                withstand.
            outcome: The outcome of the search.
            gap: The lowest returned score minus a bound on other texts.
            stopped: `BeamResult.stopped`.
        """
        beam, is_unread = self.beam, _has_unread_rival(outcome)
        gap = lower_gap(gap, outcome.heal.width if beam.length_penalty else 0.0)
        is_bounded = beam.groups == 1 and beam.expand is None and gap > ROUNDING
        is_proved = stopped == "done" and not is_unread if beam.exact else is_bounded
        reason = self.constrained.reason(outcome.heal.width)
        if not reason and not is_proved:
            is_unread &= beam.groups == 1 and beam.expand is None
            reason = reason_tokens_unread() if is_unread else reason_beam_ended(beam, stopped, outcome.n_evaluated)
        if not reason and session.is_served and session.tolerance:
            is_clear = gap > max_gap_change(session.tolerance, outcome.n_steps)
            reason = "" if is_clear else reason_too_close(session.tolerance)
        return BeamCertificate(
            proved=not reason,
            about=result_subject(strings=beam.canonical_only if isinstance(outcome, BeamOutcome) else outcome.strings),
            bound_gap=gap,
            nodes_evaluated=outcome.n_evaluated,
            method="best_first" if beam.exact else "beam",
            reason=reason,
        )

    def _signature(self, session: Session) -> Signature:
        """Return the signature of the scores."""
        penalty = self.beam.length_penalty
        return self.constrained.signature(session, f"joint/tokens^{penalty:g}" if penalty else "joint")

    def _search_exactly(self, session: Session) -> BeamResult:
        """Search for the best texts exactly and return the result."""
        constrained, beam = self.constrained, self.beam
        search = SearchParams(
            k=beam.n, budget_nodes=beam.budget_nodes, max_tokens=beam.max_tokens, canonical_only=beam.canonical_only
        )
        spec = replace(constrained.spec(search), max_children=session.max_named)
        automaton = constrained.search_automaton(canonical_only=beam.canonical_only)
        tell = beam.on_found
        on_path = None if tell is None else lambda path: self._report(tell, path.data, path.logp)
        task = AutomatonSearch(constrained.prompt, automaton, spec, on_found=on_path, fill_rows=session.fill_rows)
        handle = session.group.begin_counted(task, beam.on_progress)
        outcome = handle.result()
        paths = outcome.paths[: beam.n]
        if not paths:
            raise nothing_found_error(constrained, outcome, beam.max_tokens)
        hypotheses = tuple(constrained.hypothesis(path) for path in paths)
        last = paths[-1].score if len(paths) == beam.n else -math.inf
        gap = min(outcome.bound_gap, math.inf if outcome.cut_bound == -math.inf else last - outcome.cut_bound)
        greedy, agrees = _exact_greedy(constrained, outcome, hypotheses)
        is_through = outcome.proved or _has_unread_rival(outcome)
        stopped = "budget" if not is_through else "length" if outcome.proved and gap <= 0 else "done"
        return BeamResult(
            hypotheses=hypotheses,
            incomplete=(),
            greedy=greedy,
            agrees_with_greedy=agrees,
            certificate=self._make_certificate(session, outcome, gap, stopped),
            stopped=stopped,
            n_dead_ends=outcome.n_dead_ends,
            n_merged=sum(path.n_paths - 1 for path in outcome.paths),
            n_refused=outcome.n_other,
            n_steps=max(len(path.tokens) for path in outcome.paths),
            close_steps=(),
            coverage=_bound_coverage([path.logp for path in paths], outcome.heal),
            healed=constrained.healed,
            log_heal=outcome.heal.low,
            heal_gap=outcome.heal.width,
            grammar=constrained.grammar.name,
            grammar_digest=constrained.grammar.digest,
            beam=beam,
            cost=constrained.cost(handle.cost, hypotheses),
            signature=self._signature(session),
            notes=constrained.notes,
        )


def prepare_beam_search(
    model: ModelDescription, prompt: Prompt, grammar: GrammarLike, beam: BeamSearchParams, prompting: PromptParams
) -> PreparedBeamSearch:
    """Check and tokenize a beam search."""
    record("beam", beam, BeamSearchParams)
    if beam.expand is not None and model.identity.precision == REMOTE:
        raise WholeRowsError(words("`expand`"), "leave it out")
    constrained = constrain(
        model,
        prompt,
        read_grammar(grammar),
        max_tokens=beam.max_tokens,
        terminator=beam.terminator,
        prompting=prompting,
    )
    return PreparedBeamSearch(constrained, beam)


def _has_unread_rival(outcome: BeamOutcome | AutomatonOutcome) -> bool:
    """Return whether the best open path has a token whose probability is unknown."""
    if isinstance(outcome, BeamOutcome):
        return -math.inf < outcome.unread == outcome.lost
    return not outcome.proved and outcome.best_unread == outcome.best_open


def _exact_greedy(
    constrained: ConstrainedPrompt, outcome: AutomatonOutcome, hypotheses: Sequence[Hypothesis]
) -> tuple[Hypothesis | None, bool | None]:
    """Return the text of masked greedy decoding, and whether it is the best text.

    The text is None if it is not among `hypotheses`. The second value is None if it is
    unknown.
    """
    greedy = constrained.text_of(outcome.greedy)
    best = hypotheses[0].data
    if not outcome.greedy_ended:
        return None, None if best.startswith(greedy) else False
    return next((one for one in hypotheses if one.data == greedy), None), greedy == best


def _make_hypothesis(constrained: ConstrainedPrompt, path: BeamPath, unfinished: str = "") -> Hypothesis:
    """Return the record of a path.

    `unfinished` is the reason for which an incomplete path ended; "" for a complete
    one.
    """
    data = constrained.read(path.data[len(constrained.delimiter) :])
    return Hypothesis(
        text=decode_text(data),
        data=data,
        tokens=TokenScore.along(constrained.vocabulary, path.tokens, path.token_logp),
        logp=path.logp,
        logp_path=path.logp_path,
        logp_end=path.logp_end,
        score=path.score,
        n_paths=path.n_paths,
        complete=path.complete,
        ended_by=unfinished or constrained.ended_by,
        group=path.group,
    )


def _nothing_error(constrained: ConstrainedPrompt, outcome: BeamOutcome) -> NothingFoundError:
    """Return the error for a search that found not even a prefix of a text."""
    reasons = [f"{outcome.n_dead_ends} paths were dead ends"] if outcome.n_dead_ends else []
    reasons += [f"{outcome.n_refused} were not as the tokenizer writes them"] if outcome.n_refused else []
    reasons += [constrained.doubt] if constrained.doubt else []
    remedy: str
    if outcome.lost > -math.inf:
        reasons.append("beginnings were left aside")
        remedy = (
            UNREAD_REMEDY
            if outcome.unread == outcome.lost
            else remedies("widen the beam", "allow any tokens (`canonical_only=False`)")
        )
    elif reasons:
        remedy = "widen the beam"
    else:
        remedy = "use a grammar whose texts this model has tokens for"
    return NothingFoundError(
        constrained.grammar.name, ", ".join(reasons) or "no token that it allows is possible here", remedy
    )


def _bound_coverage(logp: list[float], heal: Interval[float]) -> float:
    """Return a lower bound on the total probability of paths.

    `logp` are their log-probabilities, given the healed bytes. The bound holds for each
    value in `heal`, the interval of the healed bytes' own log-probability.
    """
    return float(bound_coverage(Interval.point(coverage_of(np.array(logp))), heal.width).low)
