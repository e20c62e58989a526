"""What an answer claims holds in every completion of what was told: bounds, probabilities, margin, gap and proof.

Searches with budgets, healed prompts, rows with zeros, servers that tell single tokens; compared with enumeration.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from selectrie.engine.connect import PathRuntime
from selectrie.engine.engine import Engine
from selectrie.engine.requests.selection import SelectRequest, prepare_selection
from selectrie.errors import RequestError
from selectrie.options import PromptParams, ScoringRule, SearchParams
from tests.laws.test_engine_laws import CLOSE, EXACT, Request, letters, requests
from tests.support.completions import Model, RowsOf, Server, Truth, completion
from tests.support.n_examples import n_examples

FINE = 5e-6
"""Nats by which float32 rows and sums of them may be off."""
ABC = str.maketrans("rt .", "abca")


def spelled(request):
    """A request in the letters of the vocabulary."""
    texts = tuple(text.translate(ABC) for text in request.choices)
    following, prompt = request.following.translate(ABC), request.prompt.translate(ABC)
    prior = request.prior if len(set(texts)) == len(set(request.choices)) else None
    rule = replace(request.rule, content_free=("a", "cab")) if request.rule.name == "calibrated" else request.rule
    return replace(request, prompt=prompt, choices=texts, following=following, prior=prior, rule=rule)


def prepared_of(request, model):
    options = SelectRequest(
        rule=request.rule,
        terminator=request.terminator,
        following=request.following,
        prior=request.prior,
        search=request.search,
        prompting=PromptParams(boundary=request.boundary),
    )
    return prepare_selection(model, request.prompt, request.choices, options)


def answered(request, rows, *, is_served):
    """The answer, what was told for it, and the request as it was prepared."""
    model = Model(rows)
    asked = Server(model, rows) if is_served else model
    prepared = prepared_of(request, model)
    with closing(Engine(PathRuntime(asked)) if is_served else Engine(asked, check=EXACT)) as engine:
        return request.answer_of(engine, request.search), asked, prepared


def check_claims(found, truth, request):
    """Raise unless everything that the answer claims is true."""
    table = found.choices
    close = CLOSE if found.terminator == "unless-continued" and found.certificate.method == "best_first" else FINE
    assert (truth.logp <= table.logp_upper + FINE).all()
    assert (table.logp_lower <= truth.logp + FINE).all()
    if found.log_heal > -math.inf:
        assert found.log_heal - FINE <= truth.log_heal <= found.log_heal + found.heal_gap + FINE
    high = found.coverage + found.certificate.open_mass if found.coverage_high is None else found.coverage_high
    assert found.coverage * (1 - close) - 1e-9 <= truth.coverage <= high * (1 + close) + 1e-8
    path_of = table.trie.path_of
    best = np.full(path_of.max() + 1, -math.inf)
    np.maximum.at(best, path_of, truth.scores)
    if best.max() > -math.inf:
        p = np.exp(best - best.max())
        p = (p / p.sum())[path_of]
        assert (table.probability_low <= p + close).all()
        assert (table.probability_high >= p - close).all()
    check_order(found, truth.scores, best, min(request.search.k, len(best)), 2 * close)


def check_order(found, scores, best, k, close):
    """Raise unless margin, gap and proof are true of the scores; `best` are those of the paths."""
    path_of, certificate = found.choices.trie.path_of, found.certificate
    winner = path_of[found.index]
    rival = np.delete(best, winner).max(initial=-math.inf)
    if min(best[winner], rival) > -math.inf:
        assert found.margin <= best[winner] - rival + close
    first = [path_of[one.index] for one in found.top(k, distinct=True) if not one.pruned]
    kth = best[first[-1]] if len(first) == k else -math.inf
    left = scores[~found.choices.finished].max(initial=-math.inf)
    if left > -math.inf:
        assert certificate.bound_gap <= kth - left + close
    if certificate.proved:
        assert certificate.bound_gap > 0
        ranked = best[[path for path in first if best[path] > -math.inf]]
        assert (np.diff(ranked) <= 2 * FINE).all()
        assert np.delete(best, first).max(initial=-math.inf) <= ranked.min(initial=math.inf) + 2 * FINE


ROWS = st.builds(RowsOf, st.integers(0, 2**31), st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.booleans())
LIKELY = st.sampled_from([(), (), tuple(range(1, 8))])
OTHERS = st.builds(RowsOf, st.integers(0, 2**31), st.sampled_from([0.0, 1.0, 3.0, 8.0]), st.booleans(), LIKELY)


@settings(max_examples=n_examples(150))
@given(
    request=requests(),
    method=st.sampled_from(["best_first", "best_first", "exhaustive"]),
    rows=ROWS,
    is_served=st.booleans(),
    others=st.lists(OTHERS, min_size=3, max_size=3),
)
def test_every_claim_holds_in_every_completion(request, method, rows, is_served, others):
    """The rows themselves are one completion; the others differ in all that was not told."""
    request = spelled(replace(request, search=replace(request.search, method=method)))
    try:
        found, asked, prepared = answered(request, rows, is_served=is_served)
    except RequestError:
        reject()
    for each in (completion(asked, rows), *(completion(asked, one) for one in others)):
        truth = Truth(each, prepared)
        if truth.log_heal > -math.inf:
            check_claims(found, truth, request)


def test_each_claim_that_is_too_bold_is_caught():
    """An answer that leaves most choices open, altered in one claim after the other."""
    request = Request(
        seed=2,
        prompt="ab",
        choices=letters("ab/bab/bb/ca/abba"),
        search=SearchParams(method="best_first", budget_nodes=3, width=1),
        terminator="eog",
        rule=ScoringRule("byte_mean"),
    )
    rows = RowsOf(request.seed, 1.0)
    found, asked, prepared = answered(request, rows, is_served=False)
    truth = Truth(completion(asked, rows), prepared)
    check_claims(found, truth, request)
    table, certificate = found.choices, found.certificate
    assert not certificate.proved
    bold = [
        replace(found, certificate=replace(certificate, proved=True)),
        replace(found, certificate=replace(certificate, bound_gap=certificate.bound_gap + 3)),
        replace(found, margin=found.margin + 3),
        replace(found, log_heal=found.log_heal - 9),
        replace(found, coverage=2 * truth.coverage),
        replace(found, choices=replace(table, probability_high=table.probability_high / 9)),
        replace(found, choices=replace(table, probability_low=table.probability_high + 0.01)),
        replace(found, choices=replace(table, logp_upper=truth.logp - 1)),
        replace(found, choices=replace(table, logp=truth.logp + 1, logp_upper=truth.logp + 1)),
    ]
    for answer in bold:
        with pytest.raises(AssertionError):
            check_claims(answer, truth, request)
