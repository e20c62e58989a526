"""Engines on Transformers checkpoints: every kind of request against the model's own forward, and against llama.cpp."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from typer.testing import CliRunner

import selectrie
from selectrie import ModelPool, Template
from selectrie.cli import app
from selectrie.engine.pool import memory_needed
from selectrie.engine.requests.loglikelihood import Sequences
from selectrie.errors import MemoryBudgetError, MissingExtraError, UnknownOptionError
from selectrie.grammar import Grammar
from selectrie.options import BeamSearchParams, PromptParams, SamplingParams, StopParams
from tests.engine.test_hub import served
from tests.support import checkpoints
from tests.support.real_data import real_file
from tests.tokenization.test_boundary import random_text

ROOT = Path(__file__).resolve().parents[2]
OPTIONS: dict[str, Any] = {"n_ctx": 256, "n_batch": 64, "n_threads": 1}
PROMPT, CHOICES = "The cat and the dogs", [" the", " of the", " answer", " there", " answers", " the of the"]
SPLIT = PromptParams(boundary="split")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A Llama of random weights that tells choices apart."""
    return checkpoints.write(tmp_path_factory.mktemp("checkpoint") / "llama")


class Oracle:
    """A checkpoint's own forward and its own tokenizer, called by nothing of ours."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text).input_ids)

    def logp(self, ids: list[int]) -> np.ndarray:
        """The log-probability of each token after the first, float64[n - 1]."""
        with torch.no_grad():
            rows = torch.log_softmax(self.module(input_ids=torch.tensor([ids])).logits[0].double(), -1)
        return rows[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].numpy()

    def joint(self, prompt: str, text: str) -> float:
        """The log-probability of a text after a prompt, whose tokens do not depend on it."""
        before, whole = self.ids(prompt), self.ids(prompt + text)
        assert whole[: len(before)] == before
        return float(self.logp(whole)[len(before) - 1 :].sum())

    def greedy(self, prompt: str, n_tokens: int) -> list[int]:
        ids = self.ids(prompt)
        for _ in range(n_tokens):
            with torch.no_grad():
                ids.append(int(self.module(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        return ids[-n_tokens:]


@pytest.fixture(scope="module")
def oracle(folder) -> Oracle:
    return Oracle(folder)


@pytest.fixture(scope="module")
def llm(folder):
    with selectrie.load(folder, **OPTIONS) as engine:
        yield engine


def test_choices_are_scored_as_by_the_model_s_own_forward(llm, oracle):
    """The sum of the tokens' log-probabilities, tokens by the tokenizer itself, within the stated tolerance."""
    result = llm.select(PROMPT, CHOICES, terminator="none", prompting=SPLIT)
    expected = [oracle.joint(PROMPT, choice) for choice in CHOICES]
    scored = {choice.index: choice.logp for choice in result.ranked}
    differences = [abs(scored[i] - logp) for i, logp in enumerate(expected)]
    assert max(differences) <= 6 * result.signature.tolerance  # a choice has at most six tokens
    assert result.index == int(np.argmax(expected))
    assert result.signature.backend == "transformers"
    assert result.signature.tolerance < 1e-3


def test_a_text_s_score_is_that_of_its_tokens(llm, oracle):
    """Token by token."""
    score = llm.score(PROMPT, " the answer of the cat", prompting=SPLIT)
    assert abs(score.logp - oracle.joint(PROMPT, " the answer of the cat")) < 1e-4


def test_grammars_beams_and_samples_agree_with_the_choices(llm, oracle):
    """The texts of a list as a grammar are the choices; the exact beam finds the best; draws are among them."""
    grammar = Grammar.from_choices(CHOICES)
    chosen = llm.select(PROMPT, CHOICES, terminator="eog", prompting=SPLIT)
    assert llm.select(PROMPT, grammar=grammar, terminator="eog", prompting=SPLIT).text == chosen.text
    pattern = Grammar.from_regex("(" + "|".join(CHOICES) + ")")
    exact = BeamSearchParams(width=8, exact=True, terminator="eog")
    best = llm.beam_search(PROMPT, pattern, beam=exact, prompting=SPLIT)[0]
    assert (best.text, round(best.logp, 3)) == (chosen.text, round(chosen.logp, 3))
    probability = {choice.text: choice.probability for choice in chosen.ranked}
    draws = llm.sample(PROMPT, grammar, n=64, seed=1, terminator="eog", prompting=SPLIT)
    drawn = Counter(draw.text for draw in draws)
    for text, p in probability.items():
        assert abs(drawn[text] / 64 - p) < 4 * (p * (1 - p) / 64) ** 0.5 + 1 / 64


def test_greedy_generation_takes_the_model_s_own_tokens(llm, oracle):
    """Token by token, the largest logit of the plain forward."""
    generation = llm.generate(
        PROMPT,
        n=1,
        sampling=SamplingParams(temperature=0.0),
        stopping=StopParams(max_tokens=12, ignore_eog=True),
        prompting=SPLIT,
    )
    assert [token.id for token in generation[0].tokens] == oracle.greedy(PROMPT, 12)


def test_log_likelihoods_are_the_model_s_own(llm, oracle):
    """Of token sequences after contexts, as evaluations ask for them."""
    context = oracle.ids(PROMPT)
    pairs = [(context, oracle.ids(PROMPT + choice)[len(context) :]) for choice in CHOICES]
    with llm.loglikelihood_scorer(32) as scorer:
        found = scorer.loglikelihoods(Sequences.of(pairs))
    expected = [oracle.logp([*one, *rest])[len(one) - 1 :].sum() for one, rest in pairs]
    assert np.abs(np.asarray(found.logp) - expected).max() < 1e-4


def test_the_tokens_of_prompts_have_the_model_s_own_log_probabilities(llm, oracle):
    """Each within the stated tolerance, with the values of named tokens and of the best ones from the same row."""
    prompts = [oracle.ids(PROMPT + choice) for choice in CHOICES]
    results = llm.prompt_logprobs(prompts, top=3, named=[5])
    assert sum(result.cost.rows for result in results) == len({tuple(p[:i]) for p in prompts for i in range(1, len(p))})
    for ids, result in zip(prompts, results, strict=True):
        assert list(result.tokens) == ids
        assert np.abs(np.array(result.logp[1:]) - oracle.logp(ids)).max() <= result.tolerance
        assert np.abs(np.array(result.named[-1]) - oracle.logp([*ids[:-1], 5])[-1]).max() <= result.tolerance
        for i in range(1, len(ids)):
            assert dict(result.top[i]).get(ids[i], result.logp[i]) == result.logp[i]
            assert result.is_greedy[i] == (result.top[i][0][0] == ids[i])


def test_an_evaluation_states_the_packages_of_the_back_end(folder, tmp_path):
    """Measured by the command on the checkpoint; the folder of the run names torch and Transformers."""
    data = tmp_path / "d.jsonl"
    rows = [{"id": f"x-{i}", "context": PROMPT, "choices": ["the", "of"], "gold": i} for i in range(2)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = tmp_path / "run"
    typed = [
        "eval",
        str(data),
        "-m",
        str(folder),
        "--n-ctx",
        "128",
        "--n-batch",
        "32",
        "--threads",
        "1",
        "--out",
        str(run),
    ]
    result = CliRunner().invoke(app, typed)
    assert result.exit_code == 0, result.output
    said = "".join(path.read_text() for path in run.iterdir() if path.suffix in (".json", ".jsonl"))
    for name in ("torch", "transformers", "tokenizers", "safetensors"):
        assert f'"{name}": "{version(name)}"' in said


def test_templates_and_chats_are_rendered(llm, oracle):
    """A slot takes the choice that `select` takes; a chat is written by the checkpoint's own template."""
    page = llm.render(Template("The cat and<<select 'x' options=[' the', ' of']>> answer"))
    assert page["x"] in (" the", " of")
    chat = [{"role": "user", "content": "the cat"}]
    text = oracle.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    expected = oracle.tokenizer(text, add_special_tokens=False).input_ids
    assert [token for token, _ in llm.tokens(chat, ["the", "of"], prompting=SPLIT).prompt] == expected


def test_near_ties_are_settled(tmp_path):
    """Two tokens with the same weights are equally probable in every layout: the lower index wins, and it is flagged."""
    folder = checkpoints.write(tmp_path / "m")
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    oracle = Oracle(folder)
    one, other = (oracle.ids(PROMPT + choice)[-1] for choice in (" the", " of"))
    tensors["lm_head.weight"][other] = tensors["lm_head.weight"][one]
    save_file(tensors, path, metadata={"format": "pt"})
    with selectrie.load(folder, **OPTIONS) as engine:
        for choices in ([" the", " of"], [" of", " the"]):
            result = engine.select(PROMPT, choices, terminator="none", prompting=SPLIT)
            assert (result.text, result.certificate.rescored, result.margin) == (choices[0], True, 0.0)


def test_the_self_check_is_kept(folder, llm, monkeypatch, tmp_path, checked):
    """By digest, device and rows; another size or other weights have their own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with selectrie.load(folder, **OPTIONS) as engine:
        assert engine.self_check.n_rows == 0
        checked(engine)
    kept = json.loads((tmp_path / ".cache" / "selectrie" / "selfcheck.json").read_text())
    assert len(kept) == 1
    assert engine.identity.digest in next(iter(kept))
    with selectrie.load(folder, **OPTIONS) as engine:
        assert engine.self_check.n_rows > 0
    with selectrie.load(folder, **{**OPTIONS, "n_batch": 32}) as engine:
        assert engine.self_check.n_rows == 0


# The same weights as GGUF


@pytest.fixture(scope="module")
def both():
    gguf, checkpoint = real_file("weights/stories260K.gguf"), real_file("weights/stories260K-hf")
    with (
        selectrie.load(gguf, n_ctx=512, n_threads=1) as one,
        selectrie.load(checkpoint, **{**OPTIONS, "n_ctx": 512}) as other,
    ):
        yield one, other


def test_a_checkpoint_has_the_tokens_of_its_gguf_file(both):
    """Of a thousand texts that begin a prompt."""
    one, other = (engine.vocabulary for engine in both)
    rng = random.Random(3)
    texts = [random_text(rng, rng.choice((3, 20, 80))) for _ in range(1000)]
    texts = [text.encode("utf-8", "replace") for text in texts]
    assert [text for text in texts if list(one.encode(text)) != list(other.encode(text))] == []


def test_a_checkpoint_scores_as_its_gguf_file(both):
    """Choices, with healing and terminators, within a thousandth of a nat."""
    stories = real_file("text/tinystories_sample.txt").read_text().split(". ")
    for prompt in stories[:6]:
        choices = [" She", " The", " He was happy", " They played with the dog", "\n", " Once upon a time"]
        results = [engine.select(prompt[-200:] + ".", choices) for engine in both]
        assert results[0].text == results[1].text
        assert results[0].certificate.proved
        logp = [{choice.text: choice.logp for choice in result.ranked} for result in results]
        for text, value in logp[0].items():
            assert abs(value - logp[1][text]) < 1e-3


# Pools


def test_a_pool_holds_checkpoints_and_gguf_files_under_one_budget(folder, tiny_model):
    """Each counts; the one that was used longest ago makes room."""
    sources = {"checkpoint": folder, "gguf": tiny_model("f32")}
    options = {"n_ctx": 128, "n_batch": 32, "n_threads": 1}
    with ModelPool(sources, **options) as models:
        needed = {}
        for name in sources:
            with models.use(name) as engine:
                assert engine.limits.nodes == 128
            needed[name] = models[name].memory_bytes
        assert models.used_bytes == sum(needed.values())
        assert len(models.loaded()) == 2
    with ModelPool(sources, budget_bytes=sum(needed.values()) - 1, **options) as models:
        for name, backend in (("gguf", "llama.cpp"), ("checkpoint", "transformers"), ("gguf", "llama.cpp")):
            with models.use(name) as engine:
                assert engine.identity.backend == backend
            assert [one.name for one in models.loaded()] == [name]


def test_a_model_too_large_as_exact_is_refused_with_both_figures(tmp_path):
    """And `precision="fast"` is named, which then fits; where that does not fit either it is not."""
    folder = checkpoints.write(tmp_path / "m", hidden_size=256, dtype="bfloat16")
    sizes = {one: load_size(folder, one) for one in ("exact", "fast")}
    budget = (sizes["exact"] + sizes["fast"]) // 2
    with ModelPool({"m": folder}, budget_bytes=budget, **OPTIONS) as models:
        with pytest.raises(MemoryBudgetError, match=r"load it with precision='fast' \(\d") as caught, models.use("m"):
            pass
        assert str(caught.value).endswith(" MiB), raise the budget, or lower `n_ctx` or `n_batch`")
        assert (caught.value.required, caught.value.budget) == (sizes["exact"], budget)
        assert caught.value.required_fast == sizes["fast"]
    with (
        ModelPool({"m": folder}, budget_bytes=budget, precision="fast", **OPTIONS) as models,
        models.use("m") as engine,
    ):
        assert engine.identity.precision == "fast"
    with ModelPool({"m": folder}, budget_bytes=sizes["fast"] - 1, **OPTIONS) as models:
        with pytest.raises(MemoryBudgetError) as caught, models.use("m"):
            pass
        assert caught.value.required_fast is None
        assert "precision" not in str(caught.value)


def load_size(folder: Path, precision: str) -> int:
    return memory_needed(folder, None, {**OPTIONS, "precision": precision})


# The extra, and options of another back end


def test_options_of_llama_cpp_are_none_of_a_checkpoint(folder):
    """The error names the option and those that there are."""
    with pytest.raises(
        UnknownOptionError, match="`n_gpu_layers` is not an option of the back end transformers, which has"
    ):
        selectrie.load(folder, n_gpu_layers=1)


def test_the_extra_is_named_where_it_is_missing(folder, monkeypatch):
    """Options are still checked first; neither needs torch."""
    monkeypatch.setattr("selectrie.backends.entry.find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=r"selectrie\[transformers\]"):
        selectrie.load(folder, device="cpu")
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from pathlib import Path; from selectrie.backends.table import backend_of\n"
        "entry = backend_of(Path(sys.argv[1])); print(entry.name, entry.options_type()(device='cuda').device)\n"
        "print(entry.digest(Path(sys.argv[1])))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines()[0] == "transformers cuda"


# The hub


ASK = """
import selectrie
from selectrie.engine.sources import download
print(download("hf:owner/repo"))
for record in selectrie.models()[1:]:
    print(record.source, record.size_bytes, record.digest)
"""


def test_a_checkpoint_of_the_hub_is_downloaded_once(folder, llm, tmp_path):
    """From a server on this machine by the hub's own client: no code and no pickles; then from the cache, also offline."""
    pytest.importorskip("huggingface_hub")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    size = sum(map(len, files.values()))
    others = {"pytorch_model.bin": b"evil", "model.py": b"raise SystemExit", "README.md": b"words"}

    def run(address: str, **more: str) -> list[str]:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "HF_ENDPOINT": address, "HF_HOME": str(tmp_path)}
        environment.pop("HF_HUB_OFFLINE", None)  # which other tests set for this process
        command = [sys.executable, "-c", ASK]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment | more)
        return done.stdout.splitlines()

    with served(files | others) as address:
        downloaded, *listed = run(address)
    assert {path.name for path in Path(downloaded).iterdir()} == set(files)
    assert listed == [f"hf:owner/repo {size} {llm.identity.digest}"]
    assert run(address, HF_HUB_OFFLINE="1") == [downloaded, *listed]
    with selectrie.load(downloaded, **OPTIONS) as engine:
        assert engine.identity.digest == llm.identity.digest
