"""Calibrations correct for options that a model prefers whatever the state says."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from selectrie.core.vocabulary import to_bytes
from selectrie.errors import InputFileError, OptionError

N_SAMPLED = 64
"""Maximum number of states to which a calibration is fitted."""
N_LEAST = 16
"""Minimum number of states: no calibration is fitted to fewer."""
_N_UNIFORM = 16
"""Weight of the uniform distribution in a mean, as a number of states."""


@dataclass(frozen=True, slots=True)
class QuestionCalibration:
    """A calibration of one question.

    Attributes:
        bound: The conditions of the fit, as JSON data: model, precision, question,
            template, layout, rule and so on. The calibration applies only to a question
            with equal conditions.
        n: Number of states to which the calibration was fitted.
        log_means: Natural log of the mean probability of each option over the states,
            in the caller's order; -inf if the mean is 0.
    """

    bound: Mapping[str, object]
    n: int
    log_means: tuple[float, ...]

    def weights(self, prior: Sequence[float] | None) -> tuple[float, ...]:
        """Return the weight of each option: its prior divided by its mean probability.

        Each mean is smoothed as if 16 more states had given all options the same
        probability. Without a prior, all options have prior 1.
        """
        k = len(self.log_means)
        means = [(self.n * math.exp(one) + _N_UNIFORM / k) / (self.n + _N_UNIFORM) for one in self.log_means]
        return tuple(weight / mean for weight, mean in zip(prior or [1.0] * k, means, strict=True))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Calibrations of several questions, fitted by `Engine.fit_calibration`.

    Attributes:
        questions: The calibration of each calibrated question.
        is_default: Whether a question without a matching calibration is asked
            uncalibrated, as on a server. If False, it is an error.
    """

    questions: tuple[QuestionCalibration, ...]
    is_default: bool = False

    def holds_for(self, bound: Mapping[str, object]) -> bool:
        """Return whether a question with the conditions `bound` has a calibration."""
        return any(one.bound == bound for one in self.questions)

    def of(self, bound: Mapping[str, object]) -> QuestionCalibration:
        """Return the calibration of the question with the conditions `bound`.

        Raises `OptionError` if there is none; the error names the first difference.
        """
        same = [one for one in self.questions if one.bound["question"] == bound["question"]]
        found = next((one for one in same if one.bound == bound), None)
        if found is not None:
            return found
        if not same:
            raise OptionError("calibration", "fitted", "one of this question, with the same options in their order")
        names = [*bound, *same[0].bound]
        name = next(name for name in names if same[0].bound.get(name) != bound.get(name))
        was, now = same[0].bound.get(name), bound.get(name)
        raise OptionError("calibration", "fitted", f"one of the same {name}: it has {was!r}, now it is {now!r}")

    @property
    def digest(self) -> str:
        """Return the first 16 hexadecimal digits of the SHA-256 of `to_dict`."""
        return sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, object]:
        """Return the calibration as JSON data, which `from_dict` reads."""
        return {
            "kind": "calibration",
            "questions": [
                {
                    "bound": dict(one.bound),
                    "n": one.n,
                    "log_means": [mean if math.isfinite(mean) else None for mean in one.log_means],
                }
                for one in self.questions
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibration:
        """Return the calibration of `to_dict` data; raise `OptionError` otherwise."""
        try:
            return cls(
                tuple(
                    QuestionCalibration(
                        dict(one["bound"]),
                        _count(one["n"]),
                        tuple(
                            _log_mean(mean)
                            for _, mean in zip(one["bound"]["question"][2:], one["log_means"], strict=True)
                        ),
                    )
                    for one in data["questions"]
                )
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise OptionError("calibration", data, "what `Calibration.to_dict` returned") from error

    def save(self, path: str | Path) -> None:
        """Write the calibration to a JSON file."""
        Path(path).write_text(json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a calibration from a file written by `save`, or from a run's `run.json`.

        Raises `InputFileError` if the file cannot be read or has no calibration.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls.from_dict(data.get("signature", {}).get("calibration", data))
        except OSError as error:
            raise InputFileError(str(path), error.strerror or str(error)) from error
        except (ValueError, AttributeError, OptionError) as error:
            raise InputFileError(str(path), "holds no calibration") from error


def _count(n: object) -> int:
    """Return a number of states; raise `ValueError` unless it is an int above 0."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(n)
    return n


def _log_mean(value: object) -> float:
    """Return the log of a mean: -inf for None; raise `ValueError` if not a log."""
    if value is None:
        return -math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value <= 1e-9:
        raise ValueError(value)
    return float(value)


def question_calibration(bound: Mapping[str, object], samples: Sequence[Sequence[float]]) -> QuestionCalibration:
    """Fit the calibration of a question to its answers about several states.

    Args:
        bound: The conditions under which the question was asked.
        samples: For each state, the probability of each option in the caller's order.
    """
    means = [math.fsum(column) / len(samples) for column in zip(*samples, strict=True)]
    return QuestionCalibration(bound, len(samples), tuple(math.log(mean) if mean else -math.inf for mean in means))


def sample_of(texts: Iterable[str]) -> list[str]:
    """Return the 64 distinct texts with the smallest SHA-256, or all if fewer.

    The sample depends neither on the order of the texts nor on repetitions.
    """
    kept: dict[bytes, str] = {}
    for text in texts:
        kept[sha256(to_bytes(text, "state")).digest()] = text
        if len(kept) == 2 * N_SAMPLED:
            kept = dict(sorted(kept.items())[:N_SAMPLED])
    return [text for _, text in sorted(kept.items())[:N_SAMPLED]]
