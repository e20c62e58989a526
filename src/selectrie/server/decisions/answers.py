"""What responses say of decisions: confidence, diagnostics, usage and warnings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from selectrie.decide.answers import Answer, Decision, ScoreAnswer, expected
from selectrie.results.plain import fields_of
from selectrie.results.records import json_logprob
from selectrie.server.decisions.bodies import DecisionRequest


def confidence_of(answer: Answer, kind: str) -> float:
    """Return the confidence of an answer.

    Args:
        answer: The answer.
        kind: How to compute it: a value of `ServerOptions.confidence`.
    """
    if kind == "top":
        return answer.confidence
    probabilities = list(answer.probabilities.values())
    if kind == "label_mass":
        return max(probabilities) * answer.label_mass
    if len(probabilities) == 1:
        return 1.0
    entropy = -sum(p * math.log(p) for p in probabilities if p > 0)
    return max(0.0, 1 - entropy / math.log(len(probabilities)))


def score_of(data: Mapping[str, Any], answer: ScoreAnswer) -> tuple[float, list[float]]:
    """Return the score, and the number of each level.

    The numbers are those in the question `data`, or 0, 1, 2 …: both protocols count
    levels from 0, even if their texts are other numbers.
    """
    levels = data.get("levels")
    has_values = isinstance(levels, list) and any(
        isinstance(one, dict) and one.get("value") is not None for one in levels
    )
    is_given = has_values or data.get("low") is not None
    numbers = [*answer.probabilities] if is_given else [*range(len(answer.probabilities))]
    return expected(numbers, [*answer.probabilities.values()]), numbers


def labels_of(data: Mapping[str, Any], answer: ScoreAnswer) -> list[str]:
    """Return the label of each level: that in the question `data`, or its text."""
    levels, texts = data.get("levels"), [*answer.legend.values()]
    if not isinstance(levels, list):
        return texts
    given = [one if isinstance(one, str) else one.get("label") for one in levels]
    return [label or text for label, text in zip(given, texts, strict=True)]


def fitting_labels(labels: Mapping[str, Any], decision: Decision) -> list[Any]:
    """Return the labels of a question with `multi_label` that fit the text.

    Args:
        labels: The value of each label by the path of its question.
        decision: The answers.
    """
    answers = decision.predicates
    return [label for path, label in labels.items() if answers[path].value and not answers[path].abstained]


def make_diagnostics(answer: Answer) -> dict[str, Any]:
    """Return the field `diagnostics` of an answer: its reliability and its cost."""
    first = answer.selections[0]
    top_tokens = [
        {"token": one.piece.decode("utf-8", "replace") or one.spelling, "logprob": json_logprob(one.logp)}
        for one in first.top_tokens
    ]
    cost = answer.usage.cost
    return {
        "diagnostics": {
            "label_mass": answer.label_mass,
            "first_token_fits": answer.first_token_fits,
            "top_tokens": top_tokens,
            "margin": None if math.isinf(answer.margin) else answer.margin,
            "is_tie": answer.is_tie,
            "tolerance": first.signature.tolerance,
            "proved": all(one.certificate.proved for one in answer.selections),
            "abstained": answer.abstained or None,
            "spread": answer.spread,
            "order_dependent": answer.order_dependent,
            "logprobs": [
                {"text": text, "logprob": json_logprob(float(logp))}
                for text, logp in zip(first.choices.texts, first.choices.logp, strict=True)
            ],
            "rows": cost.rows,
            "rows_one_by_one": cost.rows_naive,
            **fields_of(answer, "decided_by? rationales?"),
            **fields_of(answer.usage, "rows_by_model? rows_alone?"),
        }
    }


def make_usage(decision: Decision) -> dict[str, int]:
    """Return the numbers of input tokens, of output tokens and of cached tokens."""
    usage = decision.usage
    n_cached = min(usage.input_tokens, usage.input_tokens + usage.output_tokens - usage.cost.rows)
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": max(0, n_cached),
    }


def make_warnings(request: DecisionRequest, decision: Decision) -> dict[str, Any]:
    """Return the field `warnings` of a response; `{}` if there are none."""
    warnings = [*request.warnings, *map(str, decision.warnings)]
    return {"warnings": warnings} if warnings else {}
