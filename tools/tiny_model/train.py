"""Train the embedded model on the tokenised corpus; start it again after an interruption and it goes on.

The order of the data is a function of the seed and the step, and nothing is drawn otherwise, so that a run which was interrupted
gives the same weights as one which was not. The same seed, number of threads and build of PyTorch give the same bytes.
Hidden matrices are trained with Muon (Jordan et al. 2024), the rest with AdamW.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tiny_model.config import Config
from tiny_model.corpus import COURSES
from tiny_model.files import CHECKPOINT, inputs_digest, starts_file, tokens_file
from tiny_model.model import Llama, causal


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps on rows of one length. isolated: no document sees those before it in its row, which it has nothing to do with."""

    steps: int
    rows: int
    length: int
    isolated: bool


@dataclass(frozen=True, slots=True)
class Fall:
    """A straight line of the learning rate from step `at` on, which would reach 0 at step `zero` and holds until the next one begins.

    level: where it begins; None: where the rate is.
    """

    at: int
    zero: int
    level: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How the training goes. Learning rates rise for `warmup` steps, stay, and go along `falls`."""

    stages: tuple[Stage, ...] = (
        Stage(6000, 16, 256, isolated=True),
        Stage(300, 4, 1024, isolated=False),  # the far end of the context has been seen, too
    )
    most_tokens: tuple[int | None, ...] = (None, 2_664_733, 4_934_400, None)  # of each course; None: all of it
    seed: int = 1
    n_threads: int = 2
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    weight_decay: float = 0.02
    warmup: int = 60
    falls: tuple[Fall, ...] = (Fall(1520, 3800), Fall(2300, 4600), Fall(3000, 5000), Fall(4000, 6300, level=0.4))
    save_every: int = 100

    @property
    def steps(self) -> int:
        """All steps."""
        return sum(stage.steps for stage in self.stages)

    def rate(self, step: int) -> float:
        """Factor of the learning rates at a step."""
        factor = 1.0
        ends = [*(fall.at for fall in self.falls[1:]), self.steps]
        for fall, end in zip(self.falls, ends, strict=True):
            if step > fall.at:
                factor = (factor if fall.level is None else fall.level) * (
                    (fall.zero - min(step, end)) / (fall.zero - fall.at)
                )
        return min(1.0, (step + 1) / self.warmup, factor)


class Batches:
    """Rows cut from the documents of one course after the other, put end to end in an order drawn from the plan's seed and the
    course's number. After the last course comes the first again.

    courses: (tokens, starts) of each, as `tokenizer.encode` gives them.
    """

    def __init__(self, courses: Sequence[tuple[NDArray[np.uint16], NDArray[np.int64]]], plan: Plan) -> None:
        self._courses, self._plan = courses, plan
        self._begin = int(courses[0][0][0])
        self._turn, self._first, self._stream = -1, 0, courses[0][0][:0]

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """For each step of the plan int64 [rows, length + 1], inputs and, one to the right, targets; and the mask."""
        position = 0
        for stage in self._plan.stages:
            for _ in range(stage.steps):
                n = stage.rows * (stage.length + 1)
                batch = torch.from_numpy(self._at(position, n).astype(np.int64).reshape(stage.rows, stage.length + 1))
                position += n
                yield batch, causal(batch[:, :-1], self._begin if stage.isolated else None)

    def _at(self, position: int, n: int) -> NDArray[np.uint16]:
        """Tokens of the endless stream, n of them. Positions only grow from call to call."""
        pieces = []
        while n:
            while position >= self._first + len(self._stream):
                self._first += len(self._stream)
                self._turn += 1
                self._stream = self._shuffled(self._turn)
            offset = position - self._first
            pieces.append(self._stream[offset : offset + n])
            position, n = position + len(pieces[-1]), n - len(pieces[-1])
        return np.concatenate(pieces)

    def _shuffled(self, turn: int) -> NDArray[np.uint16]:
        course = turn % len(self._courses)
        tokens, starts = self._courses[course]
        order = np.random.default_rng([self._plan.seed, turn]).permutation(len(starts) - 1)
        return np.concatenate([tokens[starts[i] : starts[i + 1]] for i in order])[: self._plan.most_tokens[course]]


class Training:
    """Model, optimisers and the step they are at."""

    def __init__(self, plan: Plan, config: Config) -> None:
        torch.manual_seed(plan.seed)
        self.plan, self.step = plan, 0
        self.model = Llama(config)
        hidden = [p for p in self.model.blocks.parameters() if p.ndim == 2]
        rest = [p for p in self.model.parameters() if p.ndim == 1] + [self.model.embedding.weight]
        self._optimisers: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.Muon(hidden, lr=plan.muon_rate, weight_decay=plan.weight_decay), plan.muon_rate),
            (
                torch.optim.AdamW(rest, lr=plan.adam_rate, betas=(0.9, 0.97), weight_decay=0.0, fused=True),
                plan.adam_rate,
            ),
        ]

    def advance(self, batch: torch.Tensor, mask: torch.Tensor) -> float:
        """One step; the loss in nats a token before it."""
        factor = self.plan.rate(self.step)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = self.model.loss(batch[:, :-1], batch[:, 1:], mask)
        loss.backward()
        for optimiser, rate in self._optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
            optimiser.step()
        self.model.zero_grad()
        self.step += 1
        return loss.item()

    def save(self, path: Path) -> None:
        """Write everything a later run needs, all or nothing."""
        state = {
            "inputs": inputs_digest(),
            "plan": repr(self.plan),
            "config": repr(self.model.config),
            "step": self.step,
            "model": self.model.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser, _ in self._optimisers],
        }
        torch.save(state, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)

    def resume(self, path: Path) -> None:
        """Go on where `save` left off; a checkpoint of another plan is refused."""
        state = torch.load(path)
        own = {"inputs": inputs_digest(), "plan": repr(self.plan), "config": repr(self.model.config)}
        for what, value in own.items():
            if state[what] != value:
                raise ValueError(f"{path}: {what} was {state[what]}, is {value}; delete the file to start anew")
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        for (optimiser, _), saved in zip(self._optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)


def train(plan: Plan, config: Config, checkpoint: Path) -> Training:
    """Run the plan to its end, from the checkpoint where there is one."""
    torch.set_num_threads(plan.n_threads)
    torch.use_deterministic_algorithms(mode=True)
    training = Training(plan, config)
    if checkpoint.exists():
        training.resume(checkpoint)
    courses = [(np.load(tokens_file(i)), np.load(starts_file(i))) for i in range(len(COURSES))]
    before = training.step
    began, losses = time.monotonic(), []
    for step, (batch, mask) in enumerate(Batches(courses, plan)):
        if step < before:
            continue
        losses.append(training.advance(batch, mask))
        if training.step % plan.save_every == 0 or training.step == plan.steps:
            training.save(checkpoint)
            seconds = (time.monotonic() - began) / (training.step - before)
            print(
                f"step {training.step:,} of {plan.steps:,}: {np.mean(losses):.4f} nats a token, {seconds:.2f} s a step",
                flush=True,
            )
            losses.clear()
    return training


def main() -> None:
    """Entry point of the script."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    train(Plan(), Config(), CHECKPOINT)


if __name__ == "__main__":
    main()
