"""How long does it take to know which tokens a grammar allows? `python benchmarks/grammar.py`.

On the vocabulary of Qwen2 (151 936 tokens), for each GBNF grammar in the folder that SELECTRIE_TEST_DATA names (without it:
on a made vocabulary, with the grammars that come with selectrie, and nothing is checked), along the same texts:

- first: ours, the first time in a state; later: the same state again
- llama_cpp: llama.cpp's grammar sampler applied to all tokens, which takes as long at every step
- llguidance: its mask, where ours was asked in a state for the first time, and elsewhere and once more along all texts
  (left out where it is not installed or does not take the grammar)
- token: ours, all that a generation needs (grammar read and compiled, automaton made, allowed tokens, steps), a token

Texts are drawn from what is allowed, tokens of low ids more often, as frequent tokens have them. All is timed in turn in one
process, in every repeat from the start; figures are medians over steps and repeats. `--json` prints one object of them.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import llama_cpp
import numpy as np

from benchmarks._common import NO_TARGETS, Figures, Targets, arguments, refuse_under_load, report
from benchmarks.workload import data_file, generated_model
from selectrie.backends.llama_cpp.library import log
from selectrie.backends.llama_cpp.vocabulary import read_vocabulary
from selectrie.grammar.tokens.allowed import GrammarAutomaton
from selectrie.grammar.tokens.byte_trie import byte_trie
from selectrie.grammar.machine.compiling import compile_rules
from selectrie.grammar.readers.gbnf import read_gbnf
from selectrie.grammar.installed import installed_grammar
from selectrie.vocabulary import Vocabulary

TARGETS = Targets(
    at_most={
        "later_s": 50e-6,
        "first_s": 15e-3,
        "worst_first_over_llama_cpp": 1,
        "worst_token_s": 1e-3,
        "trie_s": 0.5,
    }
)
VOCABULARY = "weights/random_real_vocab/random-qwen2.gguf"
MOST_OF_A_TEXT = 40
Text: TypeAlias = list[tuple[int, bool]]
TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


@dataclass(frozen=True, slots=True)
class Bench:
    """A vocabulary, as ours and as llama.cpp's pointer, and what was measured: seconds by grammar and way."""

    vocabulary: Vocabulary
    vocab: Any
    tokenizer: Any
    n_tokens: int
    figures: Figures


def timed(figures: Figures, name: str, work: Callable[[], Any]) -> Any:
    """Do it, and note the seconds."""
    start = time.perf_counter()
    result = work()
    figures.add(name, time.perf_counter() - start)
    return result


def ours(bench: Bench, name: str, grammar: str, seed: int) -> list[Text]:
    """Draw texts of so many tokens in all, timing first look-ups; then look the same states up again.

    Returns the texts: tokens, and whether the state before each was new.
    """
    figures, rng = bench.figures, np.random.default_rng(seed)
    start = time.perf_counter()
    automaton = GrammarAutomaton(compile_rules(read_gbnf(grammar)), bench.vocabulary)
    seconds = time.perf_counter() - start
    figures.add(f"{name}_setup", seconds)
    texts: list[Text] = [[]]
    state, seen = automaton.start(), set()
    for _ in range(bench.n_tokens):
        start = time.perf_counter()
        allowed = automaton.allowed(state)
        seconds += (spent := time.perf_counter() - start)
        is_new = state not in seen
        figures.add(f"{name}_first" if is_new else f"{name}_later", spent)
        seen.add(state)
        ids = np.flatnonzero(allowed) if allowed.dtype == np.bool_ else allowed
        if len(ids) == 0 or len(texts[-1]) == MOST_OF_A_TEXT:
            texts.append([])
            state = automaton.start()
            continue
        token = int(ids[int(len(ids) * rng.random() ** 4)])
        start = time.perf_counter()
        state = automaton.advance(state, token)
        seconds += time.perf_counter() - start
        texts[-1].append((token, is_new))
    for each in seen:
        timed(figures, f"{name}_later", partial(automaton.allowed, each))
    figures.add(f"{name}_token", seconds / bench.n_tokens)
    return texts


def of_llama_cpp(bench: Bench, name: str, grammar: str, texts: list[Text]) -> None:
    """The sampler of llama.cpp along the texts, on all tokens; taking a token is not timed."""
    data = np.zeros(bench.vocabulary.n_tokens, dtype=TOKEN_DATA)
    data["id"] = np.arange(len(data))
    pointer = data.ctypes.data_as(llama_cpp.llama_token_data_p)
    array = llama_cpp.llama_token_data_array(data=pointer, size=len(data), selected=-1, sorted=False)
    for text in texts:
        sampler = llama_cpp.llama_sampler_init_grammar(bench.vocab, grammar.encode(), b"root")
        for token, _ in text:
            data["logit"] = 0
            timed(bench.figures, f"{name}_llama_cpp", partial(llama_cpp.llama_sampler_apply, sampler, array))
            if data["logit"][token] != 0:  # it lets no character end another way: see the tests
                break
            llama_cpp.llama_sampler_accept(sampler, token)
        llama_cpp.llama_sampler_free(sampler)


def of_llguidance(bench: Bench, name: str, grammar: str, texts: list[Text]) -> None:
    """Masks of llguidance along the texts, twice."""
    import llguidance

    try:
        matcher = llguidance.LLMatcher(bench.tokenizer, llguidance.grammar_from("gbnf", grammar), log_level=0)
    except ValueError:
        return
    for is_again in (False, True):
        for text in texts:
            each = matcher.deep_copy()
            for token, is_new in text:
                way = "first" if is_new and not is_again else "later"
                timed(bench.figures, f"{name}_llguidance_{way}", each.compute_bitmask)
                if each.is_error() or not each.consume_token(token):
                    break


def opened(path: Path) -> tuple[Vocabulary, Any]:
    """The vocabulary of a model file, read without its weights."""
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    log.install()
    with log.of_ours():
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model, path
    return read_vocabulary(model), llama_cpp.llama_model_get_vocab(model)


def tokenizer_of(vocabulary: Vocabulary) -> Any:
    """The vocabulary as llguidance wants it, or None where it is not installed."""
    if find_spec("llguidance") is None:
        return None
    from selectrie.grammar.guidance import _tokenizer

    return _tokenizer(vocabulary)


def grammars(folder: Path | None) -> dict[str, str]:
    """GBNF texts by name: those of a folder, else a few of our own."""
    if folder is None:
        return {name: installed_grammar(name) for name in ("json", "c-expression", "sql-select", "list")}
    return {path.stem.replace("-", "_"): path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.gbnf"))}


def summary(figures: Figures, names: list[str]) -> dict[str, Any]:
    """Medians by grammar, and over all grammars."""
    ways = ("first", "later", "llama_cpp", "llguidance_first", "llguidance_later", "token", "setup")
    found: dict[str, Any] = {}
    for way in ways:
        present = [f"{name}_{way}" for name in names if f"{name}_{way}" in figures.seconds]
        found |= {f"{key}_s": figures.median(key) for key in present}
        if present:
            found[f"{way}_s"] = median([second for key in present for second in figures.seconds[key]])
    over = {name: found[f"{name}_first_s"] / found[f"{name}_llama_cpp_s"] for name in names}
    found |= {f"{name}_first_over_llama_cpp": ratio for name, ratio in over.items()}
    found["worst_first_over_llama_cpp"] = max(over.values())
    found["worst_token_s"] = max(found[f"{name}_token_s"] for name in names)
    return found


def main() -> int:
    """Entry point of the script; its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a made vocabulary, few tokens, nothing is checked")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="names of grammars")
    options = parser.parse_args()
    refuse_under_load(allowed=options.under_load)
    real = None if options.quick else data_file(VOCABULARY)
    vocabulary, vocab = opened(real or generated_model("tiny", "f32"))
    texts_of = grammars(data_file("grammar/gbnf") if real else None)
    texts_of = {name: text for name, text in texts_of.items() if options.only is None or name in options.only}
    figures = Figures()
    timed(figures, "trie", lambda: byte_trie(vocabulary))
    bench = Bench(vocabulary, vocab, tokenizer_of(vocabulary), 20 if options.quick else 100, figures)
    for repeat in range(options.repeats):
        for name, grammar in texts_of.items():
            texts = ours(bench, name, grammar, repeat)
            of_llama_cpp(bench, name, grammar, texts)
            if bench.tokenizer is not None:
                of_llguidance(bench, name, grammar, texts)
    facts: dict[str, Any] = {"vocabulary": vocabulary.n_tokens, "grammars": len(texts_of), "repeats": options.repeats}
    facts["trie_s"] = figures.median("trie")
    targets = TARGETS if real and options.only is None else NO_TARGETS
    return report("grammar", facts | summary(figures, list(texts_of)), targets, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
