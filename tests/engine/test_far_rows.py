"""A model whose rows stay on its device until they are fetched gives every request the same answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selectrie import Grammar, Template
from selectrie.core.types import ModelKind, SelfCheck
from selectrie.engine.engine import Engine
from selectrie.engine.requests.loglikelihood import Sequences
from selectrie.options import BeamSearchParams, RenderParams, SamplingParams, SearchParams, StopParams
from selectrie.testing import HashModel
from selectrie.testing.fakes import WIDE
from tests.support.bits import plain
from tests.support.far_rows import FarModel

CHECKS = (SelfCheck(8, 0.0, 0.0), SelfCheck(8, 1.0, 4.0))
"""Nothing is close, and everything: in the second case what was found is settled on a context of its own."""
CHOICES = [" cat", " at", "bat", "tab", " c", "cab"]
GRAMMAR = Grammar.from_regex(" [a-c]{1,3}t")
TEMPLATE = Template("""a<<select 'x' options=["cat", "at", "bat"]>> b<<gen 'y' max_tokens=4>>""")
SHORT = StopParams(max_tokens=6)


def log_likelihoods(engine):
    with engine.loglikelihood_scorer(64) as scorer:
        return scorer.loglikelihoods(Sequences.of([([0], [3, 4, 5]), ([0, 3], [4, 6, 7]), ([0, 3], [8])]))


REQUESTS = {
    "select": lambda engine: engine.select("a", CHOICES),
    "select best": lambda engine: engine.select("a", CHOICES, search=SearchParams(stop="best", k=2)),
    "select eog": lambda engine: engine.select("a c", CHOICES, terminator="eog", rule="token_mean"),
    "rank": lambda engine: engine.rank("a", CHOICES),
    "grammar": lambda engine: engine.select("a", grammar=GRAMMAR, search=SearchParams(k=3)),
    "sample": lambda engine: engine.sample("a", grammar=GRAMMAR, n=3, seed=1),
    "beam": lambda engine: engine.beam_search("a", grammar=GRAMMAR, beam=BeamSearchParams(width=3, n=2)),
    "score": lambda engine: engine.score("a", " cat"),
    "all spellings": lambda engine: engine.score("a c", "at", tokenizations="all", budget_nodes=4),
    "select all spellings": lambda engine: engine.select("a c", ["at", "s"], tokenizations="all"),
    "generate": lambda engine: engine.generate("a c", sampling=SamplingParams(), stopping=SHORT, n=2, seed=3),
    "render": lambda engine: engine.render(TEMPLATE, rendering=RenderParams(seed=7)),
    "log-likelihoods": log_likelihoods,
}


@pytest.mark.short("*-close")
@pytest.mark.parametrize("check", CHECKS, ids=["apart", "close"])
@pytest.mark.parametrize("name", REQUESTS)
def test_every_request_has_the_same_answer(name, check):
    """To the last bit, twice in a row: the second time the prompt's row comes from the cache."""
    assert_same_answers(REQUESTS[name], check, WIDE)


@pytest.mark.parametrize("name", REQUESTS)
def test_rows_of_several_calls_are_told_together(name):
    """What a task asks for at once takes several calls of a recurrent-state model, and each is fetched for its rows."""
    assert_same_answers(REQUESTS[name], replace(CHECKS[0], batch_multiple=1), replace(WIDE, kind=ModelKind.RECURRENT))


def assert_same_answers(request, check, limits):
    """Twice on a plain model, and twice on one whose rows are elsewhere."""
    answers = []
    for model in (HashModel(5, limits=limits), FarModel(HashModel(5, limits=limits))):
        with Engine(model, check=check) as engine:
            answers.append([plain(request(engine), without=("decode_s", "created", "id")) for _ in range(2)])
    assert answers[0] == answers[1]
