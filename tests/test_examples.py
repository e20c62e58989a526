"""The examples run as a reader would run them: on the embedded model, and on one that is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from selectrie.embedded import embedded_file

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("[!_]*.py"))


def run(name: str, *arguments: object) -> str:
    """Standard output of an example; its failure is the test's."""
    command = [sys.executable, ROOT / "examples" / name, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name, any_model):
    """Each example runs on the model it is given and prints something."""
    assert run(name, any_model)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs_without_a_model(name, any_model):
    """Without an argument the embedded model answers, and not otherwise than where its file is the argument."""
    assert run(name) == run(name, embedded_file()) != run(name, any_model)


def test_every_ticket_that_fits_no_intent_goes_to_a_person(any_model):
    """Small models know nothing of banks: coverage sends all three tickets on, however sure the intents look."""
    lines = run("route_ticket.py", any_model).splitlines()
    assert [line for line in lines if "->" in line] == ["  -> a person"] * 3


def test_what_ends_a_choice_decides_between_cat_and_cats(weights):
    """Without an end the prefix wins; with either end the trained model says two cats."""
    text = run("pick_continuation.py", weights("stories260K.gguf"))
    winners = [text.splitlines()[i + 1].split("'")[1] for i in (0, 4, 8)]
    assert winners == [" cat", " cats", " cats"]
    assert text.splitlines()[-1].endswith("yes")


def test_near_ties_have_one_winner_in_every_set(any_model):
    """Choices as close as a prior can bring them are settled, and the other choices do not decide between them."""
    text = run("near_ties.py", any_model)
    assert "settled: True, by scoring 2 choices again" in text
    (winners,) = (line.split(": ")[1] for line in text.splitlines() if "winners in other sets" in line)
    assert "," not in winners
