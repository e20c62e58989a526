"""The examples run as a reader would run them: on the embedded model, and on one that is named."""

from __future__ import annotations

import functools
import io
import os
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from selectrie.engine.sources import embedded_file
from tests.meta.test_docs import alike, snippets
from tests.support import real_data

ROOT = Path(__file__).resolve().parents[2]
ON_PAGES = ("classify_emails.py", "fill_form.py", "render_character.py", "route_tools.py")
"""Examples with a template: chats need a chat template, and what comes out is stored beside them."""
NEEDS = {
    "label_frame.py": ("pandas", "narwhals"),
    "serve_tickets.py": ("fastapi", "httpx2"),
    "compare_quantisations.py": (),
}
"""Further examples whose output is stored, and what they import."""
ON_REAL_MODEL = "rerank_passages.py"
ON_RAY = "serve_on_ray.py"
EXAMPLES = sorted(
    {path.name for path in (ROOT / "examples").glob("[!_]*.py")} - {*ON_PAGES, *NEEDS, ON_REAL_MODEL, ON_RAY}
)


@functools.cache
def run(name: str, *arguments: object) -> str:
    """Standard output of an example in a process of its own; its failure is the test's."""
    command = [sys.executable, ROOT / "examples" / name, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.short("near_ties.py", "pick_continuation.py", "smc_sampler.py")
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name, any_model):
    """Each example runs on the model it is given and prints something."""
    assert run(name, any_model)


@pytest.mark.short("near_ties.py", "pick_continuation.py", "smc_sampler.py")
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs_without_a_model(name, any_model, monkeypatch):
    """Without an argument the embedded model answers, and not otherwise than where its file is the argument."""
    assert run_here(monkeypatch, name) == run_here(monkeypatch, name, embedded_file()) != run(name, any_model)


def run_here(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: object) -> str:
    """Standard output of an example that runs in this process."""
    path = str(ROOT / "examples" / name)
    monkeypatch.setattr(sys, "argv", [path, *map(str, arguments)])
    got = io.StringIO()
    with redirect_stdout(got):
        runpy.run_path(path, run_name="__main__")
    return got.getvalue()


@pytest.mark.long
def test_a_replica_that_is_killed_changes_no_answer():
    """Clients ask two replicas on Ray Serve; one dies with work in it, and the answers are those of an engine alone."""
    pytest.importorskip("ray.serve", reason="needs the extra 'test-clients'", exc_type=ImportError)
    text = run(ON_RAY)
    assert "2 replicas" in text
    assert "120 answers, 0 wrong; the replica was replaced" in text


@pytest.mark.parametrize("name", [*ON_PAGES, *NEEDS])
def test_a_page_of_an_example_is_as_stored(name, monkeypatch):
    """On the embedded model each writes what is stored beside it, numbers to the digits that processors agree on."""
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    got = run_here(monkeypatch, name)
    assert alike((ROOT / "examples" / name).with_suffix(".txt").read_text(encoding="utf-8"), got), got


def test_passages_are_ranked_by_the_real_model(monkeypatch):
    """The passage about parcels comes first, with the scores that are stored."""
    path = real_data.real_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
    got = run_here(monkeypatch, ON_REAL_MODEL, path)
    assert alike((ROOT / "examples" / ON_REAL_MODEL).with_suffix(".txt").read_text(encoding="utf-8"), got, 0.2, 0.5), (
        got
    )


def test_the_cookbook_shows_the_examples():
    """Its code is that of the examples, and its outputs are those stored."""
    page = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*.py"))]
    outputs = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*.txt"))]
    codes = [block for _, block in snippets(page, "python3")]
    shown = [block for _, block in snippets(page, "text")]
    assert len(codes) >= 6
    assert len(shown) >= 6
    assert [code for code in codes if not any(code in source for source in sources)] == []
    assert [text for text in shown if not any(text in output for output in outputs)] == []


def test_masking_and_whole_texts_answer_as_the_page_shows(monkeypatch):
    """On the embedded model a grammar of llama.cpp falls into New Zealand; the page on other programs shows the lines."""
    lines = run_here(monkeypatch, "score_or_mask.py").splitlines()
    page = (ROOT / "docs" / "alternatives.md").read_text(encoding="utf-8")
    assert lines[0] == "llama.cpp's grammar  New Zealand"
    assert lines[0] in page
    assert any(alike(line, lines[-1]) for line in page.splitlines() if line.startswith("whole texts"))


@pytest.mark.parametrize("name", ON_PAGES)
def test_an_example_with_a_template_runs_on_any_model(name, tiny_model, monkeypatch):
    """Each runs to its end on a model that knows nothing, whatever comes out."""
    assert run_here(monkeypatch, name, tiny_model("f32"))


def test_a_form_always_parses(tiny_model, monkeypatch):
    """This model of random weights writes a control character where nothing but a quote ends a text."""
    assert run_here(monkeypatch, "fill_form.py", tiny_model("f32", seed=2)).count("\n  {") == 2


def test_tickets_go_to_their_intents_and_the_rest_to_a_person(monkeypatch):
    """By the limit that is fitted to the labelled messages, none of which is a ticket."""
    lines = run_here(monkeypatch, "route_ticket.py").splitlines()
    arrows = [line.split("-> ")[1] for line in lines if "->" in line]
    assert arrows == ["track order", "change address", "a person", "a person"]
    assert lines[0].endswith("16 of 17 labelled messages go where they should")


def test_every_ticket_that_fits_no_intent_goes_to_a_person(any_model):
    """Small models know nothing of banks: coverage sends all four tickets on, however sure the intents look."""
    lines = run("route_ticket.py", any_model).splitlines()
    assert [line for line in lines if "->" in line] == ["  -> a person"] * 4


def test_what_ends_a_choice_decides_between_cat_and_cats(weights, monkeypatch):
    """Without an end the prefix wins; with either end the trained model says two cats."""
    text = run_here(monkeypatch, "pick_continuation.py", weights("stories260K.gguf"))
    winners = [text.splitlines()[i + 1].split("'")[1] for i in (0, 4, 8)]
    assert winners == [" cat", " cats", " cats"]
    assert text.splitlines()[-1].endswith("yes")


def test_near_ties_have_one_winner_in_every_set(any_model):
    """Choices as close as a prior can bring them are settled, and the other choices do not decide between them."""
    text = run("near_ties.py", any_model)
    assert "rescored: True, by scoring 2 choices again" in text
    (winners,) = (line.split(": ")[1] for line in text.splitlines() if "winners in other sets" in line)
    assert "," not in winners
