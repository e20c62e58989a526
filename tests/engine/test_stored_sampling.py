"""Sampling options that are stored with a model, and requests to a server that leave some out."""

from __future__ import annotations

from pathlib import Path

import pytest

import selectrie
from selectrie import SamplingParams
from tests.support.gguf_files import with_metadata

STORED = {"temp": 0.25, "top_k": 5, "top_p": 0.5, "min_p": 0.125, "penalty_repeat": 1.5, "penalty_last_n": 32}
FOUND = {"temperature": 0.25, "top_k": 5, "top_p": 0.5, "min_p": 0.125, "repeat_penalty": 1.5, "penalty_last_n": 32}


def loaded(path: Path) -> selectrie.Engine:
    return selectrie.load(path, n_ctx=128, n_threads=1)


@pytest.fixture(scope="module")
def stored(tiny_model, tmp_path_factory):
    """A model with sampling options in its file."""
    return with_metadata(tiny_model(), tmp_path_factory.mktemp("models") / "m.gguf", below="general.sampling", **STORED)


def test_options_are_those_of_the_file(stored, tiny_model, embedded):
    """By the names of `SamplingParams`, so that `generate` takes them; other files have none."""
    with loaded(stored) as llm:
        assert llm.stored_sampling == FOUND
        by_mapping = llm.generate("a", seed=1, sampling=llm.stored_sampling, max_tokens=8)
        assert by_mapping.texts == llm.generate("a", seed=1, sampling=SamplingParams(**FOUND), max_tokens=8).texts
    for path in (tiny_model(), embedded):
        with loaded(path) as llm:
            assert llm.stored_sampling == {}


def test_values_that_cannot_be_are_left_out(tiny_model, tmp_path, caplog):
    """A negative temperature and a text are named in the log; what else there is counts."""
    path = with_metadata(
        tiny_model(), tmp_path / "m.gguf", below="general.sampling", temp=-1.0, top_k="many", top_p=0.5, mirostat=2
    )
    with loaded(path) as llm:
        assert llm.stored_sampling == {"top_p": 0.5}
    assert [record.message.split(": ")[1] for record in caplog.records] == [
        "the stored temp is not used",
        "the stored top_k is not used",
    ]
