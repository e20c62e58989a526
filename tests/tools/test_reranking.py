"""`tools/reranking.py`: its queries, and its table on the model that comes with selectrie."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

import reranking

PASSAGES = [
    {"context": f"Passage: The city {i} lies by the lake {i % 3}.\nQuestion: where is city {i}?"} for i in range(9)
]
MESSAGES = [(f"message {i} about {label}", f"intent {label}") for label in range(9) for i in range(3)]


@pytest.fixture(autouse=True)
def sets(monkeypatch):
    """Small sets in place of the files."""
    monkeypatch.setattr(reranking, "lines", lambda _: PASSAGES)
    monkeypatch.setattr(reranking, "banking", lambda: MESSAGES)


@pytest.mark.parametrize("name", [*reranking.SETS])
def test_one_document_of_each_query_fits(name):
    """It comes first, and no other has its subject."""
    queries = reranking.SETS[name](3)
    assert queries == reranking.SETS[name](3)
    for query, documents in queries:
        subject = query.rpartition(" ")[2].strip("?")
        assert query not in documents
        named = [f" {subject} lies" in one or one.endswith(f"about {subject}") for one in documents]
        assert named == [True, False, False, False]


def test_the_table_of_the_embedded_model(capsys):
    """A line for each set and way, with its numbers."""
    reranking.main(["embedded", "--queries", "2", "--threads", "1"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["set", "way", "auroc", "first", "rows"]
    assert [one[:18].split() for one in rows] == [
        [a, *b.split()] for a in ("boolq", "banking") for b in ("rerank", "yes or no")
    ]
    assert all(0 <= float(one[18:].split()[0]) <= 1 for one in rows)
