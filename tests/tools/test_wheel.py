"""The wheel: what is built from the sources works where nothing else of them is."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
THIRD_PARTY = ("llama_cpp", "numpy", "lark", "typer", "jinja2", "rich", "regex")
"""What the wheel asks for, by import name."""
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def places() -> list[str]:
    """Folders of the third-party packages that the suite runs on, first found first."""
    found = {str(Path(spec.origin).parent.parent) for name in THIRD_PARTY if (spec := find_spec(name)) and spec.origin}
    return [folder for folder in map(os.path.abspath, sys.path) if folder in found]


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """A fresh environment with the wheel alone, which sees third-party packages by a path entry."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        *PIP,
        "wheel",
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(build, check=True)
    [wheel] = folder.glob("*.whl")
    made = folder / "environment"
    venv.create(made, symlinks=True)
    python = str(made / "bin" / "python")
    subprocess.run([*PIP, "--python", python, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    [site] = made.glob("lib/python*/site-packages")
    (site / "third_party.pth").write_text("".join(f"{place}\n" for place in places()))
    return made


NUMBER = re.compile(r"(\d+\.\d+)")


def test_the_page_of_the_server_is_in_the_wheel(environment):
    """Each file that a browser asks for lies beside the module that sends it."""
    [found] = environment.glob("lib/python*/site-packages/selectrie/server/page")
    assert {one.name for one in found.iterdir()} == {one.name for one in (ROOT / "src/selectrie/server/page").iterdir()}


def run_in(environment: Path, folder: Path, program: str, *arguments: str) -> str:
    """What a program of the environment prints, without the paths that the suite was started with."""
    outside = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    command = [str(environment / "bin" / program), *arguments]
    return subprocess.run(command, check=True, cwd=folder, env=outside, capture_output=True, text=True).stdout


def test_the_wheel_answers_the_first_command_of_the_readme(environment, tmp_path):
    """Code, grammars of ours, model and command are in it; nothing comes from the repository."""
    said = run_in(environment, tmp_path, "python", "-c", "import selectrie; print(selectrie.__file__)")
    assert environment in Path(said.strip()).parents
    block = re.search(r"^```sh\n(.*)\n```\n\n```text\n(.*)\n", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    program, *arguments = shlex.split(block[1])
    printed = run_in(environment, tmp_path, program, *arguments)
    answer, shown = (NUMBER.split(line) for line in (printed.splitlines()[0], block[2]))
    assert answer[::2] == shown[::2]
    # Kernels of another processor move a score by a few hundredths at most.
    assert [float(one) for one in answer[1::2]] == pytest.approx([float(one) for one in shown[1::2]], abs=0.05)
