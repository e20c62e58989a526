"""Engines on compiled checkpoints: every kind of request, near ties, the number of programs, pools and the command."""

from __future__ import annotations

import json
import random
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

from tests.support.xla_extra import require_packages

require_packages()

from typer.testing import CliRunner

import selectrie
from selectrie import ModelPool, Template
from selectrie.cli import app
from selectrie.core.types import SelfCheck
from selectrie.engine.engine import Engine
from selectrie.engine.pool import memory_needed
from selectrie.engine.requests.loglikelihood import Sequences
from selectrie.grammar import Grammar
from selectrie.options import BeamSearchParams, SamplingParams, StopParams
from tests.support import checkpoints
from tests.support.real_data import real_file
from tests.support.transformers_models import N_TOKENS, make_module
from tests.support.xla_models import opened
from tests.tokenization.test_boundary import random_text

OPTIONS: dict[str, Any] = {"n_ctx": 512, "buckets": (64, 8, 1), "backend": "xla"}
PROMPT = "Once upon a time, there was a little girl named Lily. She loved to"
CHOICES = [" play", " eat", " sing", " run", " play with her dog", " sleep", " pl", " read books"]


@pytest.fixture(scope="module")
def stories():
    return real_file("weights/stories260K-hf")


@pytest.fixture(scope="module")
def llm(stories):
    """stories260K, compiled."""
    with selectrie.load(stories, **OPTIONS) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(stories):
    """The same checkpoint on Transformers."""
    with selectrie.load(stories, n_ctx=512, n_batch=64, n_threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def gguf():
    """The same weights as GGUF."""
    with selectrie.load(real_file("weights/stories260K.gguf"), n_ctx=512, n_threads=1) as engine:
        yield engine


# Every kind of request


def test_tokens_are_those_of_the_gguf_file(llm, plain, gguf):
    """Of a thousand texts that begin a prompt; the other back end's are the same ones."""
    rng = random.Random(3)
    texts = [random_text(rng, rng.choice((3, 20, 80))).encode("utf-8", "replace") for _ in range(1000)]
    for other in (plain, gguf):
        assert [one for one in texts if list(llm.vocabulary.encode(one)) != list(other.vocabulary.encode(one))] == []


def test_scores_are_those_of_the_gguf_file(llm, gguf):
    """Choices with healing and terminators, within a thousandth of a nat; the winner is proved."""
    stories = real_file("text/tinystories_sample.txt").read_text().split(". ")
    for prompt in stories[:4]:
        choices = [" She", " The", " He was happy", " They played with the dog", "\n", " Once upon a time"]
        results = [engine.select(prompt[-200:] + ".", choices) for engine in (llm, gguf)]
        assert results[0].text == results[1].text
        assert results[0].certificate.proved
        assert results[0].signature.backend == "xla"
        logp = [{choice.text: choice.logp for choice in result.ranked} for result in results]
        for text, value in logp[0].items():
            assert abs(value - logp[1][text]) < 1e-3


def test_every_kind_of_request_agrees_with_the_back_end_on_transformers(llm, plain):
    """Choices, a grammar, beams, draws, generated text, a template and log-likelihoods: the same texts, and the same
    log-probabilities within 1e-4 nats."""
    grammar = Grammar.from_regex("( happy| sad| very){1,3}")
    asked = (
        lambda engine: engine.select(PROMPT, CHOICES),
        lambda engine: engine.select(PROMPT, grammar=grammar, terminator="eog"),
        lambda engine: engine.beam_search(PROMPT, grammar, beam=BeamSearchParams(width=4, terminator="eog"))[0],
        lambda engine: engine.score(PROMPT, " play with her toys."),
    )
    for ask in asked:
        one, other = ask(llm), ask(plain)
        assert getattr(one, "text", None) == getattr(other, "text", None)
        assert abs(one.logp - other.logp) < 1e-4
    drawn = [
        [one.text for one in engine.sample(PROMPT, Grammar.from_choices(CHOICES), n=8, seed=1)]
        for engine in (llm, plain)
    ]
    assert drawn[0] == drawn[1]
    greedy = SamplingParams(temperature=0.0)
    texts = [
        engine.generate(PROMPT, n=1, sampling=greedy, stopping=StopParams(max_tokens=24))[0].text
        for engine in (llm, plain)
    ]
    assert texts[0] == texts[1]
    template = Template(
        "Lily saw a<<select 'x' options=[' dog', ' cat', ' bird']>>. The<<select 'y' options=[' dog', ' sun']>> was"
    )
    pages = [engine.render(template) for engine in (llm, plain)]
    assert pages[0].text == pages[1].text
    context = list(llm.vocabulary.encode(PROMPT.encode()))
    sequences = Sequences.of([(context, list(llm.vocabulary.encode(one.encode()))) for one in CHOICES])
    found = []
    for engine in (llm, plain):
        with engine.loglikelihood_scorer(64) as scorer:
            found.append(np.asarray(scorer.loglikelihoods(sequences).logp))
    assert np.abs(found[0] - found[1]).max() < 1e-4


# Near ties, and how many programs there are

SECONDS = {32: 9.0, 4: 2.5, 1: 1.0}


@pytest.fixture(scope="module")
def tying():
    """A model of random weights with a tolerance so large that all choices are near ties; a token is spelt as `<7>`."""
    model = opened(make_module("llama", max_position_embeddings=2048), seconds=SECONDS, n_ctx=1024)
    with Engine(model, check=SelfCheck(batch_multiple=0, moved=100.0, tolerance=400.0, n_rows=100)) as engine:
        yield engine


def spelt(tokens):
    return "".join(f"<{token}>" for token in tokens)


def drawn(rng, n):
    return spelt(rng.randrange(3, N_TOKENS) for _ in range(n))


def test_two_hundred_requests_compile_two_bodies_and_one_head_a_bucket(tying):
    """Selections whose near ties are scored again, generated texts and log-likelihoods, of any length: no program more."""
    rng, n_rescored = random.Random(5), 0
    with tying.loglikelihood_scorer(128) as scorer:
        for number in range(200):
            prompt = drawn(rng, rng.choice((1, 7, 40, 120)))
            if number % 10 == 0:
                tying.generate(prompt, n=2, stopping=StopParams(max_tokens=rng.randrange(1, 12)))
            elif number % 10 == 1:
                tokens = [rng.randrange(3, N_TOKENS) for _ in range(rng.choice((2, 30)))]
                scorer.loglikelihoods(Sequences.of([(tokens, tokens[:5])] * rng.randrange(1, 3)))
            else:
                choices = {drawn(rng, rng.randrange(1, 9)) for _ in range(rng.randrange(2, 6))}
                n_rescored += tying.select(prompt, sorted(choices)).certificate.n_rescored
    bodies, heads = tying._model.n_compiled
    assert n_rescored > 200
    assert len(SECONDS) < bodies <= 2 * len(SECONDS)
    assert heads <= len(SECONDS)


def canonical(engine, prompt, choices):
    """The log-probabilities of choices that were all scored again."""
    result = engine.select(prompt, choices, terminator="none")
    assert result.certificate.n_rescored == len(choices)
    return {choice.text: choice.logp for choice in result.ranked}


def n_changed(engine, lengths=(1, 2, 3, 5, 8)) -> int:
    """How many scores in 8 sets of choices, after each of 6 prompts, have other bits than in an earlier set."""
    rng, changed = random.Random(2), 0
    for _ in range(6):
        prompt = drawn(rng, rng.randrange(1, 70))
        pool = [drawn(rng, n) for n in lengths for _ in range(2)]
        scores: dict[str, float] = {}
        for _ in range(8):
            engine.trim()
            chosen = rng.sample(pool, rng.randrange(2, len(pool)))
            for text, logp in canonical(engine, prompt, chosen).items():
                changed += scores.setdefault(text, logp) != logp
    return changed


def test_a_near_tie_scores_the_same_whatever_others_are_scored_with_it(tying):
    """To the last bit, in sets of 2 to 9 choices of up to 8 tokens in any order, after prompts of up to 69."""
    assert n_changed(tying) == 0


def test_a_near_tie_scores_the_same_beside_a_long_one(tying):
    """One of 300 tokens, which needs a pool of the other length."""
    rng = random.Random(4)
    prompt, short, long = drawn(rng, 20), [drawn(rng, 4) for _ in range(6)], drawn(rng, 300)
    alone = canonical(tying, prompt, short)
    both = canonical(tying, prompt, [*short, long])
    assert {text: both[text] for text in alone} == alone


# Pools, memory, the command


def test_a_pool_holds_compiled_checkpoints_beside_gguf_files(tmp_path, tiny_model):
    """Under one budget; which back end opens which is said by name."""
    folder = checkpoints.write(tmp_path / "m")
    sources = {"compiled": folder, "gguf": tiny_model("f32")}
    with ModelPool(sources, backend={"compiled": "xla"}, n_ctx=64, budget_bytes=2 << 30) as models:
        for name, backend in (("compiled", "xla"), ("gguf", "llama.cpp")):
            with models.use(name) as engine:
                assert engine.identity.backend == backend
                assert engine.select("the", [" cat", " dog"]).text in (" cat", " dog")
        needed = memory_needed(folder, "xla", {"n_ctx": 64})
        assert models["compiled"].memory_bytes == needed
        assert models.used_bytes == needed + models["gguf"].memory_bytes


def test_an_evaluation_states_the_packages_of_the_back_end(stories, tmp_path):
    """By the command, on the compiled checkpoint; the folder of the run names jax and torchax."""
    data = tmp_path / "d.jsonl"
    rows = [{"id": f"x-{i}", "context": PROMPT, "choices": ["play", "eat"], "gold": i} for i in range(2)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = tmp_path / "run"
    typed = ["eval", str(data), "-m", str(stories), "--backend", "xla", "--n-ctx", "64", "--out", str(run)]
    result = CliRunner().invoke(app, typed)
    assert result.exit_code == 0, result.output
    said = "".join(path.read_text() for path in run.iterdir() if path.suffix in (".json", ".jsonl"))
    for name in ("jax", "torchax", "torch", "transformers"):
        assert f'"{name}": "{version(name)}"' in said


def test_the_command_selects_on_a_compiled_checkpoint(stories, llm):
    """By `--backend xla`; the same winner as the engine's, and one clear error for options that it does not have."""
    choices = [word for choice in CHOICES for word in ("-c", choice)]
    typed = ["select", "--backend", "xla", "-m", str(stories), "--n-ctx", "64", "-p", PROMPT, *choices]
    result = CliRunner().invoke(app, [*typed, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["signature"]["backend"], found["text"]) == ("xla", llm.select(PROMPT, CHOICES).text)
    result = CliRunner().invoke(app, [*typed, "--threads", "1"])
    assert result.exit_code == 2
    assert "--threads is not an option of the back end xla, which has --n-ctx" in result.output
