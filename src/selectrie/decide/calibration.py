"""Calibrations, which say what a model expects of the options of a question."""

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
"""Number of states to which a calibration is fitted."""
N_LEAST = 16
"""Number of states below which none is fitted."""
_N_UNIFORM = 16
"""Number of states as which equal probabilities count in a mean."""


@dataclass(frozen=True, slots=True)
class QuestionCalibration:
    """The calibration of one question.

    Attributes:
        bound: What it was fitted under: model, precision, question, template, layout,
            rule and the like. It holds for nothing else.
        n: Number of states.
        log_means: Log of the mean probability of each option over the states, in the
            caller's order; -inf for one that never had any.
    """

    bound: Mapping[str, object]
    n: int
    log_means: tuple[float, ...]

    def weights(self, prior: Sequence[float] | None) -> tuple[float, ...]:
        """Return the weight of each option: the prior's, divided by the mean.

        The mean is shrunk towards equal probabilities, as if 16 more states had these.
        """
        k = len(self.log_means)
        means = [(self.n * math.exp(one) + _N_UNIFORM / k) / (self.n + _N_UNIFORM) for one in self.log_means]
        return tuple(weight / mean for weight, mean in zip(prior or [1.0] * k, means, strict=True))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Calibrations of some questions, from `Engine.fit_calibration` or a run's folder.

    Attributes:
        questions: One for each question that was calibrated.
        is_default: Whether a question that it does not hold for is asked plainly, as by
            a server; else that is an error.
    """

    questions: tuple[QuestionCalibration, ...]
    is_default: bool = False

    def holds_for(self, bound: Mapping[str, object]) -> bool:
        """Return whether a question asked in this way has a calibration."""
        return any(one.bound == bound for one in self.questions)

    def of(self, bound: Mapping[str, object]) -> QuestionCalibration:
        """Return the calibration of a question asked in this way.

        Raises `OptionError` if there is none, with what differs first.
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
        """Return its digest, in hexadecimal."""
        return sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, object]:
        """Return it as data of JSON, from which `from_dict` makes it again."""
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
        """Return what `to_dict` wrote; raise `OptionError` for anything else."""
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
        """Write it to a file of JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a file that `save` wrote, or the `run.json` of a run over a table.

        Raises `InputFileError` if the file holds no calibration.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls.from_dict(data.get("signature", {}).get("calibration", data))
        except OSError as error:
            raise InputFileError(str(path), error.strerror or str(error)) from error
        except (ValueError, AttributeError, OptionError) as error:
            raise InputFileError(str(path), "holds no calibration") from error


def _count(n: object) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(n)
    return n


def _log_mean(value: object) -> float:
    if value is None:
        return -math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value <= 1e-9:
        raise ValueError(value)
    return float(value)


def question_calibration(bound: Mapping[str, object], samples: Sequence[Sequence[float]]) -> QuestionCalibration:
    """Return the calibration of a question.

    Args:
        bound: What the samples depend on.
        samples: The probabilities of the options about each state.
    """
    means = [math.fsum(column) / len(samples) for column in zip(*samples, strict=True)]
    return QuestionCalibration(bound, len(samples), tuple(math.log(mean) if mean else -math.inf for mean in means))


def sample_of(texts: Iterable[str]) -> list[str]:
    """Return the 64 distinct texts of smallest SHA-256, or all if there are fewer.

    They depend neither on the order of the texts nor on how often each occurs.
    """
    kept: dict[bytes, str] = {}
    for text in texts:
        kept[sha256(to_bytes(text, "state")).digest()] = text
        if len(kept) == 2 * N_SAMPLED:
            kept = dict(sorted(kept.items())[:N_SAMPLED])
    return [text for _, text in sorted(kept.items())[:N_SAMPLED]]
