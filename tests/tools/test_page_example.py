"""`tools/page_example.py`: the example with which the page opens is what the embedded model answers."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")
pytest.importorskip("httpx2", reason="needs the extra 'remote'")

from tools.page_example import PATH, REQUEST, differences, make_example


def test_the_example_is_what_the_model_answers():
    """Numbers within the tolerance of a processor, words to the letter."""
    written = json.loads(PATH.read_text(encoding="utf-8"))
    assert written["body"] == REQUEST
    assert differences(written, make_example(), 0.05) == []
    answer = written["answer"]
    assert (answer["text"], answer["choices"][answer["greedy"]]["text"]) == (" Chicago", " New Zealand")
    assert {"strip", "trie", "sentences"} == set(answer["drawing"])


@pytest.mark.parametrize(
    ("written", "now", "found"),
    [
        ({"a": 1.0, "version": "1"}, {"a": 1.04, "version": "2"}, 0),
        ({"a": [1.0, "19 %"]}, {"a": [1.1, "20 %"]}, 1),
        ({"a": [1.0]}, {"a": [1.0, 2.0]}, 1),
        ({"a": "proved"}, {"a": "not proved"}, 1),
        ({"a": None}, {}, 0),
    ],
)
def test_what_is_a_difference(written: object, now: object, found: int):
    """Numbers beyond the tolerance, other words, other lengths; neither versions nor digits in sentences."""
    assert len(differences(written, now, 0.05)) == found
