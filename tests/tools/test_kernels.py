"""Which builds of llama.cpp the tests are run on, and that they differ."""

from __future__ import annotations

import json
import subprocess

import pytest

import kernels


@pytest.mark.parametrize(
    ("machine", "names"),
    [
        ("x86_64", ("native", "portable", "baseline")),
        ("AMD64", ("native", "portable", "baseline")),
        ("aarch64", ("native", "portable")),
        ("arm64", ("native", "portable")),
    ],
)
def test_a_build_without_vector_extensions_exists_on_x86_alone(machine, names):
    """Elsewhere two builds are compared."""
    assert kernels.builds(machine) == names


def test_equal_kernels_are_refused():
    """A build that is another one in disguise proves nothing, and is named."""
    kernels.require_different({"native": "AVX512 = 1", "portable": "AVX2 = 1"})
    with pytest.raises(kernels.SameKernelsError, match=r"native and baseline .*: AVX2 = 1"):
        kernels.require_different({"native": "AVX2 = 1", "portable": "SSE3 = 1", "baseline": "AVX2 = 1"})


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Commands that would have been run, with what they find first on the path; infos come from `infos`."""
    commands: list[tuple[list[str], str]] = []
    infos = {"native": "AVX512 = 1", "portable": "AVX2 = 1", "baseline": "SSE3 = 1"}

    def run(command, *, env, **_):
        name = next((n for n in ("portable", "baseline") if f"kernels/{n}" in env["PYTHONPATH"]), "native")
        commands.append((command[1:], name))
        return subprocess.CompletedProcess(command, int("fails" in command and name == "portable"), infos[name], "")

    def made(name):
        folder = tmp_path / "kernels" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    monkeypatch.delenv("PYTHONPATH", raising=False)  # these tests may themselves run on one of the builds
    monkeypatch.setattr(kernels.subprocess, "run", run)
    monkeypatch.setattr(kernels, "made", made)
    monkeypatch.setattr(kernels.platform, "machine", lambda: "x86_64")
    return commands, infos


def test_the_tests_chosen_are_run_on_every_build(ran, capsys):
    """The system info of each is shown first."""
    commands, _ = ran
    assert kernels.main(["tests/backends", "-x"]) == 0
    suites = [(command[2:], name) for command, name in commands if command[:2] == ["-m", "pytest"]]
    assert suites == [(["tests/backends", "-x"], name) for name in ("native", "portable", "baseline")]
    shown = capsys.readouterr().out
    assert "# native: AVX512 = 1\n# portable: AVX2 = 1\n# baseline: SSE3 = 1\n" in shown
    assert shown.endswith("# passed on: native, portable, baseline\n")


def test_a_failure_on_one_build_is_named(ran, capsys):
    """The others are run all the same."""
    commands, _ = ran
    assert kernels.main(["fails"]) == 1
    assert capsys.readouterr().out.endswith("# failed on: portable\n")
    assert sum(command[:2] == ["-m", "pytest"] for command, _ in commands) == 3


def test_equal_builds_run_no_test(ran, capsys):
    """They fail at once."""
    commands, infos = ran
    infos["baseline"] = infos["native"]
    assert kernels.main([]) == 1
    assert "native and baseline have the same kernels" in capsys.readouterr().err
    assert not any(command[:2] == ["-m", "pytest"] for command, _ in commands)


def test_two_builds_elsewhere_are_said_to_be_two(ran, monkeypatch, capsys):
    """On another processor than x86-64."""
    monkeypatch.setattr(kernels.platform, "machine", lambda: "aarch64")
    assert kernels.main([]) == 0
    assert capsys.readouterr().out.startswith("# aarch64 is no x86-64: native and portable alone\n")


def test_a_build_is_compiled_once(monkeypatch, tmp_path):
    """With the options of its name, and again for another version of llama-cpp-python."""
    asked = []
    monkeypatch.setattr(kernels, "FOLDER", tmp_path)
    monkeypatch.setattr(kernels.subprocess, "run", lambda command, env, **_: asked.append((command, env["CMAKE_ARGS"])))
    monkeypatch.setattr(kernels, "version", lambda _: "0.3.36")
    assert kernels.made("portable") == kernels.made("portable") == tmp_path / "portable"
    [(command, options)] = asked
    assert command[-1] == "llama-cpp-python==0.3.36"
    assert options == "-DGGML_NATIVE=OFF -DGGML_LLAMAFILE=OFF -DGGML_CPU_REPACK=OFF"
    assert json.loads((tmp_path / "portable.json").read_text())["llama-cpp-python"] == "0.3.36"
    monkeypatch.setattr(kernels, "version", lambda _: "0.3.37")
    kernels.made("portable")
    assert asked[-1][0][-1] == "llama-cpp-python==0.3.37"
