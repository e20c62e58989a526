"""Metrics computed from log-likelihoods, and statistics of figures over n items."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import BoolArray, FloatArray
from selectrie.errors import OptionError
from selectrie.results.plain import plain


@dataclass(frozen=True, slots=True)
class Item:
    """A question of a benchmark, as text.

    Attributes:
        context: Text before every choice, without shots and description. With "", only
            the model's first token precedes a choice (whole sentences).
        choices: The alternatives as they are written after the delimiter.
        gold: Indices of the right choices; empty only for a text without alternatives.
        contexts: A context for each choice, if these differ; None means `context` for
            all. (WinoGrande: the sentence up to and including the option, where all
            choices are the same rest of it.)
        shared: Text before the context with which many items begin (description and
            shots). It is evaluated once.
        delimiter: Text between context and choice.
        premise: A context without the question, for the metric `pmi_dc`; None if the
            task has none.
        content_free: Contexts without content, such as the question "N/A" in the task's
            format (contextual calibration). `shared` precedes them too.
        id: Id of the item: that of the record, or "<task>-<index>".
        subset: Group that is reported separately (a subject, a paradigm), "" for none.
    """

    context: str
    choices: tuple[str, ...]
    gold: tuple[int, ...] = ()
    id: str = ""
    contexts: tuple[str, ...] | None = None
    shared: str = ""
    delimiter: str = " "
    premise: str | None = None
    content_free: tuple[str, ...] = ()
    subset: str = ""

    def context_of(self, choice: int) -> str:
        """Return the text before a choice, without the delimiter."""
        return self.shared + (self.context if self.contexts is None else self.contexts[choice])

    def continuation(self, choice: int) -> str:
        """Return the delimiter and the text of a choice."""
        return self.delimiter + self.choices[choice]


@dataclass(frozen=True, slots=True)
class ChoiceLoglikelihood:
    """The log-likelihoods of one choice, and its lengths.

    All log-likelihoods are natural logarithms, summed over the choice's tokens.

    Attributes:
        logp: Log-likelihood after the choice's context.
        n_tokens: Number of tokens that are scored.
        n_chars, n_bytes: Number of characters and UTF-8 bytes, without the delimiter.
        is_greedy: Whether each of its tokens was the most probable one.
        n_words: Number of words, separated by white space.
        logp_unconditional: Log-likelihood after the model's first token alone; None if
            not requested.
        logp_premise: Log-likelihood after the premise; None if not requested.
        logp_content_free: Log-likelihood after each content-free context.
    """

    logp: float
    n_tokens: int
    n_chars: int
    n_bytes: int
    is_greedy: bool
    n_words: int = 0
    logp_unconditional: float | None = None
    logp_premise: float | None = None
    logp_content_free: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemRecord:
    """An item of a run with the log-likelihoods of its choices.

    Attributes:
        task: Name of the task.
        index: Position in the task's data, from 0.
        id, subset, gold: The item's id, subset and right choices.
        choices: The choices in the item's order; empty if `problem` is set.
        unit: Number of the unit in which the item was measured.
        problem: Reason why the item could not be measured ("too long: 531 tokens, room
            for 512"), or None.
    """

    task: str
    index: int
    id: str
    subset: str
    gold: tuple[int, ...]
    choices: tuple[ChoiceLoglikelihood, ...]
    unit: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class BaselineNeeds:
    """The contexts, besides the item's own, after which choices are measured.

    See `metrics.baseline_needs`.

    Attributes:
        unconditional: Whether to measure choices without any context.
        premise: Whether to measure choices after the premise.
        content_free: Whether to measure choices after the content-free contexts.
    """

    unconditional: bool = False
    premise: bool = False
    content_free: bool = False


Z_95 = 1.959963984540054
"""97.5 % quantile of the normal distribution."""
BOOTSTRAP_SAMPLES = 1_000
BOOTSTRAP_SEED = 1234


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """A 95 % confidence interval."""

    low: float
    high: float


def standard_error(values: FloatArray) -> float:
    """Return the standard error of the mean of n values, float64[n].

    It is the sample standard deviation (n - 1) over √n, as in lm-evaluation-harness.
    NaN for fewer than two values, or if any is infinite.
    """
    n = len(values)
    with np.errstate(invalid="ignore"):
        return float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan


def wilson(n_right: float, n: int) -> ConfidenceInterval:
    """Return Wilson's 95 % interval of a proportion n_right / n; (0, 1) if n is 0.

    It is the score interval without continuity correction (Wilson 1927). Rounding never
    excludes the proportion itself.
    """
    if n == 0:
        return ConfidenceInterval(0.0, 1.0)
    p, z2 = n_right / n, Z_95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return ConfidenceInterval(min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half)))


def bootstrap(
    n: int, statistic: Callable[[np.ndarray], float], *, samples: int = BOOTSTRAP_SAMPLES, seed: int = BOOTSTRAP_SEED
) -> tuple[float, ConfidenceInterval]:
    """Return the standard error and 95 % percentile interval of a statistic of n items.

    They come from `samples` draws of n items with replacement (Efron 1979). The same
    seed gives the same figures.

    Args:
        n: Number of items.
        statistic: Maps int64[n], indices of the drawn items, to a number.
        samples: Number of draws.
        seed: Seed of the draws.
    """
    if n == 0:
        return math.nan, ConfidenceInterval(math.nan, math.nan)
    generator = np.random.default_rng(seed)
    # A figure may be infinite; an interval of such figures is NaN.
    with np.errstate(invalid="ignore"):
        values = np.array([statistic(generator.integers(0, n, size=n)) for _ in range(samples)])
        low, high = np.quantile(values, [0.025, 0.975])
        return float(values.std(ddof=1)), ConfidenceInterval(float(low), float(high))


def mcnemar(only_first: int, only_second: int) -> float:
    """Return McNemar's two-sided exact p-value for equal error rates of two runs.

    It is the binomial tail at 1/2, doubled (McNemar 1947); 1 if both numbers are 0.

    Args:
        only_first, only_second: Number of items that only this run gets right.
    """
    n = only_first + only_second
    if n == 0:
        return 1.0
    k = min(only_first, only_second)
    tail = sum(math.comb(n, i) for i in range(k + 1))
    return min(1.0, float(2 * tail / 2**n))


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """The items whose confidence lies in (low, high].

    Attributes:
        low, high: The bin's range of confidence.
        n: Number of items.
        confidence, accuracy: Their mean confidence and accuracy; NaN without items.
    """

    low: float
    high: float
    n: int
    confidence: float
    accuracy: float


def calibration_table(confidence: FloatArray, right: BoolArray, n_bins: int = 10) -> tuple[CalibrationBin, ...]:
    """Return accuracy by confidence, in bins of equal width from 0 to 1.

    As in Guo et al. 2017.

    Args:
        confidence: float64[n], probability of each item's predicted choice.
        right: bool[n], whether that choice is right.
        n_bins: Number of bins.
    """
    if n_bins < 1:
        raise OptionError("n_bins", n_bins, "at least 1")
    bin_of = np.clip(np.ceil(confidence * n_bins).astype(np.int64) - 1, 0, n_bins - 1)
    table = []
    for i in range(n_bins):
        is_inside = bin_of == i
        n = int(np.count_nonzero(is_inside))
        means = (float(confidence[is_inside].mean()), float(right[is_inside].mean())) if n else (math.nan, math.nan)
        table.append(CalibrationBin(i / n_bins, (i + 1) / n_bins, n, *means))
    return tuple(table)


def expected_calibration_error(table: tuple[CalibrationBin, ...]) -> float:
    """Return the mean distance between accuracy and confidence over bins.

    Bins are weighted by their number of items. NaN without items.
    """
    n = sum(one.n for one in table)
    return sum(one.n * abs(one.accuracy - one.confidence) for one in table if one.n) / n if n else math.nan


Records = Sequence[ItemRecord]

HARNESS = "lm-evaluation-harness, api/task.py and api/metrics.py"


def _mean(values: FloatArray, _: FloatArray) -> float:
    return float(values.mean())


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: the rule for computing one figure of a task.

    Attributes:
        name: Name of the metric.
        what: Description in one sentence.
        source: Paper or program that defines it.
        of_items: Maps records to float64[n], one number for each item.
        value: Computes the figure from these numbers and a weight for each.
        is_proportion: Whether the numbers are 0 or 1.
        higher_is_better: Whether a larger figure is better.
        needs: Contexts, besides the item's own, after which choices must be measured:
            "unconditional", "premise", "content_free".
        has_chance: Whether the figure of random guessing is defined.
        length: Field of the right choice used as the weight ("n_words" …); "" for a
            weight of 1.
        over: Which items have the metric: "texts" for all, also for single texts,
            "choices" for items whose right choices are known, "sets" for those of them
            with at least two choices, "equal sets" if all have the same number.
    """

    name: str
    what: str
    source: str
    of_items: Callable[[Records], FloatArray]
    value: Callable[[FloatArray, FloatArray], float] = _mean
    is_proportion: bool = False
    higher_is_better: bool = True
    needs: frozenset[str] = frozenset()
    has_chance: bool = False
    length: str = ""
    over: str = "choices"

    @property
    def is_mean(self) -> bool:
        """Return whether the figure is the mean of the items' numbers."""
        return self.value is _mean


@dataclass(frozen=True, slots=True)
class Estimate:
    """The figure of a metric over n items, with its uncertainty.

    Attributes:
        value: The figure.
        stderr: Its standard error.
        low, high: 95 % interval: Wilson's for proportions, else bootstrap percentiles.
        chance: The figure of random guessing, None if it is not defined.
    """

    value: float
    stderr: float
    low: float
    high: float
    chance: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the estimate ready for JSON; non-finite numbers become None."""
        return plain(self)


def estimate(metric: Metric, records: Records) -> Estimate:
    """Return the figure of a metric with its uncertainty; NaN without records.

    Args:
        records: Records of measured items (`problem` is None).
    """
    values = metric.of_items(records)
    if not len(values):
        return Estimate(math.nan, math.nan, math.nan, math.nan)
    weights = weights_of(metric, records)
    value = metric.value(values, weights)
    chance = _chance(records) if metric.has_chance else None
    if metric.is_proportion:
        interval = wilson(float(values.sum()), len(values))
        return Estimate(value, standard_error(values), interval.low, interval.high, chance)
    error, interval = bootstrap(len(values), lambda indices: metric.value(values[indices], weights[indices]))
    if metric.is_mean:
        error = standard_error(values)
    return Estimate(value, error, interval.low, interval.high, chance)


def weights_of(metric: Metric, records: Records) -> FloatArray:
    """Return the weight of each item's number in the figure, float64[n]."""
    if not metric.length:
        return np.ones(len(records))
    return np.array([getattr(_right_choice(record), metric.length) for record in records], dtype=np.float64)


def _chance(records: Records) -> float | None:
    """Return the mean share of right choices; None if an item has only one choice."""
    if any(len(record.choices) < 2 for record in records):
        return None
    return float(np.mean([len(record.gold) / len(record.choices) for record in records]))


def _choice_values(record: ItemRecord, name: str) -> FloatArray:
    """Return one field of each choice's log-likelihoods, float64[C].

    Raises `OptionError` if it was not measured.
    """
    values = [getattr(choice, name) for choice in record.choices]
    if any(value is None for value in values):
        raise OptionError("metric", name, "another metric: this was not measured; run again with it among the metrics")
    return np.array(values, dtype=np.float64)


def posterior(record: ItemRecord) -> FloatArray:
    """Return the probability of each choice among the item's choices, float64[C].

    It is computed from the summed log-probabilities.
    """
    logp = _choice_values(record, "logp")
    total = numerics.logsumexp(logp)
    if total == -np.inf:
        return np.full(len(logp), 1 / len(logp))
    shares: FloatArray = np.exp(logp - total)
    return shares


Score = Callable[[ItemRecord], FloatArray]


def _hits(score: Score) -> Callable[[Records], FloatArray]:
    """Return a function from records to 1 for a right prediction and 0 for a wrong one.

    The prediction is the choice with the highest score, the first of several. A single
    choice is right if greedy decoding gives it.
    """

    def of_items(records: Records) -> FloatArray:
        return np.array([_is_right(record, score) for record in records], dtype=np.float64)

    return of_items


def _is_right(record: ItemRecord, score: Score) -> bool:
    if len(record.choices) == 1:
        return record.choices[0].is_greedy
    return int(np.argmax(score(record))) in record.gold


def predicted_choice(record: ItemRecord) -> int:
    """Return the index of the choice with the largest summed log-probability."""
    return int(np.argmax(_choice_values(record, "logp")))


def margin(record: ItemRecord) -> float:
    """Return the distance in nats between an item's two most probable choices."""
    low, high = np.sort(_choice_values(record, "logp"))[-2:]
    return float(high - low) if high > -np.inf else 0.0


def _per_length(length: str) -> Score:
    """Return a score: the log-probability divided by a field such as "n_bytes"."""

    def score(record: ItemRecord) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return _choice_values(record, "logp") / _choice_values(record, length)

    return score


def _gain_over(other: str) -> Score:
    """Return a score: the log-probability minus another one's field."""
    return lambda record: _choice_values(record, "logp") - _choice_values(record, other)


def _log_shares(logp: FloatArray) -> FloatArray:
    return logp - numerics.logsumexp(logp)


def _contextual_scores(record: ItemRecord) -> FloatArray:
    """Return the score of each choice by contextual calibration (Zhao et al. 2021).

    It is log p(c | x) minus the log of the mean of p(c | cf) over the content-free
    contexts cf. Each p is normalised over the choices.
    """
    free = np.array([choice.logp_content_free for choice in record.choices], dtype=np.float64).T
    if not free.size:
        raise OptionError("metric", "calibrated", "content-free contexts: run with them (`content_free` of the task)")
    prior = np.mean([np.exp(_log_shares(row)) for row in free], axis=0)
    with np.errstate(divide="ignore"):
        gain: FloatArray = _log_shares(_choice_values(record, "logp")) - np.log(prior)
    return gain


def _batch_hits(records: Records) -> FloatArray:
    """Return 1 for each item whose best choice is right by batch calibration, else 0.

    The score is as in `_contextual_scores`, but the prior is the mean posterior of each
    position over all items of the task (Zhou et al. 2024).
    """
    sizes = {len(record.choices) for record in records}
    if len(sizes) > 1:
        raise OptionError(
            "metric", "batch_calibrated", f"items with the same number of choices; they have {sorted(sizes)}"
        )
    shares = np.array([posterior(record) for record in records])
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.log(shares) - np.log(shares.mean(axis=0))
    best = np.argmax(np.where(np.isnan(scores), -np.inf, scores), axis=1)
    return np.array([best[i] in record.gold for i, record in enumerate(records)], dtype=np.float64)


def _brier_scores(records: Records) -> FloatArray:
    """Return the Brier score of each item.

    Several right choices share the probability evenly; the harness does not define that
    case.
    """
    values = []
    for record in records:
        right = np.zeros(len(record.choices))
        right[list(record.gold)] = 1 / len(record.gold) if record.gold else 0.0
        values.append(float(((posterior(record) - right) ** 2).sum()))
    return np.array(values, dtype=np.float64)


def _mass_on_gold(records: Records) -> FloatArray:
    return np.array([float(posterior(record)[list(record.gold)].sum()) for record in records], dtype=np.float64)


def _gold_logp(records: Records) -> FloatArray:
    return np.array([_right_choice(record).logp for record in records], dtype=np.float64)


def _right_choice(record: ItemRecord) -> ChoiceLoglikelihood:
    return record.choices[record.gold[0] if record.gold else 0]


def _greedy_hits(records: Records) -> FloatArray:
    return np.array([_right_choice(record).is_greedy for record in records], dtype=np.float64)


def _exp_of_loss(values: FloatArray, weights: FloatArray) -> float:
    """Return the exponential of the loss per unit of length, over all texts."""
    total = float(weights.sum())
    return _safe_exp(-float(values.sum()) / total) if total else math.nan


def _safe_exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def _bits_of_loss(values: FloatArray, weights: FloatArray) -> float:
    """Return the loss in bits per unit of length, over all texts."""
    total = float(weights.sum())
    return -float(values.sum()) / total / math.log(2) if total else math.nan


_text_metric, _set_metric = partial(Metric, over="texts"), partial(Metric, over="sets")


def _make_accuracy(name: str, what: str, source: str, score: Score, *needs: str) -> Metric:
    return Metric(name, what, source, _hits(score), is_proportion=True, needs=frozenset(needs), has_chance=True)


def _make_loss(name: str, what: str, value: Callable[[FloatArray, FloatArray], float], length: str = "") -> Metric:
    return _text_metric(name, what, HARNESS, _gold_logp, value, higher_is_better=False, length=length)


def _logp(record: ItemRecord) -> FloatArray:
    return _choice_values(record, "logp")


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            _make_accuracy("acc", "the choice with the largest summed log-probability is right", HARNESS, _logp),
            _make_accuracy("acc_norm", "… the largest per character of the choice", HARNESS, _per_length("n_chars")),
            _make_accuracy("acc_bytes", "… the largest per UTF-8 byte of the choice", HARNESS, _per_length("n_bytes")),
            _make_accuracy(
                "acc_token_mean", "… the largest per token", "Brown et al. 2020, section 2.4", _per_length("n_tokens")
            ),
            _make_accuracy(
                "acc_mutual_info",
                "… the largest gain over the log-probability without any context",
                HARNESS,
                _gain_over("logp_unconditional"),
                "unconditional",
            ),
            _make_accuracy(
                "pmi_dc",
                "… the largest gain over the log-probability after the domain's premise",
                "Holtzman et al. 2021, equation 2",
                _gain_over("logp_premise"),
                "premise",
            ),
            _make_accuracy(
                "calibrated",
                "… the largest share of the set over its share after content-free contexts",
                "Zhao et al. 2021, section 5",
                _contextual_scores,
                "content_free",
            ),
            Metric(
                "batch_calibrated",
                "… the largest share of the set over the mean share of its place in all items",
                "Zhou et al. 2024, equation 3",
                _batch_hits,
                is_proportion=True,
                has_chance=True,
                over="equal sets",
            ),
            _set_metric(
                "mc2", "probability of all right choices together, in the set", "Lin et al. 2022", _mass_on_gold
            ),
            _set_metric(
                "brier",
                "squared distance of the probabilities in the set from the right choice",
                "Brier 1950",
                _brier_scores,
                higher_is_better=False,
            ),
            _text_metric("log_likelihood", "log-probability of the right choice, nats", HARNESS, _gold_logp),
            _text_metric(
                "is_greedy", "the right choice is what greedy decoding gives", HARNESS, _greedy_hits, is_proportion=True
            ),
            _make_loss("perplexity", "exponential of the mean loss an item", _exp_of_loss),
            _make_loss("word_perplexity", "… a word, over all texts", _exp_of_loss, "n_words"),
            _make_loss("byte_perplexity", "… a UTF-8 byte, over all texts", _exp_of_loss, "n_bytes"),
            _make_loss("bits_per_byte", "loss in bits a UTF-8 byte, over all texts", _bits_of_loss, "n_bytes"),
        )
    }
)


def find_metrics(names: Iterable[str]) -> tuple[Metric, ...]:
    """Return the metrics with these names, each once.

    Raises `OptionError` for an unknown name.
    """
    result = []
    for name in dict.fromkeys(names):
        metric = METRICS.get(name)
        if metric is None:
            near = difflib.get_close_matches(name, METRICS, n=1)
            raise OptionError(
                "metric", name, f"one of {', '.join(METRICS)}{f' (did you mean {near[0]!r}?)' if near else ''}"
            )
        result.append(metric)
    return tuple(result)


def baseline_needs(metrics: Iterable[Metric]) -> BaselineNeeds:
    """Return the contexts, besides the items' own, that these metrics need."""
    needs = frozenset().union(*(metric.needs for metric in metrics))
    return BaselineNeeds(**{name: name in needs for name in ("unconditional", "premise", "content_free")})
