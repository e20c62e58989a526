"""The frozen records users hold. All logp are natural logs; probabilities are over the set given.

To build a `Selection`: `ChoiceTable` takes the scores as arrays over the choices (its docstring is the contract),
`Selection` the table and the decision, all by name. `view_of` draws the `TrieView` of a `TokenPlan`.
"""

from __future__ import annotations

from selectrie.results.beam import BeamCertificate, BeamResult, Hypothesis
from selectrie.results.generation import Chunk, Completion, Generation
from selectrie.results.joint import Assignment, JointSelection
from selectrie.results.models import ModelRecord
from selectrie.results.page import Event, Page, SlotEvent, TextEvent
from selectrie.results.records import (
    FORMAT_VERSION,
    Certificate,
    ChoiceScore,
    GrammarFacts,
    Signature,
    TextScore,
    TokenScore,
)
from selectrie.results.sampled_choice import DrawnChoice
from selectrie.results.samples import Draws
from selectrie.results.selection import Selection, TokenPlan
from selectrie.results.table import ChoiceTable
from selectrie.results.trie_view import TrieView, view_of

__all__ = [
    "FORMAT_VERSION",
    "Assignment",
    "BeamCertificate",
    "BeamResult",
    "Certificate",
    "ChoiceScore",
    "ChoiceTable",
    "Chunk",
    "Completion",
    "DrawnChoice",
    "Draws",
    "Event",
    "Generation",
    "GrammarFacts",
    "Hypothesis",
    "JointSelection",
    "ModelRecord",
    "Page",
    "Selection",
    "Signature",
    "SlotEvent",
    "TextEvent",
    "TextScore",
    "TokenPlan",
    "TokenScore",
    "TrieView",
    "view_of",
]
