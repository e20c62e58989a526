"""Beam search, or the exact search: from a prompt and a grammar to a `BeamResult`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from selectrie.core.automaton import ChoiceAutomaton
from selectrie.core.model import Model
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost
from selectrie.decoding import scoring
from selectrie.decoding.automaton.best_first import AutomatonOutcome, AutomatonSearch
from selectrie.decoding.automaton.records import accepts
from selectrie.decoding.beam.search import BeamOutcome, BeamPath, BeamSpec, BeamTask
from selectrie.decoding.scoring.tolerance import ROUNDING
from selectrie.engine.requests.constrained_prompt import Constrained, Space, about, constrain, nothing_found, shown
from selectrie.engine.requests.unproved import beam_ended
from selectrie.engine.scheduler.model_thread import Handle
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import NothingFoundError
from selectrie.grammar import Grammar
from selectrie.options import BeamSearchParams, PromptParams, SearchParams, record
from selectrie.results import BeamCertificate, BeamResult, Hypothesis, Signature
from selectrie.tokenization.prompts import Prompt


def prepare(
    model: Model, prompt: Prompt, grammar: Grammar, beam: BeamSearchParams, prompting: PromptParams
) -> Constrained:
    """Check and tokenize a beam search."""
    record("beam", beam, BeamSearchParams)
    space = Space(model.limits, beam.max_tokens)
    return constrain(model.vocabulary, space, prompt, grammar, terminator=beam.terminator, prompting=prompting)


def answer(group: TaskGroup, asked: Constrained, beam: BeamSearchParams, tolerance: float | None) -> BeamResult:
    """Search and make the result.

    Args:
        group: The group that the tasks belong to.
        asked: Prompt and grammar.
        beam: Options of the search.
        tolerance: Nats per row by which layout may change a log-probability; None if
            it was not measured.

    Raises:
        NothingFoundError: If not even the beginning of a text was found.
    """
    rule = "joint" if not beam.length_penalty else f"joint/tokens^{beam.length_penalty:g}"
    signature = asked.signature(group.owner.scheduler.model.identity, group.owner.check, rule)
    if beam.exact:
        search = SearchParams(
            k=beam.n, budget_nodes=beam.budget_nodes, max_tokens=beam.max_tokens, canonical_only=beam.canonical_only
        )
        spec = asked.spec(search, merge_equal_text=beam.merge_equal_text)
        exact = group.begin(AutomatonSearch(asked.prompt, asked.automaton, spec))
        return _exact(asked, beam, exact, signature)
    outcome, cost = _beam(group, asked, beam, tolerance or 0.0)
    return _searched(asked, beam, outcome, cost, signature)


def _beam(group: TaskGroup, asked: Constrained, beam: BeamSearchParams, tolerance: float) -> tuple[BeamOutcome, Cost]:
    """Search with a beam.

    If none of its paths ends in canonical tokens, a second search looks for texts in
    any tokens, and their canonical paths are evaluated. A narrow beam misses such
    texts; finding them proves nothing.
    """
    first = group.begin(BeamTask(asked.prompt, asked.automaton, _spec(asked, beam, tolerance)))
    outcome = first.result()
    if outcome.finished or not beam.canonical_only or beam.budget_nodes is not None or beam.expand is not None:
        return outcome, first.cost
    free = replace(beam, canonical_only=False)
    second = group.begin(BeamTask(asked.prompt, asked.automaton, _spec(asked, free, tolerance)))
    own = [asked.canonicity.canonical_path(path.tokens.tolist()) for path in second.result().finished]
    own = [path for path in own if 0 < asked.healing.n_text(path) <= beam.max_tokens and accepts(asked.automaton, path)]
    if not own:
        return outcome, first.cost + second.cost
    trie = TokenTrie.from_flat(np.concatenate(own).astype(np.int32), np.cumsum([0, *map(len, own)], dtype=np.int64))
    alone = replace(free, width=max(beam.width, len(own)), groups=1, diversity=0.0)
    third = group.begin(BeamTask(asked.prompt, ChoiceAutomaton(trie), _spec(asked, alone, tolerance)))
    found = third.result()
    n_evaluated = outcome.n_evaluated + second.result().n_evaluated + found.n_evaluated
    lost = max(outcome.lost, found.lost)
    return replace(
        found, lost=lost, n_evaluated=n_evaluated, n_dead_ends=outcome.n_dead_ends
    ), first.cost + second.cost + third.cost


def _spec(asked: Constrained, beam: BeamSearchParams, tolerance: float) -> BeamSpec:
    canonicity = asked.canonicity
    return BeamSpec(
        asked.vocabulary,
        beam,
        asked.terminator,
        asked.healed,
        canonical=canonicity.is_canonical if beam.canonical_only else None,
        may_be_adjacent=asked.may_join if beam.canonical_only else None,
        may_start=canonicity.may_start if beam.canonical_only else None,
        tolerance=tolerance,
    )


def _searched(
    asked: Constrained, beam: BeamSearchParams, outcome: BeamOutcome, cost: Cost, signature: Signature
) -> BeamResult:
    """Return the result of a beam search."""
    gives_broken = beam.incomplete or not outcome.finished
    broken = outcome.broken if gives_broken else ()
    if not outcome.finished and not broken:
        raise _nothing(asked, outcome)
    unfinished = "length" if outcome.stopped == "done" else outcome.stopped
    hypotheses = tuple(_hypothesis(asked, path, "") for path in outcome.finished)
    incomplete = tuple(_hypothesis(asked, path, unfinished) for path in broken)
    return BeamResult(
        hypotheses=hypotheses,
        incomplete=incomplete,
        greedy=None if outcome.greedy is None else _hypothesis(asked, outcome.greedy, ""),
        agrees_with_greedy=outcome.agrees_with_greedy,
        certificate=_beam_certificate(asked, outcome, beam),
        stopped=outcome.stopped,
        n_dead_ends=outcome.n_dead_ends,
        n_merged=outcome.n_merged,
        n_refused=outcome.n_refused,
        n_steps=outcome.n_steps,
        close_steps=outcome.close_steps,
        coverage=scoring.coverage_of(np.array([path.logp for path in outcome.finished])),
        healed=asked.healed,
        log_heal=outcome.log_heal,
        heal_gap=outcome.heal_gap,
        grammar=asked.grammar.name,
        grammar_digest=asked.grammar.digest,
        beam=beam,
        cost=asked.cost(cost, [*hypotheses, *incomplete]),
        signature=signature,
    )


def _beam_certificate(asked: Constrained, outcome: BeamOutcome, beam: BeamSearchParams) -> BeamCertificate:
    """Return the certificate of a beam search.

    The best path dropped on the way bounds what another search could find. With several
    groups or a callback there is no bound.
    """
    is_plain = beam.groups == 1 and beam.expand is None
    last = -math.inf
    if len(outcome.finished) == beam.n:
        penalty = beam.length_penalty
        last = min(
            path.logp_path / max(1, asked.healing.n_text(path.tokens.tolist())) ** penalty for path in outcome.finished
        )
    gap = math.inf if outcome.lost == -math.inf else last - outcome.lost
    reason = asked.reason(outcome.heal_gap)
    if not reason and not (is_plain and gap > ROUNDING):
        reason = beam_ended(beam, outcome.stopped, outcome.n_evaluated)
    return BeamCertificate(
        proved=not reason,
        about=about(strings=beam.canonical_only),
        bound_gap=gap,
        nodes_evaluated=outcome.n_evaluated,
        method="beam",
        reason=reason,
    )


def _exact(
    asked: Constrained, beam: BeamSearchParams, handle: Handle[AutomatonOutcome], signature: Signature
) -> BeamResult:
    """Return the result of the exact search."""
    outcome = handle.result()
    found = outcome.found[: beam.n]
    if not found:
        raise nothing_found(asked, outcome, beam.max_tokens)
    hypotheses = tuple(asked.hypothesis(path) for path in found)
    last = found[-1].score if len(found) == beam.n else -math.inf
    gap = min(outcome.bound_gap, math.inf if outcome.cut_bound == -math.inf else last - outcome.cut_bound)
    greedy, agrees = _exact_greedy(asked, outcome, hypotheses)
    stopped = "budget" if not outcome.proved else "length" if gap <= 0 else "done"
    reason = asked.reason(outcome.heal_gap)
    if not reason and stopped != "done":
        reason = beam_ended(beam, stopped, outcome.n_evaluated)
    return BeamResult(
        hypotheses=hypotheses,
        incomplete=(),
        greedy=greedy,
        agrees_with_greedy=agrees,
        certificate=BeamCertificate(
            proved=not reason,
            about=about(strings=outcome.strings),
            bound_gap=gap,
            nodes_evaluated=outcome.n_evaluated,
            method="best_first",
            reason=reason,
        ),
        stopped=stopped,
        n_dead_ends=outcome.n_dead_ends,
        n_merged=sum(path.n_paths - 1 for path in outcome.found),
        n_refused=outcome.n_other,
        n_steps=max(len(path.tokens) for path in outcome.found),
        close_steps=(),
        coverage=scoring.coverage_of(np.array([path.logp for path in found])),
        healed=asked.healed,
        log_heal=outcome.log_heal,
        heal_gap=outcome.heal_gap,
        grammar=asked.grammar.name,
        grammar_digest=asked.grammar.digest,
        beam=beam,
        cost=asked.cost(handle.cost, hypotheses),
        signature=signature,
    )


def _exact_greedy(
    asked: Constrained, outcome: AutomatonOutcome, hypotheses: Sequence[Hypothesis]
) -> tuple[Hypothesis | None, bool | None]:
    """Return the greedy text if it is among these, and whether it is the first.

    The greedy text is the one that masked greedy decoding writes; whether it is the
    first is None if that is unknown.
    """
    written = _text_bytes(asked, asked.vocabulary.decode(outcome.greedy)[len(asked.healed) :])
    best = hypotheses[0].data
    if not outcome.greedy_ended:
        return None, None if best.startswith(written) else False
    found = [one for one in hypotheses if one.data == written]
    return (found[0] if found else None), written == best


def _hypothesis(asked: Constrained, path: BeamPath, unfinished: str) -> Hypothesis:
    """Return the record of a path; `unfinished` says what broke it off, or ""."""
    data = _text_bytes(asked, path.data)
    return Hypothesis(
        text=shown(data),
        data=data,
        tokens=asked.token_scores(path.tokens, path.token_logp),
        logp=path.logp,
        logp_path=path.logp_path,
        logp_end=path.logp_end,
        score=path.score,
        n_paths=path.n_paths,
        complete=path.complete,
        ended_by=unfinished or asked.ended_by,
        group=path.group,
    )


def _text_bytes(asked: Constrained, data: bytes) -> bytes:
    """Return the text without the delimiter before it."""
    return data[len(asked.delimiter) :]


def _nothing(asked: Constrained, outcome: BeamOutcome) -> NothingFoundError:
    """Return the error that says why there is not even the beginning of a text."""
    reasons = [f"{outcome.n_dead_ends} paths were dead ends"] if outcome.n_dead_ends else []
    reasons += [f"{outcome.n_refused} were not as the tokenizer writes them"] if outcome.n_refused else []
    reasons += [asked.doubt] if asked.doubt else []
    if outcome.lost > -math.inf:
        reasons.append("beginnings were left aside")
        remedy = "widen the beam, or allow any tokens (canonical_only=False)"
    elif reasons:
        remedy = "widen the beam"
    else:
        remedy = "let the grammar have texts that this model has tokens for"
    return NothingFoundError(
        asked.grammar.name, ", ".join(reasons) or "no token that it allows is possible here", remedy
    )
