"""Run the tests on several builds of llama.cpp, whose kernels round differently: `make
test-kernels TESTS=tests/backends`.

Tolerances are measured on the machine at hand, so a test that passes on one processor
could fail on another. The builds represent other processors: the installed one, one for
any x86-64 with AVX2, and one without vector extensions beyond SSE. They are in
`build/kernels`, and missing ones are compiled, in 5 to 15 minutes each.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "kernels"
INSTALLED = "native"
_PORTABLE = ("GGML_NATIVE", "GGML_LLAMAFILE", "GGML_CPU_REPACK")
_EXTENSIONS = ("GGML_AVX", "GGML_AVX2", "GGML_FMA", "GGML_F16C", "GGML_BMI2")
OFF: Mapping[str, tuple[str, ...]] = {
    INSTALLED: (),
    "portable": _PORTABLE,
    "baseline": (*_PORTABLE, *_EXTENSIONS),
}
"""CMake options that each build turns off."""

_SHOW = "import llama_cpp; print(llama_cpp.llama_print_system_info().decode().strip())"


class SameKernelsError(Exception):
    """Says that two builds have the same kernels, so one of them proves nothing."""


def builds(machine: str) -> tuple[str, ...]:
    """Return the names of the builds for a processor: `baseline` exists on x86-64
    alone.
    """
    return tuple(OFF) if machine.lower() in {"x86_64", "amd64"} else tuple(OFF)[:2]


def require_different(infos: Mapping[str, str]) -> None:
    """Raise `SameKernelsError` if two builds print the same system info."""
    seen: dict[str, str] = {}
    for name, info in infos.items():
        if info in seen:
            raise SameKernelsError(f"{seen[info]} and {name} have the same kernels: {info}")
        seen[info] = name


def made(name: str) -> Path:
    """Return the folder of a build other than the installed one, and compile it if it
    is missing or of another version.
    """
    folder, stamp = FOLDER / name, FOLDER / f"{name}.json"
    wanted = {"llama-cpp-python": version("llama-cpp-python"), "off": list(OFF[name])}
    if stamp.exists() and json.loads(stamp.read_text()) == wanted:
        return folder
    print(f"# compiling llama.cpp for {name}, 5 to 15 minutes", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    environment = os.environ | {"CMAKE_ARGS": " ".join(f"-D{option}=OFF" for option in OFF[name])}
    wheel = f"llama-cpp-python=={wanted['llama-cpp-python']}"
    source = ["--no-cache-dir", "--no-deps", "--no-binary", "llama-cpp-python", "--target", str(folder), wheel]
    install = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*install, *source], check=True, env=environment)
    stamp.write_text(json.dumps(wanted))
    return folder


def environment(name: str) -> dict[str, str]:
    """Return the environment of a process that runs on a build."""
    path = os.environ.get("PYTHONPATH", "")
    before = [] if name == INSTALLED else [str(made(name))]
    return os.environ | {"PYTHONPATH": os.pathsep.join([*before, *([path] if path else [])])}


def main(tests: Sequence[str]) -> int:
    """Show what the builds are, and run the tests on each; return 1 if any of them
    failed.
    """
    names = builds(platform.machine())
    if len(names) < len(OFF):
        print(f"# {platform.machine()} is no x86-64: {' and '.join(names)} alone")
    environments = {name: environment(name) for name in names}
    infos = {
        name: subprocess.run(
            [sys.executable, "-c", _SHOW], env=environments[name], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in names
    }
    for name, info in infos.items():
        print(f"# {name}: {info}", flush=True)
    try:
        require_different(infos)
    except SameKernelsError as error:
        print(f"# {error}", file=sys.stderr)
        return 1
    failed = []
    for name in names:
        print(f"# {name}: {' '.join(tests) or 'the whole suite'}", flush=True)
        run = subprocess.run([sys.executable, "-m", "pytest", *tests], env=environments[name], check=False, cwd=ROOT)
        failed += [name] * (run.returncode != 0)
    print(f"# failed on: {', '.join(failed)}" if failed else f"# passed on: {', '.join(names)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
