"""Turns rows into scores.

The modules say which rows of a trie are needed, and compute terminators, rules, priors,
probabilities, tolerances and bounds.
"""

from __future__ import annotations

from selectrie.core.numerics import ROUNDED_SUM
from selectrie.decoding.scoring.evaluation import (
    ReadPlans,
    RowNeeds,
    TrieEvaluation,
    TrieReader,
    auto_terminator,
    check_choices,
    levels,
    row_needs,
    row_owner,
)
from selectrie.decoding.scoring.paths import (
    RESOLVED,
    PathScores,
    Posteriors,
    bound_uncontinued,
    coverages,
    greedy_child,
    path_scores,
    posteriors,
    prefix_logp,
    stack_evaluations,
    stop_logp,
)
from selectrie.decoding.scoring.posterior import (
    Posterior,
    best_of_paths,
    coverage_of,
    duplicates,
    has_near_tie,
    is_certain,
    posterior,
)
from selectrie.decoding.scoring.rules import (
    Bounds,
    Lengths,
    Objective,
    log_priors,
    mean_joint,
    objective_of,
    plain_objective,
    rounding_of,
    score_choices,
    score_with,
)
from selectrie.decoding.scoring.tolerance import (
    are_clear,
    finalists,
    near_margins,
    rows_alone,
    rows_of_paths,
    tolerance_of,
)

__all__ = [
    "RESOLVED",
    "ROUNDED_SUM",
    "Bounds",
    "Lengths",
    "Objective",
    "PathScores",
    "Posterior",
    "Posteriors",
    "ReadPlans",
    "RowNeeds",
    "TrieEvaluation",
    "TrieReader",
    "are_clear",
    "auto_terminator",
    "best_of_paths",
    "bound_uncontinued",
    "check_choices",
    "coverage_of",
    "coverages",
    "duplicates",
    "finalists",
    "greedy_child",
    "has_near_tie",
    "is_certain",
    "levels",
    "log_priors",
    "mean_joint",
    "near_margins",
    "objective_of",
    "path_scores",
    "plain_objective",
    "posterior",
    "posteriors",
    "prefix_logp",
    "rounding_of",
    "row_needs",
    "row_owner",
    "rows_alone",
    "rows_of_paths",
    "score_choices",
    "score_with",
    "stack_evaluations",
    "stop_logp",
    "tolerance_of",
]
