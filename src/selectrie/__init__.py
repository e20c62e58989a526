"""Score, don't sample: joint log-probability decides among texts on llama.cpp models.

>>> import selectrie
>>> llm = selectrie.load()  # or a GGUF file            # doctest: +SKIP
>>> llm.select("The capital of France is", [" Paris", " London"]).text  # doctest: +SKIP
' Paris'

Names are imported when they are used, so that `import selectrie` is cheap.
"""

from __future__ import annotations

from selectrie.version import __version__

# As in `typing`, whose import would take longer than everything else that the command
# imports before it handles signals.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from selectrie.decide.answers import ChoiceAnswer, Decision, PredicateAnswer, ScoreAnswer
    from selectrie.decide.calibration import Calibration
    from selectrie.decide.classification import Classification
    from selectrie.decide.params import DecisionParams
    from selectrie.decide.questions import Choice, Option, Predicate, Question, Score
    from selectrie.decide.states import Json
    from selectrie.decide.templates import DecisionPrompt
    from selectrie.decide.thinking import Thinking
    from selectrie.engine.cascade import Cascade, cascade
    from selectrie.engine.connect import connect
    from selectrie.engine.engine import Engine
    from selectrie.engine.load import load
    from selectrie.engine.pool import ModelPool
    from selectrie.engine.rendering.renderer import PageStream
    from selectrie.engine.requests.generate import Stream
    from selectrie.engine.requests.generation_params import GenerationParams
    from selectrie.engine.requests.speculative import EngineDrafter, LookupDrafter
    from selectrie.engine.sources import models
    from selectrie.engine.tracing.record import record
    from selectrie.errors import SelectrieError
    from selectrie.evaluation.comparison import compare
    from selectrie.evaluation.evaluator import evaluate
    from selectrie.grammar import Grammar
    from selectrie.options import (
        BeamSearchParams,
        PromptParams,
        RenderParams,
        SamplingParams,
        ScoringRule,
        SearchParams,
        StopParams,
    )
    from selectrie.results import (
        Advice,
        AdviceWarning,
        BeamResult,
        ChoiceScore,
        Chunk,
        Completion,
        Extraction,
        Generation,
        Hypothesis,
        ModelRecord,
        Page,
        PromptLogprobs,
        Selection,
        TextScore,
        TokenPlan,
    )
    from selectrie.template.analysis.template import Template

__all__ = [
    "Advice",
    "AdviceWarning",
    "BeamResult",
    "BeamSearchParams",
    "Calibration",
    "Cascade",
    "Choice",
    "ChoiceAnswer",
    "ChoiceScore",
    "Chunk",
    "Classification",
    "Completion",
    "Decision",
    "DecisionParams",
    "DecisionPrompt",
    "Engine",
    "EngineDrafter",
    "Extraction",
    "Generation",
    "GenerationParams",
    "Grammar",
    "Hypothesis",
    "Json",
    "LookupDrafter",
    "ModelPool",
    "ModelRecord",
    "Option",
    "Page",
    "PageStream",
    "Predicate",
    "PredicateAnswer",
    "PromptLogprobs",
    "PromptParams",
    "Question",
    "RenderParams",
    "SamplingParams",
    "Score",
    "ScoreAnswer",
    "ScoringRule",
    "SearchParams",
    "Selection",
    "SelectrieError",
    "StopParams",
    "Stream",
    "Template",
    "TextScore",
    "Thinking",
    "Threshold",
    "TokenPlan",
    "__version__",
    "cascade",
    "compare",
    "connect",
    "evaluate",
    "load",
    "models",
    "record",
]

_HOME = {
    "Advice": "results",
    "AdviceWarning": "results",
    "Calibration": "decide.calibration",
    "Cascade": "engine.cascade",
    "Choice": "decide.questions",
    "ChoiceAnswer": "decide.answers",
    "Classification": "decide.classification",
    "Decision": "decide.answers",
    "DecisionParams": "decide.params",
    "DecisionPrompt": "decide.templates",
    "Option": "decide.questions",
    "Predicate": "decide.questions",
    "PredicateAnswer": "decide.answers",
    "Question": "decide.questions",
    "Score": "decide.questions",
    "ScoreAnswer": "decide.answers",
    "BeamSearchParams": "options",
    "BeamResult": "results",
    "ChoiceScore": "results",
    "Chunk": "results",
    "Completion": "results",
    "Engine": "engine.engine",
    "EngineDrafter": "engine.requests.speculative",
    "Extraction": "results",
    "GenerationParams": "engine.requests.generation_params",
    "Generation": "results",
    "Grammar": "grammar",
    "Hypothesis": "results",
    "Json": "decide.states",
    "LookupDrafter": "engine.requests.speculative",
    "ModelRecord": "results",
    "ModelPool": "engine.pool",
    "Page": "results",
    "PageStream": "engine.rendering.renderer",
    "PromptLogprobs": "results",
    "PromptParams": "options",
    "RenderParams": "options",
    "ScoringRule": "options",
    "SamplingParams": "options",
    "SearchParams": "options",
    "Selection": "results",
    "SelectrieError": "errors",
    "StopParams": "options",
    "Stream": "engine.requests.generate",
    "Template": "template.analysis.template",
    "Threshold": "decide.threshold",
    "TextScore": "results",
    "Thinking": "decide.thinking",
    "TokenPlan": "results",
    "cascade": "engine.cascade",
    "compare": "evaluation.comparison",
    "connect": "engine.connect",
    "evaluate": "evaluation.evaluator",
    "load": "engine.load",
    "models": "engine.sources",
    "record": "engine.tracing.record",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'selectrie' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"selectrie.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
