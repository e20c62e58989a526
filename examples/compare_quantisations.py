"""Score two quantisations of a model on the same items, and print the table for a paper.

    python examples/compare_quantisations.py [model-q8.gguf model-q4.gguf]

Without arguments it writes a 4-bit copy of the model that comes with selectrie, by llama.cpp, and compares the two.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import llama_cpp

import selectrie

ITEMS = Path(__file__).parent / "data" / "everyday.jsonl"
SMALL = Path(selectrie.__file__).parent / "assets" / "embedded.gguf"


def quantise(source: Path, target: Path) -> Path:
    """Write the model of a file with weights of four bits."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), params):
        raise OSError(f"{source} could not be quantized")
    return target


def score(model: Path) -> selectrie.evaluation.Evaluation:
    with selectrie.load(model) as llm:
        return selectrie.evaluate(llm, ITEMS, ["acc", "brier"], context="context", choices="choices", gold="gold")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        models = [Path(one) for one in sys.argv[1:3]] or [
            SMALL,
            quantise(SMALL, Path(folder) / "q4.gguf"),
        ]
        (found,) = selectrie.compare(*map(score, models))
    for one in found.differences:
        p = "" if one.p is None else f", p {one.p:.2f}"
        bounds = f"{one.interval.low:+.3f} to {one.interval.high:+.3f}"
        print(f"{one.metric}: {one.first:.3f} and {one.second:.3f}, difference {bounds}{p}")
    print(f"{found.n} items; {len(found.lost)} right only before, {len(found.gained)} only after")


if __name__ == "__main__":
    main()
