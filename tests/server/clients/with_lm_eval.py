"""lm-evaluation-harness: `local-completions`, `gguf` and `local-chat-completions` on a task of its own data."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from cases import MODEL, run
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

ROWS = [
    {"question": "The sky is", "choices": ["blue", "bread", "seven"], "answer": 0},
    {"question": "Two and two make", "choices": ["four", "a hat", "sand"], "answer": 0},
    {"question": "Dogs like to", "choices": ["rain", "bark", "print"], "answer": 1},
]


def evaluated(model: str, kind: dict[str, Any], arguments: dict[str, Any], **named: Any) -> Any:
    """The harness's samples of a task of `ROWS`."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "rows.jsonl")
        data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        task = {
            "task": "rows",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(Path(folder, "cache"))},
            "test_split": "test",
            "doc_to_text": "{{question}}",
            **kind,
        }
        found = simple_evaluate(
            model,
            model_args=arguments,
            tasks=[task],
            task_manager=TaskManager(include_defaults=False),
            bootstrap_iters=0,
            log_samples=True,
            **named,
        )
    assert len(found["samples"]["rows"]) == len(ROWS)
    return found


CHOICES = {
    "output_type": "multiple_choice",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "{{answer}}",
    "metric_list": [{"metric": "acc"}],
}
TEXTS = {
    "output_type": "generate_until",
    "doc_to_target": "{{choices[answer]}}",
    "generation_kwargs": {"until": ["\n"], "max_gen_toks": 8},
    "metric_list": [{"metric": "exact_match"}],
}


def case_local_completions(url: str) -> None:
    arguments = {"base_url": f"{url}/v1/completions", "model": MODEL, "tokenizer_backend": "remote", "max_length": 512}
    assert 0 <= evaluated("local-completions", CHOICES, arguments)["results"]["rows"]["acc,none"] <= 1


def case_gguf(url: str) -> None:
    assert 0 <= evaluated("gguf", CHOICES, {"base_url": url})["results"]["rows"]["acc,none"] <= 1


def case_local_chat_completions(url: str) -> None:
    arguments = {"base_url": f"{url}/v1/chat/completions", "model": MODEL}
    found = evaluated("local-chat-completions", TEXTS, arguments, apply_chat_template=True)
    assert all(sample["resps"][0][0] for sample in found["samples"]["rows"])


if __name__ == "__main__":
    run(globals())
