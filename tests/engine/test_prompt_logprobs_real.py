"""Log-probabilities of prompts on real weights: those of plain llama.cpp calls on each prompt alone."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.engine.engine import Engine
from selectrie.options import PromptParams
from tests.support.llama_twin import SinglePath
from tests.support.measured import measured, row_nats

KINDS = ("stories260K", "random-swa-gemma3", "tiny-rwkv-7v0-834K", "random-hybrid-qwen35")
STORY = "Once upon a time there was a little girl who came from"


@pytest.fixture(scope="module", params=KINDS)
def file(request, weights):
    return weights(f"{request.param}.gguf")


@pytest.fixture(scope="module")
def engine(file):
    """With room for 300 tokens and 64 rows a call, so that prompts take several."""
    model = open_model(file, LlamaOptions(n_ctx=300, n_batch=64, n_threads=1))
    with Engine(model, check=measured(file)) as engine:
        yield engine


@pytest.fixture(scope="module")
def twin(file):
    twin = SinglePath(file, n_ctx=256)
    yield twin
    twin.close()


def prompts_of(engine):
    """A story and its beginning, and random ids: two that share 70 tokens, one that begins elsewhere."""
    rng = np.random.default_rng(3)
    size = len(engine.vocabulary.pieces)
    shared = rng.integers(0, size, 70).tolist()
    ends = [rng.integers(0, size, n).tolist() for n in (9, 30, 1)]
    return [STORY, STORY[:20], *[shared + end for end in ends], rng.integers(0, size, 25).tolist()]


def check(engine, twin, file, prompts, results):
    """Every value against the twin's, within what the signature says of one row."""
    tolerance, n_values = measured(file).tolerance, 0
    for prompt, result in zip(prompts, results, strict=True):
        if not isinstance(prompt, str):
            assert list(result.tokens) == prompt
        assert result.tolerance == tolerance
        for i, logp in enumerate(result.logp):
            if logp is None:
                continue
            row = twin.row(result.tokens[:i])
            assert abs(logp - row[result.tokens[i]]) <= tolerance
            assert np.abs(np.array(result.named[i]) - row[list(result.named_ids)]).max() <= tolerance
            best = np.sort(row)[::-1][: len(result.top[i])]
            assert np.abs(np.array([one for _, one in result.top[i]]) - best).max() <= row_nats(file)
            assert dict(result.top[i]).get(result.tokens[i], logp) == logp
            assert result.is_greedy[i] == (result.top[i][0][0] == result.tokens[i])
            n_values += 1
    return n_values


@pytest.mark.short("stories260K", "*hybrid*")
def test_values_are_those_of_each_prompt_alone(engine, twin, file):
    """On each kind of memory, together and on their own, with and without what is cached."""
    prompts = prompts_of(engine)
    named = [3, 7, len(engine.vocabulary.pieces) - 1]
    results = engine.prompt_logprobs(prompts, top=4, named=named)
    assert check(engine, twin, file, prompts, results) == sum(len(one) - 1 for one in results)
    later = engine.prompt_logprobs(prompts[2:], top=4, named=named, first=60)
    assert [one.n_rows for one in later] == [19, 40, 11, 0]
    check(engine, twin, file, prompts[2:], later)
    engine.trim()
    one_by_one = [engine.prompt_logprobs([prompt], top=4, named=named)[0] for prompt in prompts]
    check(engine, twin, file, prompts, one_by_one)


def test_shared_prefixes_take_one_row(engine):
    """As many rows as there are distinct prefixes with a token behind them, on each kind of memory."""
    prompts = [prompt for prompt in prompts_of(engine) if not isinstance(prompt, str)]
    needed = {tuple(prompt[:i]) for prompt in prompts for i in range(1, len(prompt))}
    engine.trim()
    results = engine.prompt_logprobs(prompts)
    assert sum(result.cost.rows for result in results) == len(needed)
    assert sum(result.cost.rows_repeated for result in results) == 0


@pytest.mark.short("*hybrid*")
def test_calls_at_the_same_time_agree(engine, twin, file):
    """From as many threads as there are prompts, beside a generation."""
    prompts = prompts_of(engine)
    found = [None] * len(prompts)

    def ask(i):
        found[i] = engine.prompt_logprobs([prompts[i]], top=3, named=[5])[0]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    engine.generate(STORY, seed=1)
    for thread in threads:
        thread.join()
    check(engine, twin, file, prompts, found)


def test_text_has_the_models_own_bos(engine):
    """Where the model adds one and `add_bos` does not say otherwise; ids have none."""
    vocabulary = engine.vocabulary
    with_bos, without = (
        engine.prompt_logprobs([STORY], prompting=PromptParams(add_bos=add_bos))[0].tokens for add_bos in (True, False)
    )
    assert list(without) == vocabulary.tokenize(STORY.encode())
    assert with_bos == (() if vocabulary.bos is None else (vocabulary.bos,)) + without
    assert engine.prompt_logprobs([list(without)])[0].tokens == without
