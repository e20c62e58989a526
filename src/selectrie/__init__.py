"""Score, don't sample: the joint log-probability decides among texts, on llama.cpp models.

>>> import selectrie
>>> llm = selectrie.load()                   # or a GGUF file of your own      # doctest: +SKIP
>>> llm.select("The capital of France is", [" Paris", " London"]).text       # doctest: +SKIP
' Paris'

Names are imported when used, so that `import selectrie` is cheap.
"""

from __future__ import annotations

from selectrie.version import __version__

TYPE_CHECKING = (
    False  # as in typing, whose import would take longer than all that the command imports before it listens
)
if TYPE_CHECKING:
    from typing import Any

    from selectrie.draft import EngineDrafter, LookupDrafter
    from selectrie.engine import Engine
    from selectrie.errors import SelectrieError
    from selectrie.generating import Generating
    from selectrie.grammar import Grammar
    from selectrie.history import models
    from selectrie.loading import load
    from selectrie.options import Beam, Prompting, Rendering, Rule, Sampling, Search, Stopping
    from selectrie.registry import Models
    from selectrie.render import PageStream
    from selectrie.results import (
        BeamResult,
        ChoiceScore,
        Chunk,
        Completion,
        Generation,
        Hypothesis,
        ModelRecord,
        Page,
        Selection,
        TextScore,
        TokenPlan,
    )
    from selectrie.streaming import Stream
    from selectrie.template.template import Template

__all__ = [
    "Beam",
    "BeamResult",
    "ChoiceScore",
    "Chunk",
    "Completion",
    "Engine",
    "EngineDrafter",
    "Generating",
    "Generation",
    "Grammar",
    "Hypothesis",
    "LookupDrafter",
    "ModelRecord",
    "Models",
    "Page",
    "PageStream",
    "Prompting",
    "Rendering",
    "Rule",
    "Sampling",
    "Search",
    "Selection",
    "SelectrieError",
    "Stopping",
    "Stream",
    "Template",
    "TextScore",
    "TokenPlan",
    "__version__",
    "load",
    "models",
]

_HOME = {
    "Beam": "options",
    "BeamResult": "results",
    "ChoiceScore": "results",
    "Chunk": "results",
    "Completion": "results",
    "Engine": "engine",
    "EngineDrafter": "draft",
    "Generating": "generating",
    "Generation": "results",
    "Grammar": "grammar",
    "Hypothesis": "results",
    "LookupDrafter": "draft",
    "ModelRecord": "results",
    "Models": "registry",
    "Page": "results",
    "PageStream": "render",
    "Prompting": "options",
    "Rendering": "options",
    "Rule": "options",
    "Sampling": "options",
    "Search": "options",
    "Selection": "results",
    "SelectrieError": "errors",
    "Stopping": "options",
    "Stream": "streaming",
    "Template": "template.template",
    "TextScore": "results",
    "TokenPlan": "results",
    "load": "loading",
    "models": "history",
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
