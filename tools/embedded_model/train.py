"""Train the embedded model on the tokenised corpus; an interrupted run continues when
it is started again.

The order of the data is a function of the seed and the step, and nothing else is drawn,
so an interrupted run gives the same weights as one without interruption. The same seed,
number of threads and build of PyTorch give the same bytes. Hidden matrices are trained
with Muon (Jordan et al. 2024), the rest with AdamW.

The last courses are a training by themselves: it starts from the exported file of
the courses before them, with weights rounded to f16 and new optimisers. `--last` does
only this, from the file that `tokenizer --start` was given.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from embedded_model.config import Config
from embedded_model.export import export, weights_of
from embedded_model.files import CHECKPOINT, EARLIER, LAST_CHECKPOINT, TOKENIZER, inputs_digest, token_files
from embedded_model.model import Llama, causal


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps on rows of one length, cut from the documents of a course.

    course: its number. level: the factor of the learning rates at which it begins, to change to `end` in a straight line;
    None: as the plan says. answer_weight: how much more a token of an answer counts than another.
    """

    course: int
    steps: int
    rows: int
    length: int
    level: float | None = None
    end: float = 0.0
    answer_weight: float = 3.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How the training goes.

    Learning rates rise for `warmup` steps, stay, and fall in a straight line from step
    `fall_at` on to 0 at the end of the stages that do not set a level, which come
    first. n_threads: of each operation. n_parts: of a batch, each in a thread; where
    other programs take the cores, this wastes less than threads in each operation.
    is_continued: whether it starts from the model at `EARLIER`, and not from weights
    drawn at random.
    """

    stages: tuple[Stage, ...]
    seed: int = 1
    n_threads: int = 2
    n_parts: int = 1
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    weight_decay: float = 0.02
    warmup: int = 60
    fall_at: int = 2400
    save_every: int = 50
    is_continued: bool = False

    @property
    def inputs(self) -> str:
        """Return the digest of what the training reads."""
        return inputs_digest({stage.course for stage in self.stages}, EARLIER if self.is_continued else None)

    @property
    def steps(self) -> int:
        """Return the number of all steps."""
        return sum(stage.steps for stage in self.stages)

    def rate(self, step: int) -> float:
        """Return the factor of the learning rates at a step."""
        end = sum(stage.steps for stage in self.stages if stage.level is None)
        if step < end:
            return min(1.0, (step + 1) / self.warmup, (end - step) / (end - self.fall_at))
        for stage in self.stages:
            if stage.level is not None and step < end + stage.steps:
                left = (end + stage.steps - step) / stage.steps
                return min((step + 1) / self.warmup, stage.end + (stage.level - stage.end) * left)
            end += 0 if stage.level is None else stage.steps
        return 0.0


FIRST = Plan((Stage(0, 5800, 16, 256), Stage(1, 300, 4, 1024), Stage(2, 500, 16, 256, level=0.25)))
# Put together as the training went on, with looks at what had been learned. What is written is what was run, but for the
# rates of stage 6, which were those of 300 steps down to 0, of which 70 were done: their last bit may differ.
LAST = Plan(
    (
        Stage(3, 700, 8, 512, level=0.5, answer_weight=16.0),
        Stage(4, 100, 8, 512, level=0.4, end=0.4, answer_weight=300.0),
        Stage(5, 180, 8, 512, level=0.4, end=0.4, answer_weight=300.0),
        Stage(6, 70, 8, 512, level=0.4, end=0.4 * 230 / 300, answer_weight=40.0),
        Stage(7, 170, 8, 512, level=0.4, end=0.3, answer_weight=300.0),
        Stage(7, 70, 8, 512, level=0.3, end=0.3, answer_weight=300.0),
        Stage(8, 90, 8, 512, level=0.3, answer_weight=16.0),
        Stage(9, 400, 8, 512, level=0.4, answer_weight=6.0),
        Stage(10, 200, 8, 512, level=0.3, answer_weight=6.0),
        Stage(11, 240, 8, 512, level=0.3, answer_weight=6.0),
    ),
    seed=2,
    n_threads=1,
    n_parts=2,
    is_continued=True,
)


@dataclass(frozen=True, slots=True)
class Course:
    """What a stage reads: tokens, which of them belong to answers, and where documents begin, as `tokenizer.encode` gives them."""

    tokens: NDArray[np.uint16]
    answered: NDArray[np.bool_]
    starts: NDArray[np.int64]

    def shuffled(self, seed: int, turn: int) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
        """Return the documents in an order drawn from the seed and the turn."""
        order = np.random.default_rng([seed, turn]).permutation(len(self.starts) - 1)
        at = np.concatenate([np.arange(self.starts[i], self.starts[i + 1]) for i in order])
        return self.tokens[at], self.answered[at]


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's reading. tokens: int64 [rows, length + 1], of which the last ones are only targets; weights: float32
    [rows, length] of the targets; mask: who attends to whom, no document to those before it in its row.
    """

    tokens: torch.Tensor
    weights: torch.Tensor
    mask: torch.Tensor

    def parts(self, n: int) -> list[Batch]:
        """Return the rows in n parts."""
        columns = (self.tokens.chunk(n), self.weights.chunk(n), self.mask.chunk(n))
        return [Batch(*part) for part in zip(*columns, strict=True)]


def batches(courses: Sequence[Course], plan: Plan) -> Iterator[Batch]:
    """Yield one for each step of the plan: rows cut from the documents of a course.

    The documents are put end to end, and again in another order.
    """
    for stage, course in zip(plan.stages, courses, strict=True):
        begin = int(course.tokens[0])
        shape, turn = (stage.rows, stage.length + 1), 0
        tokens, answered = course.shuffled(plan.seed, turn)
        for _ in range(stage.steps):
            while len(tokens) < shape[0] * shape[1]:
                turn += 1
                more, marks = course.shuffled(plan.seed, turn)
                tokens, answered = np.concatenate([tokens, more]), np.concatenate([answered, marks])
            (now, tokens), (marks, answered) = (np.split(array, [shape[0] * shape[1]]) for array in (tokens, answered))
            rows = torch.from_numpy(now.astype(np.int64).reshape(shape))
            weights = np.where(marks.reshape(shape)[:, 1:], np.float32(stage.answer_weight), np.float32(1))
            yield Batch(rows, torch.from_numpy(weights), causal(rows[:, :-1], begin))


class Training:
    """Model, optimisers and the step they are at."""

    def __init__(self, plan: Plan, config: Config) -> None:
        torch.manual_seed(plan.seed)
        self.plan, self.step = plan, 0
        self._pool = ThreadPoolExecutor(plan.n_parts, initializer=torch.set_num_threads, initargs=(plan.n_threads,))
        self.model = Llama(config)
        if plan.is_continued:
            weights = weights_of(EARLIER, config)
            self.model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
        hidden = [p for p in self.model.blocks.parameters() if p.ndim == 2]
        rest = [p for p in self.model.parameters() if p.ndim == 1] + [self.model.embedding.weight]
        self._optimisers: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.Muon(hidden, lr=plan.muon_rate, weight_decay=plan.weight_decay), plan.muon_rate),
            (
                torch.optim.AdamW(rest, lr=plan.adam_rate, betas=(0.9, 0.97), weight_decay=0.0, fused=True),
                plan.adam_rate,
            ),
        ]

    def advance(self, batch: Batch) -> float:
        """Do one step; return the weighted loss before it, in nats a token."""
        factor = self.plan.rate(self.step)
        loss, gradients = self.gradients(batch)
        for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        for optimiser, rate in self._optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
            optimiser.step()
        self.step += 1
        return loss

    def gradients(self, batch: Batch) -> tuple[float, list[torch.Tensor]]:
        """Return the weighted loss and its gradients, as sums over the parts of the batch."""
        total = batch.weights.sum()
        parts = list(self._pool.map(lambda part: self._of_part(part, total), batch.parts(self.plan.n_parts)))
        columns = zip(*(gradients for _, gradients in parts), strict=True)
        return sum(loss for loss, _ in parts), [sum(column[1:], start=column[0]) for column in columns]

    def _of_part(self, part: Batch, total: torch.Tensor) -> tuple[float, Sequence[torch.Tensor]]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = self.model.loss(part.tokens[:, :-1], part.tokens[:, 1:], part.weights, part.mask)
        loss = loss * (part.weights.sum() / total)
        return loss.item(), torch.autograd.grad(loss, list(self.model.parameters()))

    def save(self, path: Path) -> None:
        """Write everything a later run needs, all or nothing."""
        state = {
            "inputs": self.plan.inputs,
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
        own = {"inputs": self.plan.inputs, "plan": repr(self.plan), "config": repr(self.model.config)}
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
    courses = [Course(*map(np.load, token_files(stage.course))) for stage in plan.stages]
    before = training.step
    began, losses = time.monotonic(), []
    for step, batch in enumerate(batches(courses, plan)):
        if step < before:
            continue
        losses.append(training.advance(batch))
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
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--last", action="store_true", help="only the last courses")
    if not parser.parse_args().last:
        model = train(FIRST, Config(), CHECKPOINT).model
        weights = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
        export(EARLIER, weights, model.config, TOKENIZER, "f16")
    train(LAST, Config(), LAST_CHECKPOINT)


if __name__ == "__main__":
    main()
