"""Sample among the texts of a grammar: from a request to its tasks and to `Samples`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from selectrie.core.model import Model
from selectrie.core.types import Cost
from selectrie.decoding.automaton.exact_sampling import ExactOutcome, ExactSampleTask
from selectrie.decoding.automaton.finished import FoundPath
from selectrie.decoding.sampling.task import Sampled, SampleSpec, SampleTask
from selectrie.engine.requests.constrained_prompt import Constrained, Space, about, constrain, is_prefix_free
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import NothingFoundError
from selectrie.grammar import Grammar
from selectrie.options import (
    BEAM_TERMINATORS,
    GRAMMAR_NODES,
    MOST_TEXTS,
    SamplingParams,
    SearchParams,
    StopParams,
    at_least,
    flag,
    one_of,
    seed,
)
from selectrie.results import Hypothesis, Samples, Signature
from selectrie.tokenization.healing_automaton import HealedBytes
from selectrie.tokenization.prompts import Prompt


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSample:
    """A request for texts drawn from a grammar, checked and tokenized.

    Attributes:
        asked: Prompt and grammar as tokens and an automaton.
        search: Limits of the search.
        n: Number of texts.
        seed: Seed of the first text.
        exact: Whether texts are drawn by their probability among all texts.
    """

    asked: Constrained
    search: SearchParams
    n: int
    seed: int
    exact: bool


def prepare(
    model: Model, prompt: Prompt, grammar: Grammar, request: SelectRequest, wanted: tuple[int, int | None, bool]
) -> PreparedSample:
    """Check and tokenize a request for draws; `wanted` is (n, seed, exact)."""
    n, given, exact = wanted
    at_least("n", n, 1, most=MOST_TEXTS, optional=False)
    first = seed("seed", given)
    flag("exact", exact)
    one_of("terminator", request.terminator, BEAM_TERMINATORS)
    space = Space(model.limits, request.search.max_tokens)
    asked = constrain(
        model.vocabulary, space, prompt, grammar, terminator=request.terminator, prompting=request.prompting
    )
    first = int.from_bytes(os.urandom(4), "little") if first is None else first
    return PreparedSample(asked, request.search, n, first, exact)


def answer(group: TaskGroup, prepared_sample: PreparedSample, tolerance: float | None) -> Samples:
    """Draw the texts.

    Raises `NothingFoundError` if there are none within `max_tokens`, or if the budget
    was used up: the texts drawn until then are no sample, since short texts come first.
    """
    asked, search = prepared_sample.asked, prepared_sample.search
    check = None if tolerance is None else group.owner.check
    signature = asked.signature(group.owner.scheduler.model.identity, check, "joint")
    if not prepared_sample.exact:
        return _draw_locally(group, prepared_sample, tolerance, signature)
    budget = GRAMMAR_NODES + prepared_sample.n * search.max_tokens
    spec = asked.spec(search, merge_equal_text=True, budget=budget)
    task = ExactSampleTask(
        asked.prompt, asked.automaton, spec, n=prepared_sample.n, seed=prepared_sample.seed, tolerance=tolerance or 0.0
    )
    handle = group.begin_told(task, search.on_progress)
    outcome = handle.result()
    texts = [text for text in outcome.texts if text is not None]
    if not outcome.is_complete:
        raise _too_few(prepared_sample, outcome, len(texts))
    hypotheses = tuple(asked.hypothesis(path) for path in texts)
    draws = _draws(prepared_sample, hypotheses, outcome, handle.cost, signature)
    return draws if tolerance is None else replace(draws, close_steps=outcome.close_steps)


def _too_few(prepared_sample: PreparedSample, outcome: ExactOutcome, n_drawn: int) -> NothingFoundError:
    """Return the error that says why there is no sample and what helps."""
    if outcome.is_empty:
        reason = f"none of at most {prepared_sample.search.max_tokens} tokens is possible"
        return NothingFoundError(prepared_sample.asked.grammar.name, reason, "raise max_tokens")
    reason = (
        f"the budget ended after {outcome.n_evaluated} rows and {outcome.n_attempts} walks, "
        f"when {n_drawn} of {prepared_sample.n} texts were drawn, which are no sample, for short ones come first"
    )
    remedy = "raise budget_nodes, draw fewer or shorter texts, or draw step by step (exact=False)"
    return NothingFoundError(prepared_sample.asked.grammar.name, reason, remedy)


def _draws(
    prepared_sample: PreparedSample,
    texts: tuple[Hypothesis, ...],
    outcome: ExactOutcome | None,
    cost: Cost,
    signature: Signature,
) -> Samples:
    """Return the record, without its `close_steps`."""
    asked = prepared_sample.asked
    doubt = "" if outcome is None else asked.doubt or _nested(asked)
    is_exact = outcome is not None and not doubt
    return Samples(
        texts=texts,
        exact=is_exact,
        reason=doubt,
        about=about(strings=outcome is not None and outcome.strings),
        seed=prepared_sample.seed,
        max_tokens=prepared_sample.search.max_tokens,
        mass=outcome.mass if outcome is not None and is_exact else None,
        mass_low=outcome.mass_low if outcome is not None and is_exact else None,
        mass_high=outcome.mass_high if outcome is not None and is_exact else None,
        n_attempts=len(texts) if outcome is None else outcome.n_attempts,
        close_steps=None,
        healed=asked.healed,
        log_heal=0.0 if outcome is None else outcome.log_heal,
        heal_gap=0.0 if outcome is None else outcome.heal_gap,
        grammar=asked.grammar.name,
        grammar_digest=asked.grammar.digest,
        cost=asked.cost(cost, texts),
        signature=signature,
    )


def _nested(asked: Constrained) -> str:
    """Return why a text that continues another one is never drawn; "" if all can be."""
    if asked.terminator == "eog" or is_prefix_free(asked.grammar):
        return ""
    return "terminator='none' ends a draw at the first text, so one that goes on after another would never be drawn"


def _draw_locally(
    group: TaskGroup, prepared_sample: PreparedSample, tolerance: float | None, signature: Signature
) -> Samples:
    """Draw token by token among those that may follow.

    Log-probabilities are those of the model, without the mask.
    """
    asked = prepared_sample.asked
    spec = SampleSpec(
        asked.prompt,
        asked.vocabulary.pieces,
        asked.vocabulary.eog,
        prepared_sample.seed,
        sampling=SamplingParams.UNCHANGED,
        stopping=StopParams(max_tokens=prepared_sample.search.max_tokens),
        automaton=asked.automaton,
        healed=HealedBytes(asked.vocabulary, asked.healed) if asked.healed else None,
        tolerance=tolerance or 0.0,
    )
    tasks = [SampleTask(replace(spec, seed=prepared_sample.seed + i)) for i in range(prepared_sample.n)]
    handles = [group.begin(task) for task in tasks]
    found = [handle.result() for handle in handles]
    texts = tuple(_sampled(asked, one) for one in found)
    draws = _draws(prepared_sample, texts, None, sum((handle.cost for handle in handles), Cost()), signature)
    return draws if tolerance is None else replace(draws, close_steps=tuple(one.close_steps for one in found))


def _sampled(asked: Constrained, sampled: Sampled) -> Hypothesis:
    n = len(sampled.tokens) - (sampled.ended_by is not None)
    end, joint = float(sampled.logp[n:].sum()), float(sampled.logp.sum())
    data = asked.vocabulary.decode(sampled.tokens[:n])[len(asked.healed) + len(asked.delimiter) :]
    path = FoundPath(data, sampled.tokens[:n], sampled.logp[:n], end, joint, joint)
    made = asked.hypothesis(path)
    ended_by = {"eog": "eog", "automaton": "grammar"}.get(sampled.finish, "length")
    return replace(made, complete=ended_by != "length", ended_by=ended_by)
