"""`PromptParams(add_bos=False)`: every method evaluates the prompt as it is given."""

from __future__ import annotations

import pytest

from selectrie.core.types import SelfCheck
from selectrie.engine.engine import Engine
from selectrie.grammar import Grammar
from selectrie.options import BeamSearchParams, PromptParams, StopParams
from selectrie.testing import HashModel, make_vocabulary

BARE = PromptParams(add_bos=False)
WORDS = [" cat", " bat", " cats"]
GRAMMAR = Grammar.from_regex("[cb]at(s|c)*")
SHORT = StopParams(max_tokens=3)
METHODS = {
    "select": lambda engine, prompt, how: engine.select(prompt, WORDS, **how),
    "pmi": lambda engine, prompt, how: engine.select(prompt, WORDS, rule="pmi", **how),
    "grammar": lambda engine, prompt, how: engine.select(prompt, grammar=GRAMMAR, **how),
    "sample": lambda engine, prompt, how: engine.sample(prompt, GRAMMAR, seed=1, **how),
    "rank": lambda engine, prompt, how: engine.rank(prompt, WORDS, **how),
    "select_many": lambda engine, prompt, how: engine.select_many([(prompt, WORDS)] * 2, **how),
    "score": lambda engine, prompt, how: engine.score(prompt, " cat", **how),
    "tokens": lambda engine, prompt, how: engine.tokens(prompt, WORDS, **how),
    "generate": lambda engine, prompt, how: engine.generate([prompt], seed=1, stopping=SHORT, **how),
    "stream": lambda engine, prompt, how: list(engine.stream([prompt], seed=1, stopping=SHORT, **how)),
    "beam_search": lambda engine, prompt, how: engine.beam_search(
        prompt, GRAMMAR, beam=BeamSearchParams(max_tokens=4), **how
    ),
    "prompt_logprobs": lambda engine, prompt, how: engine.prompt_logprobs([prompt], **how),
}


def evaluated(method, prompt, *, adds_bos, prompting=BARE):
    """The token paths that a method evaluates on a model that does or does not add BOS."""
    vocabulary = make_vocabulary()
    if not adds_bos:
        object.__setattr__(vocabulary, "bos", None)
    model = HashModel(3, vocabulary=vocabulary)
    with Engine(model, check=SelfCheck(1, 0.0, 0.0)) as engine:
        result = METHODS[method](engine, prompt, {"prompting": prompting})
    return result, set(model.evaluations)


@pytest.mark.parametrize(
    "prompt", ["a cat.", [3, 18, 10], [{"role": "user", "content": "a"}]], ids=["text", "ids", "chat"]
)
@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"pmi"}))  # whose premise is BOS itself
def test_nothing_is_put_before_a_prompt(method, prompt):
    """The same rows as on a model that adds no BOS, and none of them begins with it."""
    _, bare = evaluated(method, prompt, adds_bos=True)
    _, without = evaluated(method, prompt, adds_bos=False)
    assert bare == without
    assert not any(path[0] == 0 for path in bare)


def test_the_premise_of_pmi_is_still_bos():
    """It is a context, not something put before one."""
    _, paths = evaluated("pmi", "a cat.", adds_bos=True)
    assert {path[0] for path in paths} == {0, 3}
    assert (0,) in paths


@pytest.mark.parametrize("method", [method for method in METHODS if method != "prompt_logprobs"])
def test_ids_get_bos_by_default(method):
    """As before; those that begin with it do not get another."""
    if method == "tokens":
        assert evaluated(method, [3, 18], adds_bos=True, prompting=PromptParams())[0].prompt[0][0] == 0
        return
    results = [
        evaluated(method, ids, adds_bos=True, prompting=PromptParams())[1] for ids in ([3, 18, 10], [0, 3, 18, 10])
    ]
    assert results[0] == results[1]
    assert (0, 3, 18) in results[0]


def test_a_plan_names_the_bos_with_which_its_prompt_begins():
    """None where `add_bos` is False; the one that ids bring along is named too."""
    plans = {
        name: evaluated("tokens", prompt, adds_bos=True, prompting=prompting)[0]
        for name, prompt, prompting in (
            ("added", [3, 18], PromptParams()),
            ("bare", [3, 18], BARE),
            ("brought", [0, 3, 18], BARE),
        )
    }
    assert {name: plan.bos for name, plan in plans.items()} == {"added": 0, "bare": None, "brought": 0}
