"""lm-evaluation-harness on our engine against its own `hf` model on the same weights. Skipped by name where it, torch or the weights
are not there."""

from __future__ import annotations

import logging
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.lm_eval_tasks import first_records, local_task, simple_evaluate

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

for name in ("torch", "transformers", "accelerate", "lm_eval"):
    pytest.importorskip(name)

pytestmark = pytest.mark.filterwarnings("ignore")

TASKS = {
    "arc_easy_val": 12,
    "hellaswag_val_1000": 4,
    "piqa": 6,
    "openbook_qa": 24,
    "commonsense_qa_val": 6,
    "blimp": 120,
    "copa_val": 40,
}
NATS = 1e-3


@pytest.fixture(scope="module")
def pair():
    """The GGUF in float32 on our engine, the Transformers folder on the harness's own model."""
    import torch
    from lm_eval.models.huggingface import HFLM

    from selectrie.evaluation.lm_eval_model import SelectrieLM
    from tests.support.real_data import real_file

    torch.set_num_threads(1)
    ours = SelectrieLM(path=str(real_file("weights/stories260K.gguf")), n_threads=1, batch_size=8)
    theirs = HFLM(pretrained=str(real_file("weights/stories260K-hf")), device="cpu", dtype="float32", batch_size=64)
    return ours, theirs


def requests_of(name, n):
    """The first n questions as the harness asks them."""
    from lm_eval.api.instance import Instance

    return [
        Instance("loglikelihood", record, (record["context"], f" {choice}"), i)
        for i, record in enumerate(first_records(name, n))
        for choice in record["choices"]
    ]


@pytest.mark.short("openbook_qa", "copa_val", "piqa")
@pytest.mark.parametrize("name", TASKS)
def test_log_likelihoods_and_greediness_are_those_of_hf(name, pair):
    """More than 500 requests of seven data sets: within 1e-3 nats, and every is_greedy equal."""
    ours, theirs = pair
    asked = requests_of(name, TASKS[name])
    assert len(asked) >= 12
    found, expected = ours.loglikelihood(asked, disable_tqdm=True), theirs.loglikelihood(asked, disable_tqdm=True)
    moved = np.abs(np.array([one[0] for one in found]) - [one[0] for one in expected])
    assert moved.max() < NATS
    assert [one[1] for one in found] == [one[1] for one in expected]


def test_the_comparison_can_fail(pair):
    """Another text has another log-likelihood, by more than the tolerance."""
    from lm_eval.api.instance import Instance

    ours, theirs = pair
    one = Instance("loglikelihood", {}, ("Once upon a time", " there was"), 0)
    other = Instance("loglikelihood", {}, ("Once upon a time", " there is"), 0)
    assert abs(ours.loglikelihood([one])[0][0] - theirs.loglikelihood([other])[0][0]) > NATS


def test_whole_texts_and_their_windows(pair):
    """Rolling log-likelihoods of a text of four windows, of a short one, and of the empty text."""
    from lm_eval.api.instance import Instance

    from tests.support.real_data import real_file

    ours, theirs = pair
    text = real_file("text/tinystories_sample.txt").read_text()
    asked = [Instance("loglikelihood_rolling", {}, (one,), i) for i, one in enumerate([text, text[:40]])]
    found, expected = ours.loglikelihood_rolling(asked, disable_tqdm=True), theirs.loglikelihood_rolling(asked)
    assert np.allclose(found, expected, rtol=1e-6, atol=NATS)


def test_texts_are_generated_up_to_their_stops(pair):
    """Greedy texts of both, side by side, in the order asked for; Transformers drops a space that a text begins with."""
    from lm_eval.api.instance import Instance

    ours, theirs = pair
    options = {"until": ["."], "max_gen_toks": 24, "do_sample": False}
    starts = ("Once upon a time", "Tom had a ball", "The cat")
    asked = [Instance("generate_until", {}, (start, options), i) for i, start in enumerate(starts)]
    found = ours.generate_until(asked, disable_tqdm=True)
    assert found[2] == " and a boy were playing in the park"
    assert [text.lstrip() for text in found] == theirs.generate_until(asked, disable_tqdm=True)


def test_texts_are_drawn_from_all_tokens_unless_less_is_asked_for(pair):
    """As in `hf`, no token is left out by default; with `min_p` 1 only the most probable one stays."""
    from lm_eval.api.instance import Instance

    def drawn(**more):
        options = {"until": [], "max_gen_toks": 16, "do_sample": True, **more}
        return ours.generate_until([Instance("generate_until", {}, ("Once upon a", options), 0)], disable_tqdm=True)

    ours, _ = pair
    all_of_them = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    for name, narrow in (("top_k", 1), ("top_p", 1e-6), ("min_p", 1.0)):
        others = {other: value for other, value in all_of_them.items() if other != name}
        assert drawn(temperature=2.0, **others) == drawn(temperature=2.0, **all_of_them)
        assert drawn(temperature=2.0, **others, **{name: narrow}) == drawn(temperature=0.0)
    assert drawn(temperature=2.0) != drawn(temperature=0.0)


def test_what_is_too_long_loses_its_beginning(pair, caplog):
    """As in `hf`; and it is logged."""
    from lm_eval.api.instance import Instance

    ours, theirs = pair
    asked = [Instance("loglikelihood", {}, ("Once upon a time there was a cat. " * 60, " The cat was happy"), 0)]
    with caplog.at_level(logging.WARNING, logger="selectrie.evaluation.lm_eval_model"):
        found = ours.loglikelihood(asked, disable_tqdm=True)
    assert abs(found[0][0] - theirs.loglikelihood(asked, disable_tqdm=True)[0][0]) < NATS
    assert "loses its first" in caplog.text


def test_every_metric_of_the_harness_is_that_of_hf_and_ours(pair, tmp_path, monkeypatch):
    """`simple_evaluate` with either model, and `selectrie.evaluation` on the same records: the same figures."""
    from lm_eval.tasks import TaskManager

    from selectrie.evaluation import Item, evaluate

    metrics = ("acc", "acc_norm", "acc_mutual_info", "brier_score")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    ours, _theirs = pair
    for name, n in (("openbook_qa", 24), ("copa_val", 24)):
        records, tasks = first_records(name, n), [local_task(tmp_path, name, n, metrics)]
        figures = []
        for model in pair:
            found = simple_evaluate(
                model,
                tasks=tasks,
                task_manager=TaskManager(include_defaults=False),
                bootstrap_iters=0,
                log_samples=False,
            )
            own = found["results"][name]
            figures.append([own[f"{metric},none"] for metric in metrics])
        assert figures[0] == pytest.approx(figures[1], abs=1e-4)
        assert figures[0][:3] == figures[1][:3]
        items = [Item(r["context"], tuple(r["choices"]), (r["gold"],)) for r in records]
        result = evaluate(ours._engine, items, ["acc", "acc_norm", "acc_mutual_info", "brier"])
        mine = [figure.value for figure in result["items"].figures.metrics.values()]
        assert mine == pytest.approx(figures[1], abs=1e-4)


def test_a_continuation_that_adds_no_token_is_refused(pair):
    """Empty, behind nothing too, or merged with its context: `hf` has no answer either."""
    from lm_eval.api.instance import Instance

    from selectrie.errors import OptionError

    ours, _ = pair
    for texts in (("Once", ""), ("", ""), (" T", "he")):
        with pytest.raises(OptionError, match="adds at least one token"):
            ours.loglikelihood([Instance("loglikelihood", {}, texts, 0)], disable_tqdm=True)


def test_model_args_that_cannot_be_are_one_error():
    """Before the model is loaded, whatever the harness makes of the text."""
    from selectrie.errors import OptionError
    from selectrie.evaluation.lm_eval_model import SelectrieLM

    with pytest.raises(OptionError, match=r"model_args='pretrained': expected path, .*, backend, .*, n_ctx, "):
        SelectrieLM(pretrained="x")
    for said in ("pretrained=x", "max_length=abc", "max_length=0", "max_gen_toks=0", "n_threads=1,max_length=99999"):
        with pytest.raises(OptionError, match=said.split("=")[0].split(",")[0].replace("n_threads", "max_length")):
            SelectrieLM.create_from_arg_string(said, {"batch_size": "auto", "device": None})


DEVICES = ["cpu", "cuda", "cuda:1", "mps", "auto", 0]


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_a_device_that_the_back_end_does_not_have_is_refused(device):
    """It is never dropped: who asks for a GPU does not get the CPU without a word."""
    from selectrie.errors import UnknownOptionError
    from selectrie.evaluation.lm_eval_model import SelectrieLM

    with pytest.raises(UnknownOptionError, match=r"^`device` is not an option of the back end llama\.cpp, which has "):
        SelectrieLM.create_from_arg_string("n_threads=1", {"batch_size": 8, "device": device})


def test_a_device_that_nobody_named_is_left_out(monkeypatch):
    """None, and what the harness's command gives by itself; the same one is refused where it was typed."""
    from lm_eval import __main__ as command
    from lm_eval.config.evaluate_config import EvaluatorConfig

    from selectrie.errors import UnknownOptionError
    from selectrie.evaluation import lm_eval_model

    default = EvaluatorConfig().device
    assert default is not None

    def opened(device):
        return lm_eval_model.SelectrieLM.create_from_arg_string("n_threads=1,n_ctx=64", {"device": device})

    def evaluating():
        opened(default)._engine.close()

    for device in (None, default):
        opened(device)._engine.close()
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(command, "cli_evaluate", evaluating)
    lm_eval_model.main(["--tasks", "t"])
    for typed in (["--device", default], [f"--device={default}"], ["--dev", default]):
        with pytest.raises(UnknownOptionError, match="`device`"):
            lm_eval_model.main(["--tasks", "t", *typed])
    lm_eval_model.main(["--tasks", "t"])


def test_a_checkpoint_is_put_on_the_device_that_is_named(tmp_path):
    """One that is not there is an error, never another one without a word."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from selectrie.errors import OptionError
    from selectrie.evaluation.lm_eval_model import SelectrieLM
    from tests.support import checkpoints

    said = f"path={checkpoints.write(tmp_path / 'm')},n_ctx=64,n_threads=1,dtype=float32"
    opened = SelectrieLM.create_from_arg_string(said, {"device": "cpu"})
    assert opened._engine.identity.backend == "transformers"
    opened._engine.close()
    with pytest.raises(OptionError, match=r"device='cuda:99': expected a device that is here"):
        SelectrieLM.create_from_arg_string(said, {"device": "cuda:99"})


def test_a_device_is_handed_to_a_back_end_that_has_one(monkeypatch):
    """As any other option; `backend` and `untrusted` are those of `load`."""
    from selectrie.evaluation import lm_eval_model

    seen = []

    def load(path, **options):
        seen.append((path, options))
        raise KeyError

    monkeypatch.setattr(lm_eval_model, "load", load)
    with pytest.raises(KeyError):
        lm_eval_model.SelectrieLM.create_from_arg_string(
            "path=m,backend=toy,untrusted=True", {"batch_size": 8, "max_batch_size": 9, "device": "cpu"}
        )
    assert seen == [("m", {"backend": "toy", "untrusted": True, "device": "cpu"})]


def test_answers_are_cached_as_they_come(pair, tmp_path):
    """The harness's `use_cache`: what was answered once is not asked again, each request by its own texts."""
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import CacheHook, CachingLM

    ours, _ = pair
    cached = CachingLM(ours, str(tmp_path / "cache.db"))
    try:
        asked = [Instance("loglikelihood", {}, texts, 0) for texts in (("Once", " upon"), ("Tom", " had"))]
        first = ours.loglikelihood(asked, disable_tqdm=True)  # fills the cache by its hook alone
        cached.lm = SimpleNamespace(loglikelihood=None)
        assert cached.loglikelihood(asked) == first
    finally:
        ours.set_cache_hook(CacheHook(None))
        cached.dbdict.close()


def test_what_the_harness_says_of_its_arguments_is_no_fault_of_ours(monkeypatch):
    """A task that does not exist is one error of the request."""
    from lm_eval import __main__ as command

    from selectrie.errors import OptionError
    from selectrie.evaluation.lm_eval_model import main

    def evaluating():
        assert sys.argv[1:] == ["run", "--model", "selectrie", "--tasks", "nosuchtask"]
        raise ValueError("Tasks not found: nosuchtask")

    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(command, "cli_evaluate", evaluating)
    with pytest.raises(OptionError, match="Tasks not found: nosuchtask"):
        main(["--tasks", "nosuchtask"])
