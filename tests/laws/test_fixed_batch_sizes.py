"""A model with programs of fixed sizes gives every request the answer that a model without them gives."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from result_bits import answered, work
from selectrie import Engine
from selectrie.core.types import BatchSizes, CallCost, ModelKind
from selectrie.testing import HashModel
from selectrie.testing.fakes import WIDE

ASKED = (
    "a cat",
    [" cat", " cats", " car", " a", "a", " bat", " b"],
    [f" {a}{b}" for a in ("cat", "bat", "car", "b") for b in ("", "s", " a", " cat", "us")],
    " (a|b|ca)( cat| bat){1,3}",
)
FIXED = replace(
    WIDE,
    max_idle_rows=None,
    can_interrupt=False,
    batch_sizes=BatchSizes.fixed({1: 0.02, 8: 0.03, 24: 0.05}),
    call_cost=CallCost(prefill_rows=64),
)
OTHER_SIZES = replace(FIXED, batch_sizes=BatchSizes.fixed({3: 0.03, 20: 0.05}))

UNNEEDED = {"nodes", "gap", "mass", "upper"}
"""What a best-first search says of the nodes that it did not need."""


def without(value, names):
    """A result without the fields of these names."""
    if isinstance(value, dict):
        return {name: without(one, names) for name, one in value.items() if name not in names}
    return [without(one, names) for one in value] if isinstance(value, list) else value


def answers(limits, names):
    """Every result of `tools/result_bits.py` on a fake with these limits, and the model."""
    model = HashModel(7, limits=limits)
    found = {}
    with Engine(model) as engine:
        for name, answer in work(engine, *ASKED):
            engine.trim()
            found[name] = without(answered(answer), {"cost", *names})
    return found, model


@cache
def plain(kind):
    """The results of a fake whose calls have any size."""
    return answers(replace(WIDE, kind=kind), ())[0]


@pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.RECURRENT])
def test_every_request_has_the_same_answer(kind):
    """To the last bit where the second smallest program has as many rows as searches ask for by default."""
    expected = plain(kind)
    found, model = answers(replace(FIXED, kind=kind), ())
    assert len(found) >= 40
    assert {name for name in expected if found[name] != expected[name]} == set()
    assert set(model.program_sizes) == {1, 8}


def test_other_sizes_move_only_what_searches_need_not_know():
    """Texts, log-probabilities, order and proofs stay. Searches evaluate other nodes on the way, which moves bounds;
    in a grammar they also find other texts behind the best one."""
    found, model = answers(OTHER_SIZES, UNNEEDED)
    for name, answer in plain(ModelKind.ATTENTION).items():
        if name in {"grammar.select", "grammar.any_path"}:
            for one in (answer, found[name]):
                assert one["open_mass"]["proved"]
                assert one["index"] == 0
            for field in ("logp", "score", "tokens"):
                assert found[name]["choices"][0][field] == answer["choices"][0][field]
        else:
            assert found[name] == without(answer, UNNEEDED), name
    assert set(model.program_sizes) == {3, 20}


def test_the_comparison_can_fail():
    """Another seed gives other answers to almost everything."""
    expected = plain(ModelKind.ATTENTION)
    with Engine(HashModel(8, limits=FIXED)) as engine:
        others = [
            name for name, answer in work(engine, *ASKED) if without(answered(answer), {"cost"}) != expected[name]
        ]
    assert len(others) > 30
