"""Fakes, slow oracles and a check of the model laws, for tests.

These serve tests of selectrie and of code built on it. Neither pytest nor hypothesis is
needed. `HashModel` and `TableModel` satisfy the model port with numbers that are known
in advance. The oracles are simple, slow versions of algorithms of the library.
`check_model` makes random calls to any model, and compares the rows with those of each
path evaluated alone. `PathsOf` makes any model one that is asked for rows by their
token path, and `check_path_model` checks such models.
"""

from selectrie.testing.fakes import (
    DEFAULT_PIECES,
    FakeModel,
    HashModel,
    PathsOf,
    TableModel,
    make_vocabulary,
    numbered_vocabulary,
    spell,
)
from selectrie.testing.laws import LawBroken, ModelReport, PathModelReport, check_model, check_path_model
from selectrie.testing.oracles import (
    ExactTexts,
    NestedTrie,
    enumerate_table,
    naive_joint,
    naive_local,
    naive_spelled,
    naive_unless_continued,
    score_paths_alone,
)

__all__ = [
    "DEFAULT_PIECES",
    "ExactTexts",
    "FakeModel",
    "HashModel",
    "LawBroken",
    "ModelReport",
    "NestedTrie",
    "PathModelReport",
    "PathsOf",
    "TableModel",
    "check_model",
    "check_path_model",
    "enumerate_table",
    "make_vocabulary",
    "naive_joint",
    "naive_local",
    "naive_spelled",
    "naive_unless_continued",
    "numbered_vocabulary",
    "score_paths_alone",
    "spell",
]
