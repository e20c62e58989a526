"""Answer one question twice on the same model: by whole texts, and by masking tokens.

    python examples/score_or_mask.py [model.gguf]

A grammar in llama.cpp forbids every token that no choice continues with, and takes the best of the rest. Outlines and guidance
do the same, and are asked too where they are installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import llama_cpp

import selectrie

SMALL = Path(selectrie.__file__).parent / "assets" / "embedded.gguf"
PROMPT = "Q: Which city in the United States comes to mind? A:"
CHOICES = [" Chicago", " New Zealand"]


def masked(llama: llama_cpp.Llama) -> Iterator[tuple[str, str]]:
    """Yield the name and the answer of each program that masks, at temperature 0."""
    grammar = llama_cpp.LlamaGrammar.from_string("root ::= " + " | ".join(f'"{one}"' for one in CHOICES), verbose=False)
    answer = llama(PROMPT, grammar=grammar, temperature=0, max_tokens=8)
    yield "llama.cpp's grammar", answer["choices"][0]["text"]
    if find_spec("outlines"):
        outlines = import_module("outlines")
        model = outlines.from_llamacpp(llama, chat_mode=False)
        yield "outlines", model(PROMPT, outlines.types.Choice(CHOICES), temperature=0, max_tokens=8)
    if find_spec("guidance"):
        guidance = import_module("guidance")
        page = guidance.models.LlamaCpp(llama, echo=False) + PROMPT + guidance.select(CHOICES, name="city")
        yield "guidance", page["city"]


def main() -> None:
    llama = llama_cpp.Llama(str(sys.argv[1] if sys.argv[1:] else SMALL), n_ctx=512, verbose=False)
    for name, answer in masked(llama):
        print(f"{name:20}{answer}")
    with selectrie.load(llama) as llm:
        result = llm.select(PROMPT, CHOICES)
    print(f"{'whole texts':20}{result.text}, {result.probability / (1 - result.probability):.0f} times as likely")


if __name__ == "__main__":
    main()
