"""lm-evaluation-harness on a Transformers checkpoint: our engine against the harness's own `hf` model on the same folder."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

for name in ("torch", "transformers", "accelerate", "lm_eval"):
    pytest.importorskip(name)

pytestmark = pytest.mark.filterwarnings("ignore")

NATS = 1e-4
LABELS = (
    "card arrival",
    "card linking",
    "exchange rate",
    "pin blocked",
    "top up limit",
    "transfer fee",
    "cash",
    "visa",
)
DESCRIPTION = f"Every message to the bank is about one of these: {', '.join(LABELS)}. What is this one about?\n"
MESSAGES = ("Where is my card?", "How do I pay in euros?", "I forgot the number.", "Why was there a fee?")
TEXT = "The cat and the dogs sat in the garden, and there was no answer. "


@pytest.fixture(scope="module", params=["stories260K", "declared-bos", "no-bos"])
def pair(request, tmp_path_factory):
    """Ours and the harness's: on real weights whose tokenizer adds BOS, and on random ones whose tokenizer only names it, or has none."""
    import torch
    from lm_eval.models.huggingface import HFLM

    from selectrie.evaluation.lm_eval_model import SelectrieLM
    from tests.support import checkpoints
    from tests.support.real_data import real_file

    torch.set_num_threads(1)
    folder = real_file("weights/stories260K-hf") if request.param == "stories260K" else tmp_path_factory.mktemp("m")
    if request.param != "stories260K":
        checkpoints.write(folder, "qwen2", tokenizer="qwen-2", max_position_embeddings=256)
        if request.param == "no-bos":
            path = folder / "tokenizer_config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "bos_token": None}))
    precision = "exact" if request.param == "stories260K" else "fast"
    ours = SelectrieLM(path=str(folder), n_threads=1, n_batch=64, dtype="float32", precision=precision)
    theirs = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=8, softmax_dtype="float64")
    assert (theirs.tokenizer.bos_token_id is None) == (request.param == "no-bos")
    yield ours, theirs
    ours._engine.close()


def asked(kind, *arguments):
    """One request of the harness for each tuple of arguments."""
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, one, i) for i, one in enumerate(arguments)]


@pytest.mark.short("declared-bos", "no-bos")
def test_choices_have_the_log_likelihoods_of_hf(pair):
    """Behind a long context that they share, a short one, one that ends with a space, and none: to 1e-4 nats, greediness too."""
    ours, theirs = pair
    shared = [(f"{DESCRIPTION}Message: {one}\nTopic:", f" {label}") for one in MESSAGES for label in LABELS]
    short = [("The cat and the", rest) for rest in (" dogs", " answer", " cat sat")]
    spaced = [("The cat  ", "sat"), ("The cat\n", "sat there")]
    whole = [("", rest) for rest in ("The dogs sat.", " The dogs sat.", "a")]
    requests = asked("loglikelihood", *shared, *short, *spaced, *whole)
    found, expected = (model.loglikelihood(requests, disable_tqdm=True) for model in pair)
    assert np.abs(np.array([one[0] for one in found]) - [one[0] for one in expected]).max() < NATS
    assert [one[1] for one in found] == [one[1] for one in expected]
    assert ours.prefix_token_id == theirs.prefix_token_id


@pytest.mark.short("declared-bos", "no-bos")
def test_whole_texts_have_the_log_likelihoods_of_hf(pair):
    """A short text, and one of several windows: to 1e-4 nats in 100 tokens."""
    ours, _ = pair
    texts = ["The cat sat.", TEXT * 30]
    assert len(ours.tok_encode(texts[1])) > ours.max_length
    requests = asked("loglikelihood_rolling", *((text,) for text in texts))
    found, expected = (model.loglikelihood_rolling(requests, disable_tqdm=True) for model in pair)
    allowed = [NATS * max(1, len(ours.tok_encode(text)) / 100) for text in texts]
    assert (np.abs(np.array(found) - expected) <= allowed).all()


def test_texts_are_generated_as_by_hf(pair):
    """Greedily, up to a stop text or a number of tokens; Transformers drops a space that a text begins with."""
    options = {"until": ["\n"], "max_gen_toks": 12, "do_sample": False}
    requests = asked("generate_until", *((start, options) for start in ("The cat", TEXT, "Once upon a time there was")))
    found, expected = (model.generate_until(requests, disable_tqdm=True) for model in pair)
    assert [text.lstrip() for text in found] == [text.lstrip() for text in expected]


@pytest.mark.short("declared-bos")
def test_a_task_has_the_metrics_of_hf(pair, tmp_path, monkeypatch):
    """The harness's own evaluation of a local file, with a description that all items share."""
    from lm_eval.tasks import TaskManager

    from tests.support.lm_eval_tasks import simple_evaluate

    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    path = tmp_path / "labels.jsonl"
    records = [{"context": f"Message: {one}\nTopic:", "choices": LABELS, "gold": i} for i, one in enumerate(MESSAGES)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    task = {
        "task": "labels",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "description": DESCRIPTION,
        "doc_to_text": "{{context}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "gold",
        "metric_list": [{"metric": metric} for metric in ("acc", "acc_norm", "acc_mutual_info", "brier_score")],
    }
    figures = []
    for model in pair:
        manager = TaskManager(include_defaults=False)
        found = simple_evaluate(model, tasks=[dict(task)], task_manager=manager, bootstrap_iters=0, log_samples=False)
        figures.append({name: value for name, value in found["results"]["labels"].items() if name.endswith(",none")})
    accuracies = [{name: value for name, value in one.items() if name.startswith("acc")} for one in figures]
    assert accuracies[0] == accuracies[1] != {}
    assert figures[0]["brier_score,none"] == pytest.approx(figures[1]["brier_score,none"], abs=NATS)
