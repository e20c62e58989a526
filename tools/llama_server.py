"""Build llama-server from the sources of the llama.cpp that llama-cpp-python brings: `python tools/llama_server.py`.

The sources are those of its release (the sdist), which pip downloads. It takes about six minutes on two cores. What was
built stays in `build/llama-server`, by version; the path of the program is printed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "llama-cpp-python"
OPTIONS = (
    *("-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_CURL=OFF"),
    *("-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_OPENSSL=OFF"),
    # The program finds its libraries beside it; without this it looks in the folder of the build, which is deleted.
    "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",
)


def program() -> Path:
    """Where the program is, or would be."""
    return ROOT / "build" / "llama-server" / version(PACKAGE) / "bin" / "llama-server"


def build() -> Path:
    """Build the program unless it is there, and return its path."""
    target = program()
    if target.exists():
        return target
    cmake = shutil.which("cmake")
    if cmake is None:
        sys.exit("cmake is not installed: pip install cmake")
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{PACKAGE}=={version(PACKAGE)}"
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            PACKAGE,
            "-d",
            folder,
            wanted,
        ]
        subprocess.run(pip, check=True)
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as sources:
            sources.extractall(folder, filter="data")
        (sources_of,) = Path(folder).glob("*/vendor/llama.cpp")
        made = Path(folder) / "made"
        subprocess.run([cmake, "-S", sources_of, "-B", made, *OPTIONS], check=True)
        jobs = str(os.cpu_count() or 1)
        subprocess.run([cmake, "--build", made, "--target", "llama-server", "-j", jobs], check=True)
        # Another folder first, so that a copy that was interrupted or does not run is never taken for the program.
        copy = target.parent.with_name("bin.part")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(made / "bin", copy, symlinks=True)
        shutil.rmtree(made)
        subprocess.run([copy / target.name, "--version"], check=True, stdout=sys.stderr)
        copy.rename(target.parent)
    return target


if __name__ == "__main__":
    print(build())
