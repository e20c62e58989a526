"""Every kind of result can be copied, pickled, taken apart and written as JSON."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, fields, is_dataclass
from importlib import import_module
from inspect import isclass
from pkgutil import iter_modules
from typing import Literal

import pytest

import selectrie.results
from selectrie import (
    Calibration,
    Choice,
    DecisionParams,
    Grammar,
    Predicate,
    PromptParams,
    SamplingParams,
    Score,
    Template,
    Threshold,
)
from selectrie.decide import answers, calibration, threshold
from selectrie.decide.answers import AnswerBounds, ChoiceAnswer, Decision
from selectrie.options.checks import ReadOnlyDict
from selectrie.results import Extraction, Marginal, ModelRecord
from selectrie.results.models import RegisteredModel
from selectrie.results.plain import JsonRecord
from tests.support.deciding import fake
from tests.support.serving import ask

BLOCK = "<<#joint>><<select 'x' options=['b', 'c']>><<select 'y' options=['b', 'c']>><</joint>>"
QUESTIONS = {"a": Choice("Which?", ["yes", "no"]), "b": Predicate("It is."), "c": Score("How?", ["low", "high"])}


@pytest.fixture(scope="module")
def results():
    """One result of each kind that a call returns, by name."""
    with closing(fake()) as llm:
        page = llm.render(Template("a <<select 'z' options=['b', 'c']>> " + BLOCK))
        drawn = llm.render(Template("a <<select 'z' options=['b', 'c'] temperature=1 seed=1>>"))
        grammar = Grammar.from_regex("(yes|no)")
        decision = llm.decide("It is late.", QUESTIONS)
        return {
            "selection": llm.select("a ", ["b", "c"], tokenizations="all"),
            "text_score": llm.score("a", " b", tokenizations="all"),
            "token_plan": llm.tokens("a", ["b", "c"]),
            "generation": llm.generate("a"),
            "beam": llm.beam_search("a", grammar),
            "samples": llm.sample("a", grammar, n=2, seed=1),
            "prompt_logprobs": llm.prompt_logprobs(["a b"])[0],
            "page": page,
            "joint": page.selections["x"],
            "sampled_choice": drawn.selections["z"],
            "decision": decision,
            **{f"answer {name}": answer for name, answer in decision.items()},
            "calibration": llm.fit_calibration(["It is late.", "It is early."], {"a": QUESTIONS["a"]}),
            "fitted": (
                Calibration.fit([decision] * 2, {"a": ["yes"] * 2}),
                Threshold.fit([decision] * 2, {"a": ["yes"] * 2}),
            ),
            "extraction": (extraction := llm.extract("It is late.", Literal["a", "b"])),
            "extracted": (
                *extraction.top(1),
                *extraction.marginals.values(),
                Marginal({"a": 0.5}, {"a": 0.4}, {"a": 0.6}),
            ),
            "parts": (AnswerBounds({"a": (0.0, 1.0)}, (0.5, 1.0)), *MODELS),
        }


MODELS = (
    ModelRecord("a.gguf", "a.gguf", "/a.gguf", 1, "d", "present"),
    RegisteredModel("a", "a.gguf", None, is_loaded=False, n_uses=0, idle_s=None),
)
NAMES = (
    *("selection", "text_score", "token_plan", "generation", "beam", "samples", "prompt_logprobs", "page", "joint"),
    *("sampled_choice", "decision", "answer a", "answer b", "answer c"),
)


def check_plain(one):
    """Copies and pickles are equal to it, `asdict` takes it apart, and its dictionary is JSON; return that."""
    for made in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):  # noqa: S301 - our own
        assert made == one
    assert set(asdict(one)) == set(one.__dataclass_fields__)
    return json.loads(json.dumps(one.to_dict(), allow_nan=False))


@pytest.mark.parametrize("name", NAMES)
def test_a_result_is_a_plain_value(results, name):
    """Its dictionary says what it is, and has its warnings."""
    one = results[name]
    written = check_plain(one)
    if name not in ("token_plan", "decision"):  # a plan has no result, and a decision that of its answers
        assert written.get("warnings", []) == [advice.to_dict() for advice in one.warnings]
    assert written["kind"] == one.to_dict()["kind"]
    assert {one, pickle.loads(pickle.dumps(one))} == {one}  # noqa: S301 - our own


def records_in(value):
    """Each record in a value that has a dictionary."""
    if hasattr(value, "to_dict"):
        yield value
    if is_dataclass(value):
        value = [getattr(value, field.name) for field in fields(value)] + [getattr(value, "warnings", ())]
    elif isinstance(value, Mapping):
        value = list(value.values())
    for one in value if isinstance(value, list | tuple) else ():
        yield from records_in(one)


def test_every_record_of_a_result_is_a_plain_value(results):
    """Whatever a caller can come by has an example here."""
    found = {type(one): one for one in records_in(list(results.values()))}
    rooms = [import_module(f"selectrie.results.{module.name}") for module in iter_modules(selectrie.results.__path__)]
    public = {
        kind
        for room in (*rooms, answers, calibration, threshold)
        for kind in vars(room).values()
        if isclass(kind) and kind.__module__ == room.__name__ and is_dataclass(kind) and hasattr(kind, "to_dict")
    }
    assert set(found) == public
    for one in found.values():
        check_plain(one)
        assert isinstance(one, JsonRecord)
        assert isinstance(hash(one), int)


@pytest.mark.parametrize("name", NAMES)
def test_what_an_endpoint_of_fastapi_returns(results, name):
    """Its dictionary if the class is the type of what it returns, or of a field; without a type, `to_dict()` itself."""
    fastapi = pytest.importorskip("fastapi", reason="needs the extra 'server'")
    pydantic = pytest.importorskip("pydantic")
    one, application = results[name], fastapi.FastAPI()
    kind, wanted = type(one), json.loads(json.dumps(one.to_dict()))
    application.get("/typed", response_model=kind)(lambda: one)
    application.get("/listed", response_model=list[kind])(lambda: [one])
    application.get("/written")(one.to_dict)
    assert ask(application, "GET", "/typed").json == ask(application, "GET", "/written").json == wanted
    assert ask(application, "GET", "/listed").json == [wanted]
    assert ask(application, "GET", "/openapi.json").status == 200
    reply = pydantic.create_model("Reply", one=(kind, ...))(one=one)
    assert json.loads(reply.model_dump_json()) == {"one": wanted}
    with pytest.raises(pydantic.ValidationError, match=f"instance of {kind.__name__}"):
        pydantic.TypeAdapter(kind).validate_python(wanted)


@pytest.mark.parametrize(
    ("name", "attribute", "meant"),
    [
        ("answer a", "label", "value"),
        ("answer a", "probabilites", "probabilities"),
        ("answer a", "model_dump", r"to_dict\(\)"),
        ("selection", "label", "value"),
        ("generation", "dict", r"to_dict\(\)"),
    ],
)
def test_a_missing_part_names_the_one_that_is_meant(results, name, attribute, meant):
    """As methods of an engine do; names with an underscore in front are left to Python."""
    with pytest.raises(AttributeError, match=f"has no attribute '{attribute}'; did you mean {meant}\\?$"):
        getattr(results[name], attribute)
    with pytest.raises(AttributeError, match=r"has no attribute '_x'$"):
        _ = results[name]._x


def test_parameters_of_generic_results_are_for_type_checkers():
    """So pydantic reads `Extraction[Ticket]` as it reads `Extraction`."""
    pydantic = pytest.importorskip("pydantic")
    for kind in (Extraction, ChoiceAnswer, Decision):
        assert pydantic.TypeAdapter(kind[str]).json_schema() == {"type": "object", "title": kind.__name__}


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.__setitem__("a", 2),
        lambda one: one.__delitem__("a"),
        lambda one: one.update(b=2),
        lambda one: one.pop("a"),
        lambda one: one.popitem(),
        lambda one: one.clear(),
        lambda one: one.setdefault("b", 1),
        lambda one: one.__ior__({"b": 1}),
    ],
)
def test_a_read_only_mapping_refuses_every_change(change):
    """Of a dict's methods those that change it raise, and the copy that one makes of it can be changed."""
    one = ReadOnlyDict({"a": 1})
    with pytest.raises(TypeError, match="read-only"):
        change(one)
    assert one == {"a": 1}
    assert {**one, "b": 2} == one | {"b": 2}


@pytest.mark.parametrize(
    "options",
    [
        PromptParams(template_args={"a": 1}),
        SamplingParams(logit_bias={3: -1.0}),
        DecisionParams(prior={"a": {"yes": 0.5, "no": 0.5}}),
    ],
)
def test_options_with_mappings_are_plain_values(options):
    """They are copied, pickled and taken apart like results."""
    for made in (copy.copy(options), copy.deepcopy(options), pickle.loads(pickle.dumps(options))):  # noqa: S301 - our own
        assert made == options
    assert json.loads(json.dumps(asdict(options), default=str))
