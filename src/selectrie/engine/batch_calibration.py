"""Fits a calibration of questions to the answers about a batch of states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from selectrie.decide.answers import Decision
from selectrie.decide.calibration import N_LEAST, Calibration, question_calibration, sample_of
from selectrie.decide.params import DecisionParams, is_calibrated
from selectrie.decide.questions import Question
from selectrie.decide.states import State, readable_texts
from selectrie.engine.decision_prompts import DecisionMaker
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef, RequestError
from selectrie.options.selection import BASELINE_RULES
from selectrie.results.advice import warn


def params_to_fit(params: DecisionParams) -> DecisionParams:
    """Return the options of the answers that a calibration is fitted to.

    Raises `IncompatibleOptionsError` for a rule that compares with a baseline itself.
    """
    if params.rule in BASELINE_RULES:
        remedy = "both compare with a baseline; take another rule"
        raise IncompatibleOptionsError("calibration", OptionRef("rule", params.rule), remedy)
    return replace(params, calibration=None, prior=None, top=None)


def without_batch(params: DecisionParams) -> DecisionParams:
    """Return the options as they are checked before `calibration="batch"` is fitted."""
    return replace(params, calibration=None) if params.calibration == "batch" else params


def fit_to_states(
    maker: DecisionMaker, decide: Callable[[Sequence[State]], list[Decision]], states: Iterable[State]
) -> Calibration:
    """Return a calibration of all questions, except those with a grammar.

    Args:
        maker: The maker of the prompts, with the options of `params_to_fit`.
        decide: Returns the decisions on a unit of states. One that cannot be asked has
            an error.
        states: The states, of which a sample is asked about (`sample_of`).

    Raises:
        OptionError: If no state can be asked.
    """
    decisions = decide(sample_of(readable_texts(states)))
    answered = [one for one in decisions if one.error is None]
    if not answered:
        raise OptionError("states", len(decisions), "at least one state that can be asked")
    return Calibration(
        tuple(
            question_calibration(
                ask.bound(maker.digest, maker.model.identity),
                [list(one[name].probabilities.values()) for one in answered],
            )
            for name, ask in maker.asks.items()
            if ask.question.grammar is None
        )
    )


def with_fitted_calibration(
    fit: Callable[..., Calibration],
    states: Iterable[State | RequestError],
    questions: Mapping[str, Question],
    params: DecisionParams,
) -> DecisionParams:
    """Replace `calibration="batch"` by a calibration fitted to the states.

    `fit` is the method `fit_calibration` of an engine or a cascade.

    States that cannot be asked are left out. With fewer than 16 states, the result has
    no calibration, and a warning is issued. Other options are returned unchanged.
    """
    if params.calibration != "batch":
        return params
    params = without_batch(params)
    if not any(is_calibrated(one, params) for one in questions.values()):
        return params
    calibration = Calibration(())
    if sample := sample_of(readable_texts(states)):
        with suppress(OptionError):  # no state can be asked
            calibration = fit(sample, questions, params=params)
    n = min((one.n for one in calibration.questions), default=0)
    if n < N_LEAST:
        need = f"calibration 'batch' needs {N_LEAST} different states of which the question can be asked; there are {n}"
        warn(f"{need}, so the answers are not calibrated")
        return params
    return replace(params, calibration=calibration)
