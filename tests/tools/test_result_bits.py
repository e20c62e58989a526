"""The tool that compares results bit by bit."""

from __future__ import annotations

import copy
import json
import math
from itertools import islice

import pytest

import selectrie
from result_bits import ASKED_OF_REAL, answered, differences, first_difference, real_models, summary, work
from selectrie.testing import HashModel

ASKED = ("a cat", [" cat", " cats", " car"], [" cat", " bat", " b"], " cat")


@pytest.fixture(scope="module")
def results():
    """The first results of a fake, by name."""
    with selectrie.Engine(HashModel(7)) as llm:
        return {name: json.loads(json.dumps(answered(answer))) for name, answer in islice(work(llm, *ASKED), 6)}


def test_a_bit_that_changed_is_found(results):
    """One bit of one number is a difference, which is named with its place; equal results have none."""
    assert differences(results, copy.deepcopy(results)) == []
    other = copy.deepcopy(results)
    number = float.fromhex(results["select.eog"]["choices"][1]["logp"])
    other["select.eog"]["choices"][1]["logp"] = math.nextafter(number, 0).hex()
    assert differences(results, other) == ["select.eog"]
    said = first_difference(results["select.eog"], other["select.eog"])
    assert said.startswith('choices.1.logp was "-0x')


def test_a_result_that_is_missing_is_a_difference(results):
    """In either of the two."""
    fewer = {name: one for name, one in results.items() if name != "select.none"}
    assert differences(results, fewer) == differences(fewer, results) == ["select.none"]


def test_numbers_are_written_by_their_bits(results):
    """What is read back is the same float."""
    with selectrie.Engine(HashModel(7)) as llm:
        selection = llm.select(*ASKED[:2], terminator="eog")
    read = [float.fromhex(choice["logp"]) for choice in results["select.eog"]["choices"]]
    assert read == [choice.logp for choice in selection.choices]


def test_the_summary_tells_numbers_from_answers(results):
    """Of each kind: how many differ, by how many nats at most, and how many have another answer."""
    other = copy.deepcopy(results)
    choice = other["select.eog"]["choices"][1]
    choice["logp"] = (float.fromhex(choice["logp"]) - 0.5).hex()
    choice["probability"] = (0.0).hex()
    other["select.none"]["cost"]["rows"] += 1
    other["select.following"]["index"] += 1
    assert summary(results, other) == ["select: 3 of 5 differ, by at most 0.5 nats; 1 with another answer"]
    assert summary(results, {**results, "a model/beam.wide": "error: budget"}) == [
        "beam: 1 of 1 differ, by at most 0 nats; 1 with another answer"
    ]
    assert summary(results, results) == []


def test_real_models_are_found_or_said_to_be_missing(tmp_path, monkeypatch, capsys):
    """All GGUF files of the folder, which are asked a part of what other models are asked."""
    monkeypatch.setenv("SELECTRIE_REAL_MODELS", str(tmp_path))
    assert real_models() == []
    assert capsys.readouterr().err.startswith("# without real models: SELECTRIE_REAL_MODELS")
    for name in ("b.gguf", "a.gguf", "c.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in real_models()] == ["a.gguf", "b.gguf"]
    with selectrie.Engine(HashModel(7)) as llm:
        assert {name for name, _ in work(llm, *ASKED)} > set(ASKED_OF_REAL)
