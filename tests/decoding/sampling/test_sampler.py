"""The sampler chain against its definitions: every distribution by exact enumeration, no drawn numbers.

Tolerance: 1e-9 of a probability (float64 sums); 1e-6 where the normaliser of a wide row is summed in float32.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selectrie.core.numerics import uniform
from selectrie.core.rows import DenseRows
from selectrie.decoding.sampling.chain import Adjustments, penalise, top_p
from selectrie.decoding.sampling.sampler import Draw, Sampler
from selectrie.errors import DeadEndError, NonFiniteLogitsError, OptionError, TokenRangeError
from selectrie.options import SamplingParams
from tests.support.n_examples import n_examples
from tests.support.sampler_chain import candidates

TOLERANCE = 1e-9
WIDE_TOLERANCE = 1e-6
STEP = 2.0**-53

coarse = st.sampled_from([-math.inf, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])  # ties
logit = st.one_of(st.floats(-8, 8, width=32), coarse)
rows = st.lists(logit, min_size=1, max_size=8).filter(lambda row: max(row) > -math.inf)
shares = st.sampled_from([0.0, 0.07, 0.31, 0.537, 0.83, 0.97, 1.0])  # no sum of equal shares of 8 tokens or fewer
biases = st.dictionaries(st.integers(0, 7), st.sampled_from([-math.inf, -2.5, 0.25, 40.0]), max_size=2)
chains = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.4, 1.0, 2.5]),
    top_k=st.integers(0, 9),
    top_p=shares,
    min_p=st.sampled_from([0.0, 0.03, 0.2, 0.7, 1.0]),
    typical_p=st.one_of(st.just(1.0), shares),
    repeat_penalty=st.sampled_from([1.0, 1.3, 0.6]),
    presence_penalty=st.sampled_from([0.0, 0.7, -0.4]),
    frequency_penalty=st.sampled_from([0.0, 0.45, -0.3]),
    penalty_last_n=st.sampled_from([-1, 0, 1, 3, 64]),
    logit_bias=biases,
)


def float32(x: float) -> float:
    return float(np.float32(x))


def mass(logits: dict[int, float]) -> dict[int, float]:
    """Probabilities of logits."""
    peak = max(logits.values())
    weights = {i: math.exp(x - peak) for i, x in logits.items()}
    total = math.fsum(weights.values())
    return {i: w / total for i, w in weights.items()}


def until(order: list[int], p: dict[int, float], is_enough) -> list[int]:
    """The first tokens up to the one at which the mass is enough: at least one."""
    total = 0.0
    for n, i in enumerate(order, start=1):
        total += p[i]
        if is_enough(total):
            return order[:n]
    return order


def adjusted(logits: list[float], sampling: SamplingParams, history: list[int]) -> dict[int, float]:
    """Logits after bias and penalties, as the penalties are defined, one token at a time."""
    n = sampling.penalty_last_n
    recent = history if n < 0 else history[len(history) - min(n, len(history)) :]
    result = {}
    for i, x in enumerate(logits):
        x = float32(x + sampling.logit_bias.get(i, 0.0))  # noqa: PLW2901
        if i in recent and sampling.penalises:
            x = float32(x / sampling.repeat_penalty if x > 0 else x * sampling.repeat_penalty)  # noqa: PLW2901
            x = float32(x - (recent.count(i) * sampling.frequency_penalty + sampling.presence_penalty))  # noqa: PLW2901
        result[i] = x
    return result


def twin(logits, sampling, history=(), allowed=None) -> dict[int, float]:
    """The chain from its definitions: a dictionary of logits that each step makes smaller, then the probabilities."""
    left = adjusted(list(logits), sampling, list(history))
    left = {i: x for i, x in left.items() if x > -math.inf and (allowed is None or i in allowed)}
    if sampling.top_k > 0:
        left = {i: left[i] for i in sorted(left, key=lambda i: (-left[i], i))[: sampling.top_k]}
    if sampling.typical_p < 1:
        p = mass(left)
        entropy = -math.fsum(q * math.log(q) for q in p.values() if q > 0)
        peak, logp_peak = max(left.values()), math.log(max(p.values()))
        far = {i: abs(-(x - peak + logp_peak) - entropy) for i, x in left.items()}
        order = sorted(left, key=lambda i: (round(far[i], 9), i))
        left = {i: left[i] for i in until(order, p, lambda m: m > sampling.typical_p)}
    if sampling.top_p < 1:
        order = sorted(left, key=lambda i: (-left[i], i))
        left = {i: left[i] for i in until(order, mass(left), lambda m: m >= sampling.top_p)}
    if sampling.min_p > 0:
        p = mass(left)
        least = sampling.min_p * max(p.values())
        left = {i: x for i, x in left.items() if p[i] >= least}
    if sampling.temperature == 0:
        best = min(left, key=lambda i: (-left[i], i))
        return {best: 1.0}
    return mass({i: x / sampling.temperature for i, x in left.items()})


def as_row(logits) -> np.ndarray:
    return np.array(logits, dtype=np.float32)


def interval_lengths(draw, n_tokens: int) -> dict[int, float]:
    """How much of [0, 1) draws each token: the ends of the intervals are found by halving, to within 2**-40."""
    ends = [0.0]
    for token in range(n_tokens - 1):
        low, high = ends[-1], 1.0  # the first number that draws a later token lies in (low, high]
        if low == 1.0 or draw(low) > token:  # of [0, 1) nothing is left at 1
            ends.append(low)
            continue
        while high - low > 2.0**-40:
            middle = (low + high) / 2
            low, high = (low, middle) if draw(middle) > token else (middle, high)
        ends.append(high if high < 1 else 1.0)
    ends.append(1.0)
    return {token: ends[token + 1] - ends[token] for token in range(n_tokens)}


def assert_same(got: dict[int, float], expected: dict[int, float], tolerance: float = TOLERANCE) -> None:
    """The same tokens but for those of no weight, with the same probabilities."""
    for token in got.keys() | expected.keys():
        assert abs(got.get(token, 0.0) - expected.get(token, 0.0)) <= tolerance, (token, got, expected)


def test_the_comparison_can_fail():
    """A distribution that differs by more than the tolerance is found, so is a token too many."""
    for other in ({0: 0.5, 1: 0.5 + 1e-6}, {0: 0.5, 2: 0.5}):
        with pytest.raises(AssertionError):
            assert_same(other, {0: 0.5, 1: 0.5})


@given(rows, chains, st.lists(st.integers(0, 7), max_size=6))
@settings(max_examples=n_examples(300))
@example([0.0, 0.0, 0.0, 0.0], SamplingParams(top_p=0.0, temperature=1.0), [])
@example([1.0, 1.0], SamplingParams(typical_p=0.0, temperature=0.0), [])
def test_the_chain_equals_its_definition(logits, sampling, history):
    """Filters, their order, their ties and the penalties: the same tokens with the same probabilities as the slow twin."""
    sampling = replace(sampling, logit_bias={i: b for i, b in sampling.logit_bias.items() if i < len(logits)})
    history = [token for token in history if token < len(logits)]
    counts = Counter(history if sampling.penalty_last_n < 0 else history[-sampling.penalty_last_n or len(history) :])
    if max(adjusted(logits, sampling, history).values()) == -math.inf:
        with pytest.raises(DeadEndError):
            candidates(as_row(logits), sampling, counts=counts)
        return
    ids, p = candidates(as_row(logits), sampling, counts=counts)
    assert ids.dtype == np.int32
    assert p.dtype == np.float64
    assert (np.diff(ids) > 0).all()
    assert_same(dict(zip(ids.tolist(), p.tolist(), strict=True)), twin(logits, sampling, history))


@given(rows, chains, st.lists(st.integers(0, 7), max_size=6), st.data())
@settings(max_examples=n_examples(100), deadline=None)
def test_every_token_is_drawn_as_often_as_it_is_probable(logits, sampling, history, data):
    """The share of [0, 1) that draws a token is its probability, whatever is allowed, and intervals lie by id."""
    n = len(logits)
    sampling = replace(sampling, logit_bias={i: b for i, b in sampling.logit_bias.items() if i < n and b > -math.inf})
    history = [token for token in history if token < n]
    possible = [i for i in range(n) if logits[i] > -math.inf]
    allowed = sorted(data.draw(st.sets(st.integers(0, n - 1))) | {data.draw(st.sampled_from(possible))})
    given_as = data.draw(st.sampled_from(["ids", "marks"]))
    array = np.array(allowed, dtype=np.int32) if given_as == "ids" else np.isin(np.arange(n), allowed)
    sampler, row = Sampler(sampling, history), DenseRows(as_row(logits)[None])
    got = interval_lengths(lambda u: sampler.draw(row, 0, u, allowed=array, tolerance=0.0).token, n)
    assert_same(got, twin(logits, sampling, history, allowed))


# p = 1/2, 1/4, 1/8, 1/8; entropy 1.75 bits, so the distances from it are 0.75, 0.25, 1.25, 1.25 bits.
HALVES = as_row(np.log([0.5, 0.25, 0.125, 0.125]))
ALL = SamplingParams.UNCHANGED


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (ALL, {0: 1 / 2, 1: 1 / 4, 2: 1 / 8, 3: 1 / 8}),
        (replace(ALL, top_k=2), {0: 2 / 3, 1: 1 / 3}),
        (replace(ALL, top_k=3), {0: 4 / 7, 1: 2 / 7, 2: 1 / 7}),  # a tie: the smaller id
        (replace(ALL, top_p=0.7), {0: 2 / 3, 1: 1 / 3}),
        (replace(ALL, top_p=0.76), {0: 4 / 7, 1: 2 / 7, 2: 1 / 7}),
        (replace(ALL, top_p=0.0), {0: 1.0}),
        (replace(ALL, min_p=0.4), {0: 2 / 3, 1: 1 / 3}),
        (replace(ALL, min_p=0.2), {0: 1 / 2, 1: 1 / 4, 2: 1 / 8, 3: 1 / 8}),
        (replace(ALL, typical_p=0.2), {1: 1.0}),
        (replace(ALL, typical_p=0.5), {0: 2 / 3, 1: 1 / 3}),
        (replace(ALL, typical_p=0.2, temperature=0.0), {1: 1.0}),  # the one filter that can drop the most probable
        (replace(ALL, temperature=0.5), {0: 16 / 22, 1: 4 / 22, 2: 1 / 22, 3: 1 / 22}),
        (SamplingParams.GREEDY, {0: 1.0}),
        (replace(ALL, top_p=0.6, top_k=2), {0: 1.0}),  # top-p sees 2/3 and 1/3, what top-k left
        (replace(ALL, top_p=0.7, temperature=9.0), {0: 2 ** (1 / 9) / (1 + 2 ** (1 / 9)), 1: 1 / (1 + 2 ** (1 / 9))}),
        (replace(ALL, logit_bias={0: -math.inf}), {1: 1 / 2, 2: 1 / 4, 3: 1 / 4}),
    ],
)
def test_distributions_by_hand(sampling, expected):
    """Each step on probabilities of one half, a quarter and two eighths."""
    ids, p = candidates(HALVES, sampling)
    assert_same(dict(zip(ids.tolist(), p.tolist(), strict=True)), expected, 1e-7)


def test_penalties_by_hand():
    """Positive logits are divided, others multiplied; then once the presence and for each time the frequency."""
    logits, counts = np.array([2.0, -2.0, 2.0, 0.0]), np.array([1, 3, 0, 2])
    assert penalise(logits, counts, SamplingParams(repeat_penalty=2.0)).tolist() == [1, -4, 2, 0]
    both = SamplingParams(repeat_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5)
    assert penalise(logits, counts, both).tolist() == [1 - 0.75, -4 - 1.75, 2, -1.25]


@given(chains, st.lists(st.integers(0, 7), max_size=9), st.lists(st.integers(0, 7), max_size=9))
def test_penalties_look_at_the_last_tokens_of_prompt_and_text(sampling, history, drawn):
    """A sampler that was told tokens one by one draws as from the counts of the last n, prompt included."""
    sampling = replace(sampling, temperature=1.0, logit_bias={})
    sampler = Sampler(sampling, np.array(history, dtype=np.int32))
    for token in drawn:
        sampler.accept(token)
    row = as_row([0.3, -1.0, 2.0, 0.25, 1.5, -0.75, 0.0, 1.0])
    expected = twin(row.tolist(), sampling, history + drawn)
    edges = np.cumsum([expected[i] for i in sorted(expected)])
    for u in (0.001, 0.2, 0.47, 0.81, 0.999):
        place = int(np.searchsorted(edges, u))
        assert sampler.draw(DenseRows(row[None]), 0, u, allowed=None, tolerance=0.0).token == sorted(expected)[place]


def test_the_intervals_lie_by_id_and_hold_their_left_end():
    """Of two tokens of probability one half, numbers below 1/2 draw the first, 1/2 and above the second."""
    sampler, row = Sampler(ALL, []), DenseRows(np.zeros((1, 2), dtype=np.float32))
    drawn = [sampler.draw(row, 0, u, allowed=None, tolerance=0.0).token for u in (0.0, 0.5 - STEP, 0.5, 1 - STEP)]
    assert drawn == [0, 0, 1, 1]


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e300])
def test_extreme_temperatures_draw(temperature):
    """Next to 0 is the most probable token; next to infinity every token is as probable."""
    ids, p = candidates(HALVES, replace(ALL, temperature=temperature))
    assert_same(
        dict(zip(ids.tolist(), p.tolist(), strict=True)), dict.fromkeys(range(4), 0.25) if temperature > 1 else {0: 1.0}
    )


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(top_k=0),
        SamplingParams(top_k=0, min_p=0.0),
        SamplingParams(top_k=0, min_p=0.0, top_p=0.999999),
        SamplingParams(top_k=0, min_p=0.001, top_p=1.0),
        SamplingParams(top_k=0, min_p=0.0, top_p=0.9, typical_p=0.9),
        SamplingParams(top_k=700, min_p=0.0, top_p=0.5),
    ],
    ids=repr,
)
@pytest.mark.parametrize("sharpness", [0.1, 1.0, 6.0])
def test_short_cuts_of_wide_vocabularies_change_nothing(sampling, sharpness):
    """Top-p and min-p look at the most probable tokens first; the distribution is that of looking at all."""
    logits = (np.random.default_rng(5).gumbel(size=2000) * sharpness).astype(np.float32)
    ids, p = candidates(logits, sampling)
    expected = twin(logits.tolist(), sampling)
    assert_same(dict(zip(ids.tolist(), p.tolist(), strict=True)), expected, WIDE_TOLERANCE)
    assert len(ids) == len(expected)


@pytest.mark.parametrize(
    "penalty",
    [
        {"repeat_penalty": 5e-324},
        {"repeat_penalty": 1e308},
        {"frequency_penalty": 1e308},
        {"frequency_penalty": -1e308},
        {"presence_penalty": -1e308},
    ],
    ids=str,
)
def test_extreme_penalties_draw(penalty):
    """They overflow neither to a warning nor to NaN, and what is impossible stays so."""
    logits = np.array([2.0, -1.0, -np.inf, 0.0], dtype=np.float32)
    sampling = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, **penalty)
    ids, p = candidates(logits, sampling, counts={0: 3, 1: 2, 2: 4})
    assert p.sum() == pytest.approx(1)
    assert 2 not in ids


def test_a_large_bias_neither_overflows_nor_wins_over_minus_infinity():
    """Biases beyond float32 are cut to it."""
    row = as_row([0.0, 0.0, -math.inf])
    for bias, winner in ((1e300, 1), (-1e300, 0)):
        ids, p = candidates(row, replace(ALL, logit_bias={1: bias, 2: 5.0}))
        assert_same(dict(zip(ids.tolist(), p.tolist(), strict=True)), {winner: 1.0})


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams.GREEDY, ALL])
def test_broken_rows_are_named(bad, sampling):
    """NaN or +inf anywhere, or nothing finite at all, is the model's error, whatever is allowed."""
    matrix = np.zeros((3, 9), dtype=np.float32)
    matrix[1, 4] = bad
    matrix[2] = -math.inf
    sampler = Sampler(sampling, [])
    for i in (1, 2):
        with pytest.raises(NonFiniteLogitsError, match=f"row {i}"):
            sampler.draw(DenseRows(matrix), i, 0.5, allowed=np.array([2], dtype=np.int32), tolerance=0.0)
    assert isinstance(sampler.draw(DenseRows(matrix), 0, 0.5, allowed=None, tolerance=0.0), Draw)


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams.GREEDY, ALL])
@pytest.mark.parametrize(
    "allowed", [np.zeros(3, dtype=np.bool_), np.array([], dtype=np.int32), np.array([1], dtype=np.int32)]
)
def test_nothing_allowed_that_is_possible_is_a_dead_end(sampling, allowed):
    """The constraint is never dropped to draw something."""
    with pytest.raises(DeadEndError):
        candidates(as_row([0.0, -math.inf, 0.0]), sampling, allowed=allowed)


def test_a_bias_of_a_token_that_does_not_exist_is_refused():
    """The error names the token and the largest id."""
    with pytest.raises(TokenRangeError, match=r"token 4 .* 0 to 3"):
        candidates(HALVES, SamplingParams(logit_bias={4: 1.0}))


def philox(seed: int, step: int) -> int:
    """The first word of Philox4x64-10 in integers: ten rounds of two multiplications."""
    low64 = (1 << 64) - 1
    block = step + 1
    c = [block >> 64 * i & low64 for i in range(4)]
    k = [seed & low64, seed >> 64]
    for _ in range(10):
        left, right = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [(right >> 64) ^ c[1] ^ k[0], right & low64, (left >> 64) ^ c[3] ^ k[1], left & low64]
        k = [(k[0] + 0x9E3779B97F4A7C15) & low64, (k[1] + 0xBB67AE8584CAA73B) & low64]
    return c[0]


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**40))
@settings(max_examples=n_examples(60))
@example(0, 0)
@example(2**128 - 1, 2**32)
def test_the_numbers_are_those_of_philox(seed, step):
    """Seed and step alone decide: the number is written out from the definition of the generator."""
    assert uniform(seed, step) == (philox(seed, step) >> 11) / 2**53


def test_the_numbers_do_not_depend_on_what_was_drawn_before():
    """In any order, and between those of other seeds, each step has its number; no two of these agree."""
    asked = [(seed, step) for seed in range(20) for step in range(50)]
    forwards = {one: uniform(*one) for one in asked}
    assert {one: uniform(*one) for one in reversed(asked)} == forwards
    assert len(set(forwards.values())) == len(asked)
    assert all(0 <= u < 1 for u in forwards.values())


@pytest.mark.parametrize("seed", [-1, 2**128, True])
def test_seeds_are_checked(seed):
    """The error names the seed and what may be given."""
    with pytest.raises(OptionError, match="seed="):
        uniform(seed, 0)


def test_a_neutral_chain_touches_no_logit():
    """Without bias and penalties nothing is counted or copied."""
    sampler = Sampler(SamplingParams(), range(100))
    assert not sampler._counts
    assert len(Adjustments.of(SamplingParams(), {3: 1}).ids) == 0
    assert top_p(np.array([0.0, 1.0]), 0.5, math.log(1 + math.e)).tolist() == [False, True]
