"""The tool that compares results bit by bit."""

from __future__ import annotations

import copy
import json
import math
from itertools import islice

import pytest

import selectrie
from result_bits import answered, differences, first_difference, work
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
