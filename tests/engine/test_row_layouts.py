"""Layouts move no row further than the stated tolerance, and the self-check tries the layouts that the engine uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from selectrie import BeamSearchParams, Engine, Grammar, SamplingParams, SearchParams, StopParams, Template
from selectrie.backends.llama_cpp import LlamaOptions, open_model
from selectrie.core.rows import DenseRows
from selectrie.core.types import Limits, ModelKind, SelfCheck
from selectrie.engine.precision_check import MARGIN, MARGIN_RARE, MIN_MOVE, self_check
from selectrie.engine.requests.loglikelihood import Sequences
from selectrie.engine.row_layouts import Passage, alone, beside, drawn, drawn_alone, reopened, unit, unpadded
from selectrie.testing import HashModel
from tests.support.llama_twin import SinglePath
from tests.support.measured import measured
from tests.support.real_data import real_file
from tests.support.recording import Recording

# The layouts themselves

LAYOUTS = {
    "beside": beside,
    "reopened": reopened,
    "unit": unit,
    "alone": alone,
    "drawn alone": drawn_alone,
    "drawn together": lambda model, passage: drawn(model, passage, 8),
    "drawn by threes": lambda model, passage: drawn(model, passage, 3),
    "unpadded": unpadded(alone),
}


def limits(kind: str, rows_per_call: int) -> Limits:
    return Limits(nodes=400, sequences=24, rows_per_call=rows_per_call, kind=ModelKind(kind), max_idle_rows=400)


def passage(n: int, length: int) -> Passage:
    tokens = np.random.default_rng(n).integers(0, 20, 40 + 24 + n * length).astype(np.int32)
    foreign, prompt, rest = np.split(tokens, [40, 64])
    return Passage(foreign, prompt, rest.reshape(n, length))


@pytest.mark.parametrize("rows_per_call", [8, 64, 512])
@pytest.mark.parametrize("kind", ["attention", "recurrent", "hybrid"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_rows_of_each_path_alone(name, kind, rows_per_call):
    """On a model whose rows are a function of the path there is no move at all, and nothing stays behind."""
    model = HashModel(1, limits=limits(kind, rows_per_call))
    work = passage(5, 6)
    values = LAYOUTS[name](model, work)
    for path, found in zip(work.paths, values, strict=True):
        if np.isnan(found).all():
            continue
        before = [*work.prompt.tolist(), *path.tolist()]
        rows = DenseRows(np.stack([model.row(before[: len(work.prompt) + i]) for i in range(1, len(path))]))
        np.testing.assert_array_equal(found, rows.logp(np.arange(len(path) - 1), path[1:]))
    assert not np.isnan(values).all()
    assert model.capacity().nodes == model.limits.nodes
    assert model.capacity().sequences == model.limits.sequences


# What the self-check sees


class Faulty(HashModel):
    """Rows of some calls are others: by how many rows the call has, how deep they lie, or what else memory holds."""

    is_hit = staticmethod(lambda model, parents: False)
    kind = "attention"

    def extend(self, *args):
        is_hit = self.is_hit(self, args[0])
        extension = super().extend(*args)
        if not is_hit or not len(extension.rows):
            return extension
        rows = np.stack([extension.rows.logits(i) for i in range(len(extension.rows))])
        return replace(extension, rows=DenseRows(rows * np.float32(1.01)))

    def new_context(self, nodes, *args):
        model = type(self)(1, limits=self.limits)
        model.is_hit = self.is_hit
        return model


def is_step_of_many(model, parents):
    """Several nodes go on by a row each."""
    return 1 < len(parents) <= 8 and (parents >= 0).all() and len(set(parents.tolist())) == len(parents)


def is_run_of_a_text(model, parents):
    """A run begins in an empty memory and is longer than the prompt."""
    return len(parents) > 24 and parents[0] == 0 and (parents[1:] == ~np.arange(len(parents) - 1)).all()


def is_unit(model, parents):
    """A tree that begins in an empty memory."""
    return parents[0] == 0 and not (parents[1:] == ~np.arange(len(parents) - 1)).all()


def has_foreign_cells(model, parents):
    """Two runs below the root are held, and the call is not one of theirs."""
    return len(parents) > 24 and sum(len(path) == 1 for path in model.contexts.values()) > 1


FAULTS = {
    "a row alone": lambda model, parents: len(parents) == 1,
    "rows side by side": is_step_of_many,
    "a run of a whole text": is_run_of_a_text,
    "a unit": is_unit,
    "foreign cells": has_foreign_cells,
    "no padding": lambda model, parents: model.limits.batch_sizes.multiple == 1,
}
NOT_FORKED = {("no padding", "recurrent"), ("a unit", "recurrent")}


@pytest.mark.parametrize(
    ("fault", "kind"),
    # A forking model is never padded, and takes a unit in rounds.
    [(fault, kind) for kind in ("attention", "recurrent") for fault in FAULTS if (fault, kind) not in NOT_FORKED],
)
def test_a_fault_of_one_layout_alone_is_seen(fault, kind):
    """Whatever the layout is whose rows are off by a hundredth, the figure is far above the least."""
    roomy = replace(limits(kind, 512), nodes=1000, sequences=64)
    model = Faulty(1, limits=roomy)
    model.is_hit = FAULTS[fault]
    check = self_check(model)
    assert check.moved > 1000 * MIN_MOVE
    assert check.tolerance / check.moved in (MARGIN, MARGIN_RARE)
    assert self_check(HashModel(1, limits=roomy)).moved == 0


# The engine on weights

PROMPT = "Once upon a time there was a little girl"
TEXTS = (
    " the dog", " the dogs", " a card", " my bank account", " my bank", " called Lily", " who", " named Tom, and he",
)  # fmt: skip
N_TOKENS = 10


def work_in_every_layout(engine: Engine) -> None:
    """Generation of one and of many, selection, healing, scores, a beam, a page, and units of an evaluation."""
    stopping = StopParams(max_tokens=N_TOKENS, ignore_eog=True)
    many = engine.generate(PROMPT, n=24, seed=5, sampling=SamplingParams.UNCHANGED, stopping=stopping)
    for n, seed in ((1, 5), (1, 6), (2, 7), (4, 9)):
        engine.trim()
        engine.generate(PROMPT, n=n, seed=seed, sampling=SamplingParams.UNCHANGED, stopping=stopping)
    engine.trim()
    engine.select(PROMPT, TEXTS, terminator="eog", search=SearchParams(method="exhaustive"))
    engine.generate([PROMPT, "The big dog"], n=3, seed=5, sampling=SamplingParams.UNCHANGED, stopping=stopping)
    engine.select(PROMPT, TEXTS[:2], terminator="eog", search=SearchParams(method="best_first"))
    engine.trim()
    for text in TEXTS[:3]:
        engine.score(PROMPT, text)
    engine.select(PROMPT[:-2], ["rl" + text for text in TEXTS], terminator="eog")
    engine.beam_search(PROMPT, Grammar.from_choices(TEXTS), beam=BeamSearchParams(width=4))
    page = Template(PROMPT + "<<select 'x' options=texts>> and<<gen 'y' max_tokens=4>>.")
    engine.render(page, texts=list(TEXTS))
    prompt = [token for token, _ in engine.tokens(PROMPT, [" a"]).prompt]
    paths = [[token.id for token in completion.tokens] for completion in many[:6]]
    with engine.loglikelihood_scorer(len(prompt) + N_TOKENS + 1) as scorer:
        scorer.loglikelihoods(Sequences.of([(prompt, path) for path in paths]))
        scorer.loglikelihoods(Sequences.of([(prompt, paths[0])]))


def moves_of(path: Path, model) -> np.ndarray:
    """The moves of rows that several layouts have evaluated, plain llama.cpp with one path alone being one of them."""
    recording = Recording(model)
    with Engine(recording, check=measured(path)) as engine:
        work_in_every_layout(engine)
    record, twin = recording.record, SinglePath(path)
    own = record.moves()
    assert len(own) > 50
    for known in list(record.times)[::-1][:150]:
        record.add_logp(known, twin.row(known))
    twin.close()
    return np.concatenate([own, record.moves()])


GENERATED = ["f32", "f16", "q8_0", "sliding-window", "recurrent", "hybrid"]
WEIGHTS = [
    "stories260K",
    "random-swa-gemma3",
    "tiny-rwkv-7v0-834K",
    "random-hybrid-qwen35",
    "random_real_vocab/random-starcoder",
]
OTHERS = [f"random_real_vocab/random-{name}" for name in ("deepseek-coder", "falcon", "gpt-2", "llama-spm", "qwen2")]


def file_of(name: str, embedded, tiny_model) -> Path:
    if name == "embedded":
        return embedded
    if name in GENERATED:
        return tiny_model(name) if name in ("f32", "f16", "q8_0") else tiny_model("f32", shape=name)
    return real_file(f"weights/{name}.gguf")


@pytest.mark.parametrize(
    "name", ["embedded", *GENERATED, *WEIGHTS, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)]
)
def test_no_layout_of_the_engine_moves_a_row_beyond_the_tolerance(embedded, tiny_model, name):
    """Generation, search, pages and evaluation, and plain llama.cpp: within the figure stated on this machine."""
    path = file_of(name, embedded, tiny_model)
    with open_model(path, LlamaOptions(n_threads=1)) as model:
        worst = moves_of(path, model).max()
    assert worst <= measured(path).tolerance


def test_rows_that_jump_once_in_thousands_stay_within_the_tolerance():
    """On random f16 weights a draw of 24 jumps by 6e-4 nats from that of one.

    That is six times the largest move of 512 rows.
    """
    path = real_file("weights/random_real_vocab/random-starcoder.gguf")
    stopping = StopParams(max_tokens=4, ignore_eog=True)
    with Engine(open_model(path, LlamaOptions(n_threads=1)), check=measured(path)) as engine:
        drawn = []
        for n in (24, 1):
            engine.trim()
            generation = engine.generate(
                [1670], n=n, seed=681_098, sampling=SamplingParams.UNCHANGED, stopping=stopping
            )
            drawn.append([(token.id, token.logp) for token in generation[0].tokens])
    beside_others, by_itself = drawn
    moves = [abs(x - y) for (i, x), (j, y) in zip(beside_others, by_itself, strict=True) if i == j]
    assert max(moves) <= measured(path).tolerance


class Shifted:
    """A model in which one layout is off: rows of calls that extend several nodes by one row each."""

    def __init__(self, model, nats: float) -> None:
        self._model, self._nats = model, nats

    def __getattr__(self, name):
        return getattr(self._model, name)

    def extend(self, parents, tokens, wanted, keep):
        extension = self._model.extend(parents, tokens, wanted, keep)
        if len(parents) < 4 or (parents < 0).any() or not len(extension.rows):
            return extension
        rows = np.stack([extension.rows.logits(i) for i in range(len(extension.rows))])
        rows += np.where(np.arange(rows.shape[1]) % 2, self._nats, 0).astype(np.float32)
        return replace(extension, rows=DenseRows(rows))


@pytest.mark.parametrize("name", ["embedded", "f32", "hybrid"])
def test_a_fault_of_ten_times_the_usual_move_is_found(embedded, tiny_model, name):
    """On every build: the law is no wider than the machine needs."""
    path = file_of(name, embedded, tiny_model)
    check = measured(path)
    with open_model(path, LlamaOptions(n_threads=1)) as model:
        moves = moves_of(path, Shifted(model, 10 * max(check.moved, MIN_MOVE)))
    assert moves.max() > check.tolerance


def test_the_share_that_rows_support_is_that_of_the_rule_of_three():
    """No row of n beyond the largest: at 95 %, a share of 0.05 ** (1 / n) of all is not beyond it either."""
    shares = [SelfCheck(8, 0.0, 2e-6, n_rows).support for n_rows in (0, 80, 10_000)]
    assert shares == [0, pytest.approx(0.9632, abs=1e-4), pytest.approx(0.9997, abs=1e-4)]
