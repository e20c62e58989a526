"""What requests take from the model that they run on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selectrie import BeamSearchParams, Engine, Grammar, SearchParams
from selectrie.core.types import BatchSizes, SelfCheck
from selectrie.engine.requests.session import Session
from selectrie.testing import HashModel
from selectrie.testing.fakes import WIDE

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
TEXTS = [a + b + c + d for a in "abcrt" for b in "abcrt" for c in "abcrt" for d in "abcrt"]


@pytest.mark.parametrize(
    ("sizes", "fill_rows"),
    [
        (BatchSizes(), 8),
        (BatchSizes(8), 8),
        (BatchSizes(32), 32),
        (BatchSizes.fixed({1: 0.01, 6: 0.02, 64: 0.1}), 6),
        (BatchSizes.fixed({64: 0.1}), 64),
        (BatchSizes.fixed({1: 0.01}), 1),
    ],
)
def test_searches_fill_asks_as_the_model_fills_calls(sizes, fill_rows):
    """The multiple, the smallest program of several rows, or eight where calls have any size."""
    model = HashModel(1, limits=replace(WIDE, batch_sizes=sizes))
    assert Session(None, model, None).fill_rows == fill_rows


SEARCH = SearchParams(method="best_first", width=1, budget_nodes=61, max_tokens=5, canonical_only=False)
BEAM = BeamSearchParams(n=1, width=1, budget_nodes=61, max_tokens=5, exact=True, canonical_only=False, terminator="eog")
GRAMMAR = Grammar.from_regex("[abcrt]{3,5}")
REQUESTS = {
    "choices": lambda engine: engine.select("a", TEXTS, search=SEARCH, terminator="none"),
    "grammar": lambda engine: engine.select("a", grammar=GRAMMAR, search=SEARCH, terminator="eog"),
    "beam": lambda engine: engine.beam_search("a", GRAMMAR, beam=BEAM),
}


@pytest.mark.parametrize("request_kind", REQUESTS)
def test_the_calls_of_a_search_are_filled_up(request_kind):
    """Below uniform rows there is always more to evaluate: every call of a search fills programs of three rows."""
    sizes = BatchSizes.fixed({1: 0.01, 3: 0.011})
    model = HashModel(1, limits=replace(WIDE, batch_sizes=sizes), sharpness=0.0)
    with Engine(model, check=EXACT) as engine:
        REQUESTS[request_kind](engine)
    asked = model.call_sizes[2:-1]  # the first has no more open nodes, the last no more to evaluate
    assert len(asked) > 2
    assert all(n % 3 == 0 for n in asked)
