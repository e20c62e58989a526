"""lm-evaluation-harness as a client, unchanged, against the same engine in its own process."""

from __future__ import annotations

import json
import os
from copy import copy
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

pytest.importorskip("fastapi", reason="needs the extra 'server'")
pytest.importorskip("lm_eval", reason="needs the extra 'lm-eval'")
pytest.importorskip("datasets", reason="needs the extra 'lm-eval'")
pytest.importorskip("aiohttp", reason="needs the extra 'test-clients'")
pytest.importorskip("tenacity", reason="needs the extra 'test-clients'")

from selectrie.server import app
from tests.support.lm_eval_tasks import local_task, simple_evaluate
from tests.support.real_data import real_file
from tests.support.serving import running

pytestmark = pytest.mark.filterwarnings("ignore")

TASKS = {"openbook_qa": 4, "copa_val": 8, "arc_easy_val": 4}


@pytest.fixture(scope="module", params=["stories260K.gguf", None], ids=["with BOS", "embedded"])
def served(request, tmp_path_factory):
    """The harness's model class in this process, and a server of the same engine."""
    from selectrie.evaluation.lm_eval_model import SelectrieLM

    path = None if request.param is None else str(real_file(f"weights/{request.param}"))
    own, folder = SelectrieLM(path=path, n_threads=1), tmp_path_factory.mktemp("tasks")
    with running(app(own._engine)) as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", str(folder / "cache"))
        yield own, url, [local_task(folder, name, n, ("acc", "acc_norm")) for name, n in TASKS.items()]
    own._engine.close()


def evaluated(asked, tasks, **arguments):
    """What the harness finds with a model: log-likelihoods and greediness by task, and the accuracies."""
    from lm_eval.tasks import TaskManager

    found = simple_evaluate(
        asked,
        model_args=arguments or None,
        tasks=tasks,
        task_manager=TaskManager(include_defaults=False),
        bootstrap_iters=0,
        log_samples=True,
    )
    answers = {
        name: [tuple(one) for sample in samples for one in sample["filtered_resps"]]
        for name, samples in found["samples"].items()
    }
    accuracies = {
        name: [result[f"{metric},none"] for metric in ("acc", "acc_norm")] for name, result in found["results"].items()
    }
    return answers, accuracies


def check_equal(own, tasks, found, expected):
    """Each log-likelihood is within the tolerance of its rows, and all that is decided by them is equal."""
    assert found[1] == expected[1]
    n_checked = 0
    for task in tasks:
        lines = map(json.loads, Path(task["dataset_kwargs"]["data_files"]["test"]).read_text().splitlines())
        texts = [choice for line in lines for choice in line["choices"]]
        for text, (logp, is_greedy), (other, other_greedy) in zip(
            texts, found[0][task["task"]], expected[0][task["task"]], strict=True
        ):
            n_rows = len(own.tok_encode(f" {text}", add_special_tokens=False)) + 1
            assert abs(logp - other) <= n_rows * own._engine.tolerance + 1e-9
            assert is_greedy == other_greedy
            n_checked += 1
    assert n_checked >= 45


@pytest.fixture(scope="module")
def without_bos(served):
    """What the harness finds in this process where no BOS is put before a text."""
    own, _, tasks = served
    plain = copy(own)
    plain._adds_bos = False
    return evaluated(plain, tasks)


@pytest.mark.short("with BOS-concurrent")
@pytest.mark.parametrize(
    "how", [{}, {"num_concurrent": 8}, {"batch_size": 4}], ids=["one by one", "concurrent", "batches"]
)
def test_local_completions_is_the_class_in_this_process(served, without_bos, how):
    """With the server's own tokenizer, which the harness asks for no BOS: no tokenizer of Hugging Face, and nothing lost."""
    own, url, tasks = served
    arguments = {
        "base_url": f"{url}/v1/completions",
        "model": "m",
        "tokenizer_backend": "remote",
        "max_length": 512,
    }
    check_equal(own, tasks, evaluated("local-completions", tasks, **arguments, **how), without_bos)


@pytest.mark.short("with BOS")
def test_gguf_is_the_class_in_this_process(served):
    """It sends texts, names no model, and finds the context's end by the places of tokens."""
    own, url, tasks = served
    expected = evaluated(own, tasks)
    check_equal(own, tasks, evaluated("gguf", tasks, base_url=url), expected)
    (name, answers), *rest = expected[0].items()
    (logp, is_greedy), *others = answers
    for changed in ((logp + 1.5, is_greedy), (logp, not is_greedy)):
        with pytest.raises(AssertionError):  # the comparison can fail
            check_equal(own, tasks, ({name: [changed, *others], **dict(rest)}, expected[1]), expected)
    with pytest.raises(AssertionError):
        check_equal(own, tasks, (expected[0], {**expected[1], name: [2.0, 2.0]}), expected)


def test_texts_are_generated_up_to_their_stops(served):
    """Greedy texts of both clients are those of the class in this process; `gguf` names no limit, so it gets 16 tokens."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.gguf import GGUFLM
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    own, url, _ = served
    without_bos = copy(own)
    without_bos._adds_bos = False
    options = {"until": ["."], "max_gen_toks": 16, "do_sample": False}
    starts = ("Once upon a time", "Tom had a ball", "The cat")
    asked = [Instance("generate_until", {}, (start, options), i) for i, start in enumerate(starts)]
    remote = LocalCompletionsAPI(base_url=f"{url}/v1/completions", model="m", tokenizer_backend="remote", batch_size=2)
    assert remote.generate_until(asked, disable_tqdm=True) == without_bos.generate_until(asked, disable_tqdm=True)
    found = GGUFLM(base_url=url).generate_until(asked, disable_tqdm=True)
    assert found == [text.strip() for text in own.generate_until(asked, disable_tqdm=True)]
