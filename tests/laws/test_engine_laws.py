"""Laws of whole requests: a best-first answer says nothing that the exhaustive answer to the same request contradicts."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from selectrie.core.types import Limits, ModelKind
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.errors import RequestError
from selectrie.options import PromptParams, ScoringRule, SearchParams
from selectrie.testing import HashModel
from tests.support.n_examples import n_examples

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
"""A fake's rows are the same bits in every layout."""

WIDE = Limits(nodes=4096, sequences=256, rows_per_call=512, kind=ModelKind.ATTENTION, max_idle_rows=4096)

JOINT = ScoringRule()

CLOSE = 1.1e-4
"""Nats: an end counts as finished when its bounds are within 1e-4; a posterior moves by no more than that."""

ROUNDING = 4e-6
"""Nats between two scores that are told apart: bounds may be undercut by 1e-6, and so may each of two rows' sums."""


@dataclass(frozen=True)
class Request:
    """One call of `Engine.select`, and the model it goes to. prior: weights in order of the choices."""

    seed: int
    prompt: str
    choices: tuple[str, ...]
    search: SearchParams
    sharpness: float = 1.0
    terminator: str = "auto"
    following: str = ""
    boundary: str = "heal"
    rule: ScoringRule = JOINT
    prior: tuple[float, ...] | None = None
    limits: Limits = WIDE

    def answer(self, search, limits):
        """The answer of a fresh engine."""
        with closing(Engine(HashModel(self.seed, sharpness=self.sharpness, limits=limits), check=EXACT)) as engine:
            return self.answer_of(engine, search)

    def answer_of(self, engine, search):
        """The answer of this engine."""
        return engine.select(
            self.prompt,
            self.choices,
            rule=self.rule,
            terminator=self.terminator,
            following=self.following,
            prior=self.prior,
            search=search,
            prompting=PromptParams(boundary=self.boundary),
        )

    @property
    def exhaustive(self):
        return self.answer(replace(self.search, method="exhaustive"), WIDE)

    @property
    def searched(self):
        return self.answer(replace(self.search, method="best_first"), self.limits)


def numbers(values):
    """float64 array; NaN for what is not known."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def check_agrees(exact, found, k):
    """Raise unless everything that a best-first answer states is true of the exhaustive one."""
    check_scores(exact, found)
    check_certificate(exact, found, k)
    check_mass(exact, found)
    check_margin(exact, found)


def check_scores(exact, found):
    """What is finished has its score, what is not stays below its bound; at least one choice is finished."""
    table = found.choices
    done = table.finished
    assert done[found.index], "the winner has no score"
    np.testing.assert_allclose(table.score[done], exact.choices.score[done], atol=CLOSE)
    np.testing.assert_array_equal(np.isnan(table.logp), ~done, "pruned, or with a log-probability")
    np.testing.assert_allclose(table.logp[done], exact.choices.logp[done], atol=CLOSE)
    assert (table.logp_upper >= exact.choices.logp - CLOSE).all(), "an upper bound is below the log-probability"
    assert found.log_heal == pytest.approx(exact.log_heal)
    assert found.greedy_index == exact.greedy_index


def check_certificate(exact, found, k):
    """Proved: the same first k. Nothing unfinished comes nearer to the k-th than the gap says."""
    scores = exact.choices.score
    expected = [choice.index for choice in exact.top(k, distinct=True)]
    if found.certificate.proved:
        indices = [choice.index for choice in found.top(k, distinct=True)]
        assert found.choices.finished[indices][scores[indices] > -np.inf].all()
        np.testing.assert_allclose(scores[indices], scores[expected], atol=ROUNDING, rtol=0)
        others = np.delete(
            scores, np.flatnonzero(exact.choices.trie.path_of == exact.choices.trie.path_of[exact.index])
        )
        if (others < exact.score - ROUNDING).all():
            assert found.index == exact.index
    left = scores[~found.choices.finished].max(initial=-np.inf)
    if left > -np.inf:
        assert left + found.certificate.bound_gap <= scores[expected[-1]] + CLOSE


def check_mass(exact, found):
    """Probabilities of the set: coverage and what is open add up to the whole, and intervals hold the posterior."""
    table, open_mass = found.choices, found.certificate.open_mass
    assert found.coverage <= exact.coverage * (1 + CLOSE)
    assert exact.coverage <= (found.coverage + open_mass) * (1 + CLOSE) + 1e-9
    left = exact.choices.distinct & np.isnan(table.logp)
    assert np.exp(exact.choices.logp[left]).sum() <= open_mass * (1 + CLOSE) + 1e-9
    assert (table.probability_low <= exact.choices.probability + CLOSE).all()
    assert (table.probability_high >= exact.choices.probability - CLOSE).all()


def check_margin(exact, found):
    """The winner's lead over the best other path: never more than it is, and exactly that where all is finished.

    A mean divides what is not known of the healed bytes by different lengths. Then the margin holds for all their values
    (`test_healed_means.py`), and both searches state the same one.
    """
    path_of = exact.choices.trie.path_of
    others = exact.choices.score[path_of != path_of[found.index]]
    if not len(others):
        assert found.margin == np.inf
        return
    mine, rival = float(exact.choices.score[found.index]), float(others.max())
    if rival == -np.inf:
        return
    assert found.margin <= mine - rival + 2 * CLOSE
    if found.choices.finished.all():
        is_bounded = exact.heal_gap > 0 and exact.rule.endswith("mean")
        assert found.margin == pytest.approx(exact.margin if is_bounded else mine - rival, abs=2 * CLOSE)


TEXT = "abcrt "
texts = st.text(TEXT, min_size=1, max_size=5)
limits = st.builds(
    Limits,
    nodes=st.integers(30, 200),
    sequences=st.integers(12, 40),
    rows_per_call=st.integers(8, 64),
    kind=st.sampled_from(list(ModelKind)),
    max_idle_rows=st.just(4096),
)
rules = st.sampled_from(
    [
        *(ScoringRule(name) for name in ("joint", "token_mean", "char_mean", "byte_mean", "pmi")),
        ScoringRule("pmi", premise="ca"),
        ScoringRule("calibrated", content_free=("a", "cat")),
    ]
)


@st.composite
def requests(draw):
    """Requests over a few letters, so that choices continue one another and prompts heal."""
    choices = draw(st.lists(texts, min_size=2, max_size=24))
    choices += choices[: draw(st.integers(0, 2))]
    terminator = draw(st.sampled_from(["none", "eog", "text", "unless-continued", "auto"]))
    weights = st.fixed_dictionaries({choice: st.sampled_from([0.0, 0.5, 1.0, 2.0]) for choice in set(choices)})
    by_choice = draw(st.none() | weights)
    has_prior = by_choice is not None and any(by_choice.values())
    search = SearchParams(
        k=draw(st.integers(1, 3)),
        stop=draw(st.sampled_from(["best", "mass", "all"])),
        mass=draw(st.sampled_from([0.5, 0.9, 0.99, 1.0])),
        budget_nodes=draw(st.none() | st.integers(1, 20)),
        width=draw(st.integers(1, 9)),
    )
    return Request(
        seed=draw(st.integers(0, 2**31)),
        prompt=draw(st.text(TEXT, min_size=1, max_size=6)),
        choices=tuple(choices),
        search=search,
        sharpness=draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])),
        terminator=terminator,
        following=draw(st.sampled_from(["a", " c", "t."])) if terminator == "text" else "",
        boundary=draw(st.sampled_from(["heal", "split", "harness"])),
        rule=draw(rules),
        prior=tuple(by_choice[choice] for choice in choices) if has_prior else None,
        limits=draw(st.just(WIDE) | limits),
    )


def check(request):
    """The law on one request; those that are refused say nothing."""
    try:
        exact, found = request.exhaustive, request.searched
    except RequestError:
        reject()
    check_agrees(exact, found, request.search.k)


def letters(words):
    return tuple(words.split("/"))


UNFINISHED = Request(  # ends that the last rows of the budget touched were forgotten: `r` was proved, it is `c`
    seed=77,
    prompt="atb",
    choices=letters("araaa/r /r/ac/cccr/c/cr"),
    search=SearchParams(stop="mass", budget_nodes=4),
    sharpness=0.5,
    boundary="harness",
    prior=(1.0, 0.5, 0.5, 0.5, 0.5, 1.0, 0.0),
)
HEALED = Request(  # p = 0.00035 was said to lie in [0.864, 0.928]
    seed=302,
    prompt="ra",
    choices=letters(
        "ctac/ct/ta/crcac/bbtaa/rba/at/rat/cb/abbb/crt/trarb/rtbt/r/ctrtc/rtaa/rt/tarrc/rarab/bbc/abrb/rcr/artcr/ct"
    ),
    search=SearchParams(k=3, budget_nodes=2, width=8),
    sharpness=3.0,
)
HEALED_BY_MASS = Request(
    seed=492,
    prompt="c c c",
    choices=letters("bbr/rct/tcbc/atarc/cbtbc/crrba/ctca/tb/aca/b/rrcbb/rcbar/b/ba"),
    search=SearchParams(k=3, stop="mass", budget_nodes=8, width=2),
    sharpness=3.0,
    terminator="unless-continued",
)
HEALED_AND_PROVED = Request(  # without any budget
    seed=1021,
    prompt="bbcbc",
    choices=letters("a/atrr/acac/tcta/r/art/bbt/rtbt/aac/aatrb/t/cbbb/cbt/ca/abrt/aba/a/cr/ttbr/cartr/ttr/crtr/bc/cac"),
    search=SearchParams(width=5),
    sharpness=0.5,
    rule=ScoringRule("pmi"),
)
HEALED_UNRESOLVED = Request(
    seed=735,
    prompt=" aac",
    choices=letters(
        "c/rtc/rba/trat/bbr/br/btrcr/tctar/crr/rctat/rar/atc/r/rbabb/trbrc/bt/rtct/brrbc/rra/rbctr/btr/cacac/ttr/atc/c/rtc"
    ),
    search=SearchParams(stop="all", budget_nodes=9, width=8),
    sharpness=0.5,
    terminator="unless-continued",
)
UNRESOLVED_SECOND = Request(  # an end without a value stood among the first k, so the next one took its place
    seed=551,
    prompt=" ",
    choices=letters("artc/ccc/rbc/bbb/r/cat/btrc/atat/bc/actr/rarra/tcaa/rarrb/abc/rb/tc/r/ccct/taraa"),
    search=SearchParams(k=2, stop="all", budget_nodes=4, width=7),
    sharpness=0.5,
    boundary="split",
    limits=Limits(nodes=66, sequences=18, rows_per_call=43, kind=ModelKind.HYBRID, max_idle_rows=4096),
)
UNRESOLVED_FIRST = Request(
    seed=584,
    prompt="r",
    choices=letters("bcc/t/tcrt/r/a/tt/c/trtt/babt/bc/tctb/rratr/c/bbcb/tbaab/rc/ba/bcc/t"),
    search=SearchParams(stop="all", budget_nodes=7, width=5),
    sharpness=0.5,
    terminator="unless-continued",
    boundary="harness",
)
UNRESOLVED_BY_MASS = Request(
    seed=755,
    prompt="taatt",
    choices=letters("cbr/cabc/c/arbb/bra/ccb/caa/cttar/trrrb/bcrca/trtcc/cbr/cabc"),
    search=SearchParams(stop="mass", budget_nodes=8, width=2),
    terminator="unless-continued",
    boundary="harness",
)
NOTHING_FINISHED = Request(  # masked greedy decoding stops at `a`, whose continuation the budget leaves open
    seed=0, prompt="a", choices=("a", "aaa"), search=SearchParams(budget_nodes=1, width=1), sharpness=0.0
)
GREEDY_EXCLUDED = Request(
    seed=0,
    prompt="a",
    choices=letters("abaaa/a/ /b/c"),
    search=SearchParams(budget_nodes=1, width=1),
    sharpness=0.0,
    terminator="none",
    prior=(1.0, 0.0, 0.0, 0.0, 0.0),
)
CONTINUATIONS_EXCLUDED = replace(NOTHING_FINISHED, choices=("a", "aab", "aac"), prior=(1.0, 0.0, 0.0))
EXCLUDED_UNREAD = (
    Request(  # prior 0 keeps " cat" from being evaluated: it said -inf as its score and not that it is pruned
        seed=3, prompt="a bat", choices=(" cat", " rat", " tab"), search=SearchParams(), prior=(0.0, 1.0, 1.0)
    )
)
HEALED_MEAN = Request(  # its margin of 1.71 nats is 1.44 if the healed bytes are as probable as they may be
    seed=0,
    prompt=" b",
    choices=("a", "aa"),
    search=SearchParams(width=1),
    sharpness=0.0,
    terminator="text",
    following="t.",
    rule=ScoringRule("token_mean"),
)


@settings(max_examples=n_examples(64))  # a sweep draws 20 000
@example(UNFINISHED)
@example(HEALED)
@example(HEALED_BY_MASS)
@example(HEALED_AND_PROVED)
@example(HEALED_UNRESOLVED)
@example(UNRESOLVED_SECOND)
@example(UNRESOLVED_FIRST)
@example(UNRESOLVED_BY_MASS)
@example(NOTHING_FINISHED)
@example(GREEDY_EXCLUDED)
@example(CONTINUATIONS_EXCLUDED)
@example(EXCLUDED_UNREAD)
@example(HEALED_MEAN)
@given(request=requests())
def test_best_first_says_nothing_that_exhaustive_scoring_contradicts(request):
    """Every terminator, boundary, rule with a bound, prior, budget, stop and room: proved, bounds, mass and margin hold."""
    check(request)


@pytest.mark.long
@settings(max_examples=20_000)
@given(request=requests())
def test_best_first_says_nothing_wrong_over_many_requests(request):
    """The same law on three hundred times as many requests."""
    check(request)


def test_each_claim_that_is_too_bold_is_caught():
    """A best-first answer that leaves the winner open, altered in one claim after the other."""
    request = replace(UNRESOLVED_FIRST, search=replace(UNRESOLVED_FIRST.search, budget_nodes=3))
    exact, found = request.exhaustive, request.searched
    assert found.index != exact.index
    check_agrees(exact, found, 1)
    table, certificate = found.choices, found.certificate
    bold = [
        replace(found, certificate=replace(certificate, proved=True)),
        replace(found, certificate=replace(certificate, bound_gap=1.0)),
        replace(found, certificate=replace(certificate, open_mass=0.0)),
        replace(found, margin=0.5),
        replace(found, coverage=2 * exact.coverage),
        replace(found, choices=replace(table, probability_high=table.probability_high / 2)),
        replace(found, choices=replace(table, probability_low=table.probability_high + 0.01)),
        replace(found, choices=replace(table, logp_upper=exact.choices.logp - 1)),
        replace(found, index=exact.index),
    ]
    for answer in bold:
        with pytest.raises(AssertionError):
            check_agrees(exact, answer, 1)
