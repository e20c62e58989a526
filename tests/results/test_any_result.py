"""Every kind of result can be copied, pickled, taken apart and written as JSON."""

from __future__ import annotations

import copy
import json
import pickle
from contextlib import closing
from dataclasses import asdict

import pytest

from selectrie import Choice, DecisionParams, Grammar, Predicate, PromptParams, SamplingParams, Score, Template
from selectrie.options.checks import ReadOnlyDict
from tests.support.deciding import fake

BLOCK = "<<#joint>><<select 'x' options=['b', 'c']>><<select 'y' options=['b', 'c']>><</joint>>"
QUESTIONS = {"a": Choice("Which?", ["yes", "no"]), "b": Predicate("It is."), "c": Score("How?", ["low", "high"])}


@pytest.fixture(scope="module")
def results():
    """One result of each kind, by name."""
    with closing(fake()) as llm:
        page = llm.render(Template("a <<select 'z' options=['b', 'c']>> " + BLOCK))
        grammar = Grammar.from_regex("(yes|no)")
        decision = llm.decide("It is late.", QUESTIONS)
        return {
            "selection": llm.select("a ", ["b", "c"]),
            "text_score": llm.score("a", " b"),
            "token_plan": llm.tokens("a", ["b", "c"]),
            "generation": llm.generate("a"),
            "beam": llm.beam_search("a", grammar),
            "samples": llm.sample("a", grammar, n=2, seed=1),
            "prompt_logprobs": llm.prompt_logprobs(["a b"])[0],
            "page": page,
            "joint": page.selections["x"],
            "decision": decision,
            **{f"answer {name}": answer for name, answer in decision.items()},
        }


NAMES = (
    *("selection", "text_score", "token_plan", "generation", "beam", "samples", "prompt_logprobs", "page", "joint"),
    *("decision", "answer a", "answer b", "answer c"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_result_is_a_plain_value(results, name):
    """Copies and pickles are equal to it, `asdict` takes it apart, and its dictionary is JSON."""
    one = results[name]
    assert set(results) == set(NAMES)
    for made in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):  # noqa: S301 - our own
        assert made == one
    assert set(asdict(one)) == set(one.__dataclass_fields__)
    written = one.to_dict()
    if name not in ("token_plan", "decision"):  # a plan has no result, and a decision that of its answers
        assert written.get("warnings", []) == [advice.to_dict() for advice in one.warnings]
    assert json.loads(json.dumps(written, allow_nan=False))["kind"] == written["kind"]


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
