"""Metrics of evaluations: by hand, against slow twins, and what they refuse."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.errors import OptionError
from selectrie.evaluation.metrics import (
    METRICS,
    ChoiceLoglikelihood,
    ItemRecord,
    baseline_needs,
    estimate,
    find_metrics,
)
from selectrie.evaluation.results import TaskResult, record_from_json, record_to_json


def record(logps, *, gold=(0,), texts=None, index=0, **columns):
    """A record of choices with these log-probabilities and lengths of these texts."""
    texts = texts or ["x"] * len(logps)
    choices = tuple(
        ChoiceLoglikelihood(
            logp=logp,
            n_tokens=len(text.split()),
            n_chars=len(text),
            n_bytes=len(text.encode()),
            is_greedy=False,
            n_words=len(text.split()),
            **{name: values[i] for name, values in columns.items()},
        )
        for i, (logp, text) in enumerate(zip(logps, texts, strict=True))
    )
    return ItemRecord("task", index, f"task-{index}", "", tuple(gold), choices, 0)


def value(name, *records):
    """The figure of one metric."""
    return estimate(METRICS[name], records).value


def test_each_length_decides_by_its_own_mean():
    """A long choice of four characters a nat wins by characters and loses by the sum."""
    one = record([-2.0, -3.0], gold=(1,), texts=["ab", "abcdef"])
    assert [value(name, one) for name in ("acc", "acc_norm", "acc_bytes")] == [0.0, 1.0, 1.0]
    two = record([-2.0, -3.0], gold=(1,), texts=["ab", "ßß"])  # 2 characters each, 2 and 4 bytes
    assert [value(name, two) for name in ("acc", "acc_norm", "acc_bytes")] == [0.0, 0.0, 1.0]


def test_tokens_decide_by_theirs():
    """Three tokens at one nat beat one at two."""
    assert value("acc_token_mean", record([-2.0, -3.0], gold=(1,), texts=["a", "a b c"])) == 1.0


def test_a_tie_goes_to_the_first_choice():
    """As `numpy.argmax` has it."""
    assert value("acc", record([-1.0, -1.0], gold=(0,))) == 1.0
    assert value("acc", record([-1.0, -1.0], gold=(1,))) == 0.0


def test_an_item_with_one_choice_is_right_where_greedy_decoding_gives_it():
    """Whatever its log-probability is; only an item of several choices compares them."""
    one = record([-9.0])
    greedy = replace(one, choices=(replace(one.choices[0], is_greedy=True),))
    two = record([-1.0, -2.0], gold=(0,))
    both = replace(two, choices=tuple(replace(choice, is_greedy=False) for choice in two.choices))
    assert [value("acc", item) for item in (one, greedy, both)] == [0.0, 1.0, 1.0]


def test_a_place_that_is_impossible_in_every_item_is_never_the_batchs_choice():
    """Its share over its mean share is 0 over 0, which loses to any number."""
    items = [record([-math.inf, -1.0, -2.0], gold=(1,)), record([-math.inf, -2.0, -1.0], gold=(2,), index=1)]
    assert value("batch_calibrated", *items) == 1.0


def test_gains_are_over_what_was_measured_without_the_context():
    """Mutual information and domain-conditional PMI subtract each their own baseline."""
    one = record([-1.0, -2.0], gold=(1,), logp_unconditional=[-1.0, -5.0], logp_premise=[-0.5, -1.0])
    assert value("acc_mutual_info", one) == 1.0
    assert value("pmi_dc", one) == 0.0


def test_contextual_calibration_by_hand():
    """Shares .6 and .4 against .9 and .1 after "N/A": the second gains."""
    logs = [math.log(0.6), math.log(0.4)]
    free = [(math.log(0.9),), (math.log(0.1),)]
    assert value("calibrated", record(logs, gold=(1,), logp_content_free=free)) == 1.0
    assert value("acc", record(logs, gold=(1,))) == 0.0


def test_batch_calibration_by_hand():
    """Of two items that both prefer the first place, the one that does so less is given the second."""
    first = record([math.log(0.9), math.log(0.1)], gold=(0,))
    second = record([math.log(0.6), math.log(0.4)], gold=(1,), index=1)
    assert value("batch_calibrated", first, second) == 1.0
    assert value("acc", first, second) == 0.5


def test_masses_and_squares_by_hand():
    """Probabilities .5, .3, .2 with the first two right: mc2 .8; with the first right alone: Brier .25 + .09 + .04."""
    logs = [math.log(p) for p in (0.5, 0.3, 0.2)]
    assert value("mc2", record(logs, gold=(0, 1))) == pytest.approx(0.8)
    assert value("brier", record(logs, gold=(0,))) == pytest.approx(0.38)


def test_perplexities_by_hand():
    """Texts of 2 words in 3 bytes at 4 nats, and 1 word in 1 byte at 2 nats."""
    texts = [record([-4.0], texts=["a b"]), record([-2.0], texts=["c"], index=1)]
    assert value("perplexity", *texts) == pytest.approx(math.exp(3.0))
    assert value("word_perplexity", *texts) == pytest.approx(math.exp(2.0))
    assert value("byte_perplexity", *texts) == pytest.approx(math.exp(1.5))
    assert value("bits_per_byte", *texts) == pytest.approx(1.5 / math.log(2))


def test_chance_is_the_mean_share_of_right_choices():
    """One of two and one of four: 3/8; of single texts there is none."""
    both = (record([-1.0, -2.0]), record([-1.0, -2.0, -3.0, -4.0], index=1))
    assert estimate(METRICS["acc"], both).chance == pytest.approx(0.375)
    assert estimate(METRICS["acc"], (record([-1.0]),)).chance is None


def test_what_was_not_measured_is_said():
    """Asking for mutual information of records without it names the measure."""
    with pytest.raises(OptionError, match="logp_unconditional"):
        value("acc_mutual_info", record([-1.0, -2.0]))
    with pytest.raises(OptionError, match="content-free"):
        value("calibrated", record([-1.0, -2.0]))
    with pytest.raises(OptionError, match="the same number of choices"):
        value("batch_calibrated", record([-1.0, -2.0]), record([-1.0] * 3, index=1))


def test_names_are_checked():
    """A wrong name is told with the nearest right one; needs are collected."""
    with pytest.raises(OptionError, match="did you mean 'acc_norm'"):
        find_metrics(["acc", "acc_nrom"])
    assert baseline_needs(find_metrics(["acc", "pmi_dc"])).premise
    assert not baseline_needs(find_metrics(["acc", "pmi_dc"])).unconditional
    assert baseline_needs(find_metrics(["calibrated"])).content_free


logs = st.lists(st.floats(-50, 0), min_size=2, max_size=5)


@given(st.lists(logs, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_accuracy_equals_its_slow_twin(rows, random):
    """Counting by hand gives the same share, inside its interval."""
    records = [record(row, gold=(random.randrange(len(row)),), index=i) for i, row in enumerate(rows)]
    n = sum(row.index(max(row)) in one.gold for row, one in zip(rows, records, strict=True))
    found = estimate(METRICS["acc"], records)
    assert found.value == pytest.approx(n / len(rows))
    assert found.low <= found.value <= found.high


@given(logs, st.floats(-20, 20), st.integers(0, 1))
def test_a_constant_on_every_choice_moves_no_decision(row, shift, gold):
    """Masses in the set, and what they decide, are of differences alone."""
    moved = [min(0.0, x + min(0.0, shift)) if shift <= 0 else x for x in row]
    one, two = record(row, gold=(gold,)), record(moved, gold=(gold,))
    assert value("mc2", one) == pytest.approx(value("mc2", two), abs=1e-9)


@given(logs)
def test_a_record_is_read_as_it_was_written(row):
    """To the last bit, minus infinity included."""
    one = record(
        [*row, -math.inf],
        gold=(0, 1),
        logp_premise=[*row, -math.inf],
        logp_content_free=[(x, -math.inf) for x in [*row, 0.0]],
    )
    assert record_from_json(record_to_json(one)) == one


def test_problems_are_counted_and_left_out():
    """An item that did not fit is in no figure, and is named."""
    bad = ItemRecord("task", 1, "b", "", (0,), (), 0, problem="too long: 9 tokens, room for 8")
    result = TaskResult.of("task", [record([-1.0, -2.0]), bad], find_metrics(["acc"]))
    assert (result.figures.n, result.figures.n_failed, result.figures.metrics["acc"].value) == (1, 1, 1.0)
    assert result.to_dict()["problems"] == [{"index": 1, "id": "b", "problem": bad.problem}]
    assert np.array_equal(result.margins, [1.0])


def test_one_line_an_item_as_a_table():
    """With pandas: a column for each metric, NaN where the item failed."""
    pytest.importorskip("pandas")
    from selectrie.evaluation.results import Evaluation

    bad = ItemRecord("task", 1, "b", "", (0,), (), 0, problem="too long")
    result = TaskResult.of("task", [record([-1.0, -2.0]), bad], find_metrics(["acc", "brier"]))
    table = Evaluation((result,), 1, 2, {}).to_pandas()
    assert table["acc"][0] == 1.0
    assert math.isnan(table["acc"][1])


OURS = {"acc": "acc", "acc_norm": "acc_norm", "acc_bytes": "acc_bytes", "acc_mutual_info": "acc_mutual_info", "brier": "brier_score"}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_figures_and_errors_are_the_harness_s_on_random_log_likelihoods():
    """`process_results`, aggregations and standard errors of its own tasks: ties, minus infinity and empty texts among them."""
    pytest.importorskip("lm_eval")
    from lm_eval.api.metrics import brier_score, mean, mean_stderr
    from lm_eval.api.task import ConfigurableTask

    names = list(OURS.values())
    task = ConfigurableTask.__new__(ConfigurableTask)
    task.OUTPUT_TYPE, task.multiple_input, task.multiple_target = "multiple_choice", 0, 0
    task._metric_fn_list = dict.fromkeys(names)
    task.doc_to_choice, task.doc_to_target = (lambda doc: doc["choices"]), (lambda doc: doc["gold"])
    task._config = type("Config", (), {"process_results": None})()
    rng = np.random.default_rng(4)
    texts = ["a", "bcd", "é日", "long one", "xx"]
    for round_of in range(5):
        found, records = [], []
        for i in range(30):
            logp = -np.round(rng.exponential(3, size=4), round_of % 3)
            if i % 10 == 0:
                logp[i % 4] = -np.inf
            free = -np.round(rng.exponential(3, size=4), round_of % 3)
            choices, gold = [texts[j] for j in rng.integers(0, len(texts), 4)], int(rng.integers(4))
            answers = [(float(x), False) for x in [*logp, *free]]
            found.append(task.process_results({"choices": choices, "gold": gold}, answers))
            records.append(
                record(logp.tolist(), gold=(gold,), texts=choices, index=i, logp_unconditional=free.tolist())
            )
        for ours, theirs in OURS.items():
            items = [one[theirs] for one in found]
            aggregate = brier_score if theirs == "brier_score" else mean
            mine = estimate(METRICS[ours], records)
            assert mine.value == pytest.approx(aggregate(items), abs=1e-12)
            if aggregate is mean:
                assert mine.stderr == pytest.approx(mean_stderr(items))


@pytest.mark.filterwarnings("ignore")
def test_perplexities_are_the_harness_s():
    """Unweighted of answers, weighted of texts by words and bytes."""
    pytest.importorskip("lm_eval")
    from lm_eval.api.metrics import bits_per_byte, perplexity, weighted_perplexity

    rng = np.random.default_rng(7)
    texts = ["a b c", "é 日", "xyz", "one two  three four"]
    logs = (-rng.exponential(9, size=len(texts))).tolist()
    records = [record([x], texts=[text], index=i) for i, (x, text) in enumerate(zip(logs, texts, strict=True))]
    words = [(x, one.choices[0].n_words) for x, one in zip(logs, records, strict=True)]
    octets = [(x, len(text.encode())) for x, text in zip(logs, texts, strict=True)]
    assert value("perplexity", *records) == pytest.approx(perplexity(logs))
    assert value("word_perplexity", *records) == pytest.approx(weighted_perplexity(words))
    assert value("byte_perplexity", *records) == pytest.approx(weighted_perplexity(octets))
    assert value("bits_per_byte", *records) == pytest.approx(bits_per_byte(octets))


def test_mc2_is_the_harness_s():
    """TruthfulQA's own rule on labels: the normalised probability of the true answers."""
    utils = pytest.importorskip("lm_eval.tasks.truthfulqa.utils")
    rng = np.random.default_rng(8)
    for _ in range(20):
        logs, n_true = -rng.exponential(5, size=6), int(rng.integers(1, 6))
        doc = {"mc2_targets": {"labels": [1] * n_true + [0] * (6 - n_true)}}
        expected = utils.process_results_mc2(doc, [(float(x), False) for x in logs])["acc"]
        assert value("mc2", record(logs.tolist(), gold=range(n_true))) == pytest.approx(expected)


rows_of_four = st.lists(st.lists(st.floats(-30, 0), min_size=3, max_size=3), min_size=1, max_size=8)


@given(rows_of_four, st.randoms(use_true_random=False))
def test_calibrations_equal_their_slow_twins(rows, random):
    """Zhao et al.: q = diag(p_cf)^-1 p. Zhou et al.: p(c | x) over the mean of p(c | ·) in the batch."""
    shares = [[math.exp(x) / sum(math.exp(y) for y in row) for x in row] for row in rows]
    free = [[[random.uniform(-9, 0) for _ in range(2)] for _ in range(3)] for _ in rows]
    prior = [sum(share[c] for share in shares) / len(shares) for c in range(3)]
    records, by_context, by_batch = [], [], []
    for i, (row, share) in enumerate(zip(rows, shares, strict=True)):
        gold = random.randrange(3)
        records.append(record(row, gold=(gold,), index=i, logp_content_free=[tuple(one) for one in free[i]]))
        totals = [sum(math.exp(free[i][c][k]) for c in range(3)) for k in range(2)]
        content_free = [sum(math.exp(free[i][c][k]) / totals[k] for k in range(2)) / 2 for c in range(3)]
        by_context.append(([share[c] / content_free[c] for c in range(3)], gold))
        by_batch.append(([share[c] / prior[c] for c in range(3)], gold))
    for name, scored in (("calibrated", by_context), ("batch_calibrated", by_batch)):
        right = METRICS[name].of_items(records)
        for is_right, (scores, gold) in zip(right, scored, strict=True):
            best = max(scores)
            if sum(score > best * (1 - 1e-9) for score in scores) == 1:  # where rounding decides, either may
                assert is_right == (scores.index(best) == gold)
