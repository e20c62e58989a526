"""What benchmarks do with their targets; how fast anything is, they say themselves."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from contextlib import closing
from math import inf, isfinite, nan
from pathlib import Path

import numpy as np
import pytest

from selectrie.core.model import chain
from selectrie.core.types import ROOT as ROOT_NODE
from selectrie.testing import HashModel

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text())


@pytest.fixture
def common(monkeypatch):
    """The module that benchmarks share."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks._common")


@pytest.mark.parametrize(
    ("figures", "met"),
    [
        ({"a_s": 1.0, "ratio": 3.0, "proved": True}, [True, True, True]),
        ({"a_s": 1.01, "ratio": 3.0, "proved": True}, [False, True, True]),
        ({"a_s": 1.0, "ratio": 2.99, "proved": True}, [True, False, True]),
        ({"a_s": 1.0, "ratio": 3.0, "proved": False}, [True, True, False]),
        ({"a_s": nan, "ratio": nan, "proved": True}, [False, False, True]),
    ],
)
def test_a_missed_target_fails_the_benchmark(common, capsys, figures, met):
    """A line for each target, met or missed, and exit code 1 where one is missed; NaN meets none."""
    targets = common.Targets(at_most={"a_s": 1.0}, at_least={"ratio": 3, "proved": 1})
    code = common.report("x", figures, targets, as_json=True)
    *lines, last = capsys.readouterr().out.splitlines()
    words = [line.split()[0] for line in lines if line.split()[0] in ("met", "MISSED")]
    assert words == ["met" if one else "MISSED" for one in met]
    assert code == (0 if all(met) else 1)
    assert [target["met"] for target in json.loads(last)["targets"]] == met


def test_a_target_without_its_figure_is_an_error(common):
    """A misspelt target, or one that was not measured, is not taken for met."""
    with pytest.raises(KeyError, match="b_s"):
        common.report("x", {"a_s": 1.0}, common.Targets(at_most={"b_s": 1.0}), as_json=False)


def test_targets_of_what_is_not_there_are_left_out(common):
    """Those of figures that name it, and no others."""
    targets = common.Targets(at_most={"a_over_x": 1.0, "b_s": 2.0}, at_least={"x_rows": 3})
    assert targets.without("x") == common.Targets(at_most={"b_s": 2.0})


def test_no_target_is_said(common, capsys):
    """A quick look at other shapes says that it checked nothing."""
    assert common.report("x", {"a_s": 1.0}, common.NO_TARGETS, as_json=False) == 0
    assert "no targets" in capsys.readouterr().out


def test_make_bench_runs_every_benchmark():
    """A benchmark that nobody runs cannot miss a target."""
    listed = re.search(r"^BENCHMARKS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(listed[1].split()) == {path.stem for path in SCRIPTS}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_starts_and_can_fail(script):
    """It takes `--json` and `--under-load`, and its exit code is that of its report."""
    shown = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=True).stdout
    assert "--json" in shown
    assert "--under-load" in shown
    assert script.read_text().endswith('if __name__ == "__main__":\n    sys.exit(main())\n')


def test_a_report_ends_with_one_object(tmp_path):
    """The smallest benchmark, once through: figures, targets and the machine in the last line."""
    command = [sys.executable, str(ROOT / "benchmarks" / "trie.py"), "--most", "10000", "--json", "--under-load"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    found = json.loads(run.stdout.splitlines()[-1])
    assert [target["name"] for target in found["targets"]] == ["n10000_bytes_per_node"]
    assert found["figures"]["n10000_bytes_per_node"] <= 64
    assert {"processor", "cores", "commit", "selectrie"} <= set(found["machine"])
    assert run.returncode == 0


def test_calls_are_made_again_as_they_were(common, tiny_model):
    """Rows go on where their sequences end, below the context that these share; the last rows are those with logits."""
    bare_module = importlib.import_module("benchmarks.bare")
    with closing(bare_module.Bare(tiny_model("f32"), n_ctx=256, n_threads=1, fast=True)) as bare:
        laid_out = []
        fill = bare.fill
        bare.fill = lambda *columns: (laid_out.append(columns[1:]), fill(*columns))
        calls = [bare_module.Call(5, 2, range(2)), bare_module.Call(2, 2, range(2))]
        seconds = bare.replay(calls, context=[300, 301, 302])
    assert laid_out == [
        ([0, 1, 2], [[0]] * 3, [False, False, True]),
        ([3, 4, 5, 3, 4], [[0], [0], [0], [1], [1]], [False, False, False, True, True]),
        ([6, 5], [[0], [1]], [True, True]),
    ]
    assert len(seconds) == 2
    assert min(seconds) > 0


def test_a_recorder_counts_what_a_model_evaluates(common):
    """Calls, their rows and outputs; a call that evaluates nothing is none, and a watch begins anew."""
    bare_module = importlib.import_module("benchmarks.bare")
    model = HashModel(0)
    recorder, begun = bare_module.Recorder(model), []
    with recorder.watching():
        recorder.on_call = begun.append
        for tokens, is_wanted in (([3, 4, 5], True), ([3, 4], False), ([6, 7], True)):
            n, is_last = len(tokens), np.arange(len(tokens)) == len(tokens) - 1
            model.extend(chain(ROOT_NODE, n), np.array(tokens, dtype=np.int32), is_last & is_wanted, is_last)
        assert recorder.calls(range(1)) == [bare_module.Call(3, 1, range(1)), bare_module.Call(2, 1, range(1))]
    assert begun == [0, 1, 1]
    with recorder.watching():
        assert recorder.calls(range(1)) == []


def test_generation_measures_all_that_it_promises(common, tiny_model):
    """A quick look: every figure that has a target is there and is a number; guesses save calls; nothing is checked."""
    script = ROOT / "benchmarks" / "generation.py"
    options = ["--quick", "--repeats", "1", "--threads", "1", "--json", "--under-load"]
    command = [sys.executable, str(script), "--model", str(tiny_model("f32")), *options]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(shown.splitlines()[-1])
    targets = importlib.import_module("benchmarks.generation").TARGETS
    assert found["targets"] == []
    assert {verdict["name"] for verdict in targets.verdicts(found["figures"])} == {*targets.at_most, *targets.at_least}
    assert all(isfinite(value) and value > 0 for name, value in found["figures"].items() if name.endswith("_s"))
    assert found["figures"]["drafted_calls"] < found["figures"]["undrafted_calls"]


def test_decide_measures_all_that_it_promises(common, tiny_model):
    """A quick look: every figure that has a target is there and is a number; both sides computed the same; nothing is checked."""
    script = ROOT / "benchmarks" / "decide.py"
    options = ["--messages", "3", "--sampled", "1", "--repeats", "1", "--threads", "1", "--json", "--under-load"]
    command = [sys.executable, str(script), "--model", str(tiny_model("f32")), *options]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(shown.splitlines()[-1])
    targets = importlib.import_module("benchmarks.decide").TARGETS.without("guidance")
    assert found["targets"] == []
    assert {verdict["name"] for verdict in targets.verdicts(found["figures"])} == {*targets.at_most, *targets.at_least}
    assert all(
        isfinite(value) and value > 0 for name, value in found["figures"].items() if name.endswith(("_s", "_ms"))
    )
    assert found["figures"]["table_rows"] < found["figures"]["one_by_one_rows"]


def test_grammar_measures_all_that_it_promises(common):
    """A quick look: every figure that has a target is there and is a number; nothing is checked."""
    script = ROOT / "benchmarks" / "grammar.py"
    command = [sys.executable, str(script), "--quick", "--repeats", "1", "--json", "--under-load"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(shown.splitlines()[-1])
    targets = importlib.import_module("benchmarks.grammar").TARGETS
    assert found["targets"] == []
    assert {verdict["name"] for verdict in targets.verdicts(found["figures"])} == set(targets.at_most)
    assert all(isfinite(value) and value > 0 for name, value in found["figures"].items() if name.endswith("_s"))


def test_templates_measures_all_that_it_promises(common, embedded):
    """Once through: every figure that has a target is there but for guidance, which may be; the page takes no row too many."""
    script = ROOT / "benchmarks" / "templates.py"
    options = ["--repeats", "1", "--threads", "1", "--json", "--under-load"]
    command = [sys.executable, str(script), "--model", str(embedded), *options]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(shown.splitlines()[-1])
    figures = {name.replace("model_", "embedded_", 1): value for name, value in found["figures"].items()}
    targets = importlib.import_module("benchmarks.templates").TARGETS
    if "guidance" in figures:
        assert "skipped: it is not installed" in figures["guidance"]
        targets = targets.without("guidance")
    verdicts = targets.verdicts(figures | {name.replace("embedded", "random"): 1.0 for name in figures})
    assert {verdict["name"] for verdict in verdicts} == {*targets.at_most, *targets.at_least}
    assert figures["embedded_rows_over_bound"] <= 1
    assert figures["embedded_again_rows_over_page"] > 5
    assert 500 <= figures["embedded_page_tokens"] <= 700
    assert all(isfinite(value) and value > 0 for name, value in figures.items() if name.endswith("_s"))


def test_evaluation_measures_all_that_it_promises(common, test_data):
    """A quick look at a few items of the embedded model, without the harness: every way of every set; nothing is checked."""
    test_data("mc/blimp.jsonl")  # skips where there are no data
    script = ROOT / "benchmarks" / "evaluation.py"
    options = ["--quick", "--only", "embedded", "--items", "3", "--repeats", "1", "--threads", "1", "--no-hf"]
    command = [sys.executable, str(script), *options, "--json", "--under-load"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(shown.splitlines()[-1])
    figures = found["figures"]
    assert found["targets"] == []
    for name in ("hellaswag", "arc_easy", "blimp"):
        for way in ("ours", "floor", "naive", "loop", "loop_kept"):
            assert figures[f"embedded_{name}_{way}_items_per_s"] > 0
        assert figures[f"embedded_{name}_rows"] < figures[f"embedded_{name}_rows_naive"]
    targets = importlib.import_module("benchmarks.evaluation").targets(figures)
    assert targets.at_most == {f"embedded_{name}_over_floor": 1.10 for name in ("hellaswag", "arc_easy", "blimp")}
    assert len(targets.at_least) == 6
    assert {verdict["name"] for verdict in targets.verdicts(figures)} == {*targets.at_most, *targets.at_least}


def test_real_says_that_there_are_no_models(common, monkeypatch, capsys):
    """Without the folder nothing is measured, and no target is missed."""
    monkeypatch.delenv("SELECTRIE_REAL_MODELS", raising=False)
    monkeypatch.setattr(sys, "argv", ["real"])
    assert importlib.import_module("benchmarks.real").main() == 0
    assert "skipped: SELECTRIE_REAL_MODELS names no folder" in capsys.readouterr().out


@pytest.mark.long
def test_real_measures_all_that_it_promises(common, monkeypatch, embedded, tmp_path):
    """A quick look at the embedded model: every figure that has a target is there and is a number; nothing is checked."""
    (tmp_path / "one-q4.gguf").symlink_to(embedded)
    monkeypatch.setenv("SELECTRIE_REAL_MODELS", str(tmp_path))
    found = quick_look("real")
    goals = importlib.import_module("benchmarks.real").GOALS
    assert found["targets"] == []
    names = {name for name, value in found["figures"].items() if name.startswith("one_") and 0 < value < inf}
    assert names == {f"one_{name}" for name in (*goals.at_most, *goals.at_least)}


TRANSFORMERS_BENCHMARKS = ("hf_generate", "transformers_calls")


def quick_look(name):
    """What a benchmark reports of one repeat of its quick look."""
    script = ROOT / "benchmarks" / f"{name}.py"
    command = [sys.executable, str(script), "--quick", "--repeats", "1", "--json", "--under-load"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(shown.splitlines()[-1])


def test_hf_generate_measures_all_that_it_promises(common):
    """A quick look: both ways for both numbers of samples, and a target for each but in `exact`; nothing is checked."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    found = quick_look("hf_generate")
    figures = found["figures"]
    assert found["targets"] == []
    for way in ("generate", "fast", "exact"):
        assert all(isfinite(figures[f"tiny_{way}_n{n}_s"]) and figures[f"tiny_{way}_n{n}_s"] > 0 for n in (1, 10))
    for n in (1, 10):
        ratio = figures[f"tiny_fast_n{n}_s"] / figures[f"tiny_generate_n{n}_s"]
        assert figures[f"tiny_fast_n{n}_over_generate"] == pytest.approx(ratio)
    targets = importlib.import_module("benchmarks.hf_generate").targets(figures)
    assert targets == common.Targets(at_most={"tiny_fast_n1_over_generate": 1.05, "tiny_fast_n10_over_generate": 1.0})


def test_transformers_calls_measures_all_that_it_promises(common):
    """A quick look: every figure that would have a target at these sizes is there and is a number; nothing is checked."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    found = quick_look("transformers_calls")
    module = importlib.import_module("benchmarks.transformers_calls")
    targets = module.targets(module.QUICK)
    assert found["targets"] == []
    assert len(targets.at_most) == 2 * (2 * 2 + 2)
    verdicts = targets.verdicts(found["figures"])
    assert all(isfinite(verdict["figure"]) and verdict["figure"] > 0 for verdict in verdicts)


@pytest.mark.long
def test_lm_eval_hf_measures_all_that_it_promises(common, test_data):
    """A quick look at few items: every set by each way, log-likelihoods and answers as of `hf`; a target for each in a full run."""
    for name in ("torch", "transformers", "lm_eval"):
        pytest.importorskip(name)
    module = importlib.import_module("benchmarks.lm_eval_hf")
    for name in module.FILES:
        test_data(name)
    found = quick_look("lm_eval_hf")
    figures = found["figures"]
    assert found["targets"] == []
    sets = ("arc_easy", "hellaswag", "labels", "blimp", "lambada", "paragraphs", "continued")
    for one in sets:
        assert all(figures[f"tiny_{one}_{way}_s"] > 0 for way in ("hf", "exact", "fast"))
        assert all(figures[f"tiny_{one}_{way}_nats"] <= module.MAX_NATS for way in ("exact", "fast"))
        assert all(figures[f"tiny_{one}_{way}_metrics_that_differ"] == 0 for way in ("exact", "fast"))
    targets = module.targets(figures)
    assert len(targets.at_most) == len(sets) * 2 * 3
    assert sorted(targets.at_least) == [
        f"tiny_{one}_hf_over_{way}" for one in module.SHARED for way in ("exact", "fast")
    ]


def test_buckets_measures_all_that_it_promises(common):
    """A quick look: every figure that would have a target at these sizes is there and is a number; nothing is checked."""
    for name in ("torch", "transformers", "jax", "torchax"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} not installed (extra xla)")
    found = quick_look("buckets")
    figures, module = found["figures"], importlib.import_module("benchmarks.buckets")
    targets = module.targets("tiny", module.QUICK)
    assert found["targets"] == []
    assert len(targets.at_most) + len(targets.at_least) == 6
    verdicts = targets.verdicts(figures)
    assert all(isfinite(verdict["figure"]) and verdict["figure"] >= 0 for verdict in verdicts)
    for way in ("one", "greedy", "padded", "ours"):
        assert figures[f"tiny_prompt_{way}_s"] > 0
    assert [figures[f"tiny_prompt_{way}_programs"] for way in ("one", "greedy", "padded")] == [45, 2 + 3 + 1, 3]
    assert figures["tiny_compiled_later"] == 0
    assert figures["tiny_moved_nats"] < 5e-5


def test_buckets_says_what_is_not_installed(common, monkeypatch, capsys):
    """Without the packages of the extra nothing is measured, and no target is missed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda one: None if one == "torchax" else object())
    monkeypatch.setattr(sys, "argv", ["buckets", "--json"])
    assert importlib.import_module("benchmarks.buckets").main() == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["figures"] == {"xla": "skipped: torchax not installed (extra xla)"}
    assert found["targets"] == []


@pytest.mark.parametrize("name", TRANSFORMERS_BENCHMARKS)
def test_a_benchmark_of_transformers_says_what_is_not_installed(common, monkeypatch, capsys, name):
    """Without the packages of the extra nothing is measured, and no target is missed."""
    modules = importlib.import_module("benchmarks.modules")
    monkeypatch.setattr(modules, "PACKAGES", ("torch", "no_such_package"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda one: None if one == "no_such_package" else object())
    monkeypatch.setattr(sys, "argv", [name, "--json"])
    assert importlib.import_module(f"benchmarks.{name}").main() == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["figures"] == {"transformers": "skipped: no_such_package not installed (extra transformers)"}
    assert found["targets"] == []


def test_the_page_is_the_same_as_a_template_and_in_pieces(common):
    """What a select of its own sees before and after a slot is what stands there on the page."""
    questionnaire = importlib.import_module("benchmarks.questionnaire")
    questions = questionnaire.QUESTIONS
    assert len(questions) == len({question.name for question in questions}) == 12
    for number, question in enumerate(questions):
        tag = f"<<select '{question.name}' options={question.name}_options>>"
        assert f"{question.text}{tag}{questionnaire.following(number)}" in questionnaire.template()
        assert len(question.options) == len(set(question.options)) >= 2
    assert set(questionnaire.values()) == {f"{question.name}_options" for question in questions}
