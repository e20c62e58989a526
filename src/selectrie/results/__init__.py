"""Defines the frozen records that users receive as results.

Every logp is a natural logarithm. Probabilities are relative to the set of choices.

To build a `Selection`, make a `ChoiceTable` of arrays over the choices, and pass it to
`Selection` with all other fields by name. `view_of` builds a `TrieView`.
"""

from __future__ import annotations

# As in typing. The modules are imported on first use: a selection needs few of them.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from selectrie.results.advice import Advice, AdviceWarning, Remedy
    from selectrie.results.beam import BeamCertificate, BeamResult, Hypothesis, Samples
    from selectrie.results.drawing.trie import TrieView
    from selectrie.results.extraction import ExtractedValue, Extraction, Marginal
    from selectrie.results.generation import Chunk, Completion, Generation, PromptLogprobs
    from selectrie.results.models import ModelRecord
    from selectrie.results.page import Assignment, Event, JointSelection, Page, SlotEvent, TextEvent
    from selectrie.results.records import (
        FORMAT_VERSION,
        Certificate,
        ChoiceScore,
        ChoiceSpellings,
        GrammarFacts,
        Signature,
        Spellings,
        TextScore,
        TokenScore,
    )
    from selectrie.results.selection import SampledChoice, Selection, TokenPlan
    from selectrie.results.table import ChoiceTable
    from selectrie.results.trie_view import view_of

__all__ = [
    "FORMAT_VERSION",
    "Advice",
    "AdviceWarning",
    "Assignment",
    "BeamCertificate",
    "BeamResult",
    "Certificate",
    "ChoiceScore",
    "ChoiceSpellings",
    "ChoiceTable",
    "Chunk",
    "Completion",
    "Event",
    "ExtractedValue",
    "Extraction",
    "Generation",
    "GrammarFacts",
    "Hypothesis",
    "JointSelection",
    "Marginal",
    "ModelRecord",
    "Page",
    "PromptLogprobs",
    "Remedy",
    "SampledChoice",
    "Samples",
    "Selection",
    "Signature",
    "SlotEvent",
    "Spellings",
    "TextEvent",
    "TextScore",
    "TokenPlan",
    "TokenScore",
    "TrieView",
    "view_of",
]

_NAMES = {
    "advice": "Advice AdviceWarning Remedy",
    "beam": "BeamCertificate BeamResult Hypothesis Samples",
    "extraction": "ExtractedValue Extraction Marginal",
    "generation": "Chunk Completion Generation PromptLogprobs",
    "models": "ModelRecord",
    "page": "Assignment Event JointSelection Page SlotEvent TextEvent",
    "records": (
        "FORMAT_VERSION Certificate ChoiceScore ChoiceSpellings GrammarFacts Signature Spellings TextScore TokenScore"
    ),
    "selection": "SampledChoice Selection TokenPlan",
    "table": "ChoiceTable",
    "trie_view": "TrieView view_of",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'selectrie.results' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"selectrie.results.{_HOME[name]}"), name)
    globals()[name] = value
    return value
