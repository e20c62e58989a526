"""Samples among the texts of a grammar."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from selectrie.core.model import ModelDescription
from selectrie.core.types import Cost
from selectrie.decoding.automaton.automaton_task import FinishedPath
from selectrie.decoding.automaton.exact_sampling import ExactOutcome, ExactSampleTask
from selectrie.decoding.sampling.task import Sampled, SampleSpec, SampleTask
from selectrie.engine.requests.constrained_prompt import ConstrainedPrompt, about, constrain, is_prefix_free
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.requests.session import Session
from selectrie.errors import NothingFoundError, ways
from selectrie.grammar import Grammar
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
from selectrie.results import Hypothesis, Samples
from selectrie.tokenization.healing import HealedBytes
from selectrie.tokenization.prompts import Prompt


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSample:
    """A request for texts drawn from a grammar, checked and tokenized.

    Attributes:
        constrained: Prompt and grammar as tokens and an automaton.
        search: Limits of the search.
        n: Number of texts.
        seed: Seed of the first text.
        exact: Whether texts are drawn by their probability among all texts.
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
            constrained.searched(canonical_only=search.canonical_only),
            constrained.spec(search, budget=budget),
            n=self.n,
            seed=self.seed,
            tolerance=session.tolerance or 0.0,
        )
        handle = session.group.begin_counted(task, search.on_progress)
        outcome = handle.result()
        paths = [path for path in outcome.texts if path is not None]
        if not outcome.is_complete:
            raise self._too_few(outcome, len(paths))
        texts = tuple(constrained.hypothesis(path) for path in paths)
        doubt = constrained.doubt or _nested(constrained)
        samples = self._samples(session, texts, outcome.close_steps, handle.cost)
        return replace(
            samples,
            exact=not doubt,
            reason=doubt,
            about=about(strings=outcome.strings),
            mass=None if doubt else outcome.mass,
            mass_low=None if doubt else outcome.mass_low,
            mass_high=None if doubt else outcome.mass_high,
            n_attempts=outcome.n_attempts,
            log_heal=outcome.log_heal,
            heal_gap=outcome.heal_gap,
        )

    def _too_few(self, outcome: ExactOutcome, n_drawn: int) -> NothingFoundError:
        """Return the error that says why texts could not be drawn and what helps."""
        name = self.constrained.grammar.name
        if outcome.is_empty:
            reason = f"none of at most {self.search.max_tokens} tokens is possible"
            return NothingFoundError(name, reason, ways("raise `max_tokens`", "use a grammar of shorter texts"))
        reason = (
            f"the budget ended after {outcome.n_evaluated} rows and {outcome.n_attempts} walks, "
            f"when {n_drawn} of {self.n} texts were drawn, which are not a sample, since short texts come first"
        )
        remedy = ways("raise `budget_nodes`", "draw fewer or shorter texts", "draw step by step (`exact=False`)")
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
        return self._samples(
            session,
            tuple(_hypothesis(constrained, one) for one in sequences),
            tuple(one.close_steps for one in sequences),
            sum((handle.cost for handle in handles), Cost()),
        )

    def _samples(
        self, session: Session, texts: tuple[Hypothesis, ...], close_steps: tuple[tuple[int, ...], ...], cost: Cost
    ) -> Samples:
        """Return the record of drawn texts, as for drawing token by token."""
        constrained = self.constrained
        return Samples(
            texts=texts,
            exact=False,
            reason="",
            about=about(strings=False),
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
    grammar: Grammar,
    request: SelectRequest,
    *,
    n: int,
    seed: int | None,
    exact: bool,
) -> PreparedSample:
    """Check and tokenize a request to draw texts from a grammar."""
    at_least("n", n, 1, max_value=MAX_TEXTS, optional=False)
    first = checked_seed("seed", seed)
    flag("exact", exact)
    one_of("terminator", request.terminator, BEAM_TERMINATORS)
    search = request.search
    constrained = constrain(
        model,
        prompt,
        grammar,
        max_tokens=search.max_tokens,
        terminator=request.terminator,
        prompting=request.prompting,
    )
    first = int.from_bytes(os.urandom(4), "little") if first is None else first
    return PreparedSample(constrained, search, n, first, exact)


def _nested(constrained: ConstrainedPrompt) -> str:
    """Return why some texts can never be drawn; "" if all can be.

    With terminator "none", those are the texts that continue another one.
    """
    if constrained.terminator != "none" or is_prefix_free(constrained.grammar):
        return ""
    return "terminator='none' ends a draw at the first text, so a text that continues another would never be drawn"


def _hypothesis(constrained: ConstrainedPrompt, sampled: Sampled) -> Hypothesis:
    n = len(sampled.tokens) - (sampled.ended_by is not None)
    end, joint = float(sampled.logp[n:].sum()), float(sampled.logp.sum())
    data = constrained.data_of(sampled.tokens[:n])
    path = FinishedPath(data, sampled.tokens[:n], sampled.logp[:n], end, logp=joint, logp_path=joint, score=joint)
    hypothesis = constrained.hypothesis(path)
    ended_by = {"eog": "eog", "automaton": "grammar"}.get(sampled.finish, "length")
    return replace(hypothesis, complete=ended_by != "length", ended_by=ended_by)
