"""Time to turn 10^5 choices into tokens, after a short and a long prompt: the work
before the first model call.

The benchmark runs every vocabulary in the folder that SELECTRIE_TEST_DATA names
(`weights/random_real_vocab`) on its lemmas, or without that folder the vocabulary of a
generated model on made words. The whole encoding is timed: boundary, tokens, distinct
paths.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import time
from pathlib import Path
from typing import Any

import selectrie
from benchmarks._common import Targets, arguments, refuse_under_load, report
from benchmarks.workload import byte_bpe, data_file, generated_model, words
from selectrie.tokenization.encoding import encode_choices
from selectrie.options import PromptParams
from selectrie.tokenization.prompts import read_prompt
from selectrie.core.vocabulary import Vocabulary

MOST_S = 5.0
"""Bound for 10^5 choices, whatever the prompt."""
PROMPT_BYTES = {"short": 24, "long": 20_000}
"""Lengths of the prompts: about 6 and 5 000 tokens."""


def models() -> list[Path]:
    """Return the real vocabularies if they are installed, else that of a generated
    model.
    """
    folder = data_file("weights/random_real_vocab")
    return sorted(folder.glob("*.gguf")) if folder else [generated_model("tiny", "f32")]


def prompt_of(n_bytes: int) -> str:
    """Return English text of this many bytes that ends with a word."""
    return (byte_bpe.TEXT * (1 + n_bytes // len(byte_bpe.TEXT)))[:n_bytes].rsplit(" ", 1)[0]


def measure(vocabulary: Vocabulary, prompt: str, choices: list[bytes], following: bytes) -> tuple[float, int]:
    """Return the seconds to encode the choices, and their tokens. One choice is encoded
    before, to build the vocabulary's tables.
    """
    read = read_prompt(vocabulary, prompt, PromptParams())
    encode_choices(vocabulary, read, choices[:1], following)
    start = time.perf_counter()
    encoded = encode_choices(vocabulary, read, choices, following)
    return time.perf_counter() - start, len(encoded.tokens)


def main() -> int:
    """Run and report; return the exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--choices", type=int, default=100_000, help="with another number there are no targets")
    options = parser.parse_args()
    refuse_under_load(allowed=options.under_load)
    choices = [word.encode() for word in words(options.choices)]
    figures: dict[str, Any] = {"choices": len(choices)}
    bounds: dict[str, float] = {}
    for path in models():
        with selectrie.load(path, n_ctx=256, n_threads=1) as llm:
            for length, n_bytes in PROMPT_BYTES.items():
                for ending, following in (("", b""), ("_closed", b".")):
                    name = f"{path.stem.removeprefix('random-')}_{length}{ending}"
                    seconds, n_tokens = measure(llm.vocabulary, prompt_of(n_bytes), choices, following)
                    figures |= {f"{name}_s": seconds, f"{name}_tokens": n_tokens}
                    bounds[f"{name}_s"] = MOST_S
    targets = Targets(at_most=bounds if options.choices == 100_000 else {})
    return report("encode", figures, targets, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
