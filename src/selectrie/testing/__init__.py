"""Fakes, slow oracles and the check of the model laws, for tests of selectrie and of what is built on it.

Needs neither pytest nor hypothesis. `HashModel` and `TableModel` satisfy the model port with numbers that are known
beforehand; the oracles are the obvious, slow versions of what the library does fast; `check_model` puts any model
through random work and compares it with evaluating each path alone.
"""

from selectrie.testing.fakes import FakeModel, HashModel, TableModel
from selectrie.testing.laws import LawBroken, ModelReport, check_model
from selectrie.testing.oracles import (
    ExactTexts,
    NestedTrie,
    enumerate_table,
    naive_joint,
    naive_local,
    naive_unless_continued,
    score_paths_alone,
)
from selectrie.testing.tiny_vocabulary import DEFAULT_PIECES, make_vocabulary, spell

__all__ = [
    "DEFAULT_PIECES",
    "ExactTexts",
    "FakeModel",
    "HashModel",
    "LawBroken",
    "ModelReport",
    "NestedTrie",
    "TableModel",
    "check_model",
    "enumerate_table",
    "make_vocabulary",
    "naive_joint",
    "naive_local",
    "naive_unless_continued",
    "score_paths_alone",
    "spell",
]
