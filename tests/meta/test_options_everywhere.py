"""Laws of options that several doors have: a field of the record is missing at none of them."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from selectrie.decoding.sampling.sampler import Sampler
from selectrie.engine.engine import Engine
from selectrie.options import (
    BeamSearchParams,
    PromptParams,
    RenderParams,
    SamplingParams,
    SearchParams,
    SpellingParams,
    StopParams,
)
from selectrie.options.checks import numbers_of, options_of

ROOT = Path(__file__).resolve().parents[2]
SAMPLER = ROOT / "src" / "selectrie" / "decoding" / "sampling"
MOVES_LOGITS = {"logit_bias", "repeat_penalty", "presence_penalty", "frequency_penalty", "penalty_last_n"}
"""Options that the chain applies to the bounds too: stability is told moved logits (`Pool.adjustments`)."""
RECORDS = [BeamSearchParams, PromptParams, RenderParams, SamplingParams, SearchParams, SpellingParams, StopParams]
NO_OPTIONS = {"delimiter", "assistant_prefix", "seed", "priority"}
"""Texts, seeds and ranks, which have checks of their own."""
SAMPLING = [field.name for field in fields(SamplingParams)]
STOPPING = [field.name for field in fields(StopParams) if field.name != "when"]
"""A function is no option of a command or a request."""


def read_in(*trees: ast.AST) -> set[str]:
    """Return the names of the attributes that code reads."""
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("name", SAMPLING)
def test_the_sampler_reads_every_option(name):
    """The chain applies it, and stability knows what it does."""
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in SAMPLER.glob("*.py")}
    stability = [one for one in trees.pop("sampler").body if getattr(one, "name", "") not in {"Draw", "Sampler"}]
    assert name in read_in(*trees.values(), *ast.parse(inspect.getsource(Sampler)).body)
    assert (name in read_in(*stability)) is (name not in MOVES_LOGITS)


@pytest.mark.parametrize("name", [*SAMPLING, *STOPPING])
def test_every_option_is_one_of_the_command_and_of_requests(name):
    """It has a flag of `generate` and a field of each endpoint that draws text."""
    pytest.importorskip("fastapi", reason="needs the extra 'server'")
    from selectrie.cli.groups import SamplingGroup, StoppingGroup
    from selectrie.server.generation.completions import CompletionBody
    from selectrie.server.generation.generation import _OPTIONS

    assert name in {field.name for group in (SamplingGroup, StoppingGroup) for field in fields(group)}
    assert {field for field, option in _OPTIONS.items() if option == name} & CompletionBody.model_fields.keys()


@pytest.mark.parametrize("record", [SamplingParams, StopParams])
def test_the_page_on_python_has_the_default_of_every_option(record):
    """The table of each record has its fields, and the defaults that they have."""
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    table = page.partition(f"| field of `{record.__name__}` |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([^|]*) \| ([^|]*) \|", table.partition("|---|")[2], re.MULTILINE)
    told = {
        name: default
        for names, defaults in rows
        for name, default in zip(re.findall(r"\w+", names), defaults.replace("`", "").split(", "), strict=True)
    }
    record_defaults = {field.name: getattr(record(), field.name) for field in fields(record)}
    assert told == {
        name: f"{value:g}" if name in numbers_of(record) else str(value) for name, value in record_defaults.items()
    }


@pytest.mark.parametrize("name", [*SAMPLING, *STOPPING])
def test_the_page_on_serving_names_every_option(name):
    """Under one of the names that it has in requests."""
    pytest.importorskip("fastapi", reason="needs the extra 'server'")
    from selectrie.server.generation.generation import _OPTIONS

    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    assert any(f"`{field}`" in page for field, option in _OPTIONS.items() if option == name)


@pytest.mark.parametrize("method", [Engine.score, Engine.ascore])
def test_a_signature_that_is_written_out_has_the_defaults_of_its_record(method):
    """`score` takes the fields of `SpellingParams` one by one."""
    parameters = inspect.signature(method).parameters
    assert {name: parameters[name].default for name in options_of(SpellingParams)} == asdict(SpellingParams())


@pytest.mark.parametrize("record", RECORDS)
def test_an_option_has_a_default_that_is_allowed_and_a_sentence(record):
    """What flags, fields and tags are made from is all in the record; every number, name and flag is an option."""
    kinds = ("int", "float", "str", "bool", "int | None")
    plain = {field.name for field in fields(record) if field.type in kinds}
    assert plain - options_of(record).keys() == NO_OPTIONS & plain
    for one in options_of(record).values():
        one.allowed.check(one.name, one.default)
        assert re.fullmatch(r"[A-Z].+\.", one.help), one
        assert one.help.count("(") == one.help.count(")"), "a sentence that is cut"
