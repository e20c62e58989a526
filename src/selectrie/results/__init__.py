"""The frozen records that users receive.

Every logp is a natural logarithm. Probabilities are relative to the given set.

To build a `Selection`, make a `ChoiceTable` from the scores as arrays over the choices
(its docstring is the contract), and pass the table and the decision to `Selection`, all
by name. `view_of` builds the `TrieView` of a `TokenPlan`.
"""

from __future__ import annotations

from selectrie.results.beam import BeamCertificate, BeamResult, Hypothesis
from selectrie.results.generation import Chunk, Completion, Generation
from selectrie.results.joint import Assignment, JointSelection
from selectrie.results.models import ModelRecord
from selectrie.results.page import Event, Page, SlotEvent, TextEvent
from selectrie.results.prompt_logprobs import PromptLogprobs
from selectrie.results.records import (
    FORMAT_VERSION,
    Certificate,
    ChoiceScore,
    GrammarFacts,
    Signature,
    TextScore,
    TokenScore,
)
from selectrie.results.sampled_choice import SampledChoice
from selectrie.results.samples import Samples
from selectrie.results.selection import Selection, TokenPlan
from selectrie.results.spellings import ChoiceSpellings, Spellings
from selectrie.results.table import ChoiceTable
from selectrie.results.trie_view import TrieView, view_of

__all__ = [
    "FORMAT_VERSION",
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
    "Generation",
    "GrammarFacts",
    "Hypothesis",
    "JointSelection",
    "ModelRecord",
    "Page",
    "PromptLogprobs",
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
