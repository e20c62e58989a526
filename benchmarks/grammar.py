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

Two more ask what a grammar costs a beam:

- copy: of a state, by `copy.deepcopy`, beside that of an int and the copy of a matcher of llguidance; advance: a step from a
  state that lets it be, beside copy and step of a matcher
- beam: a search of width 8 on random weights of the 0.5B shape (q8_0, `fast`) with that vocabulary, under the JSON grammar
  that comes with selectrie and under a JSON Schema (with llguidance); first: a grammar never seen before, read and compiled
  within the time; second: again, both on an empty cache. `outside` is the share of wall time not spent inside the model.
  What is made once for a model or its vocabulary (`trie`, for one) is there before. On the made vocabulary, most of whose
  tokens its tokenizer never writes beside each other, in any tokens instead of the tokenizer's own
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import time
from collections.abc import Callable
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import llama_cpp
import llguidance
import numpy as np

from benchmarks._common import NO_TARGETS, Figures, Targets, arguments, refuse_under_load, report
from benchmarks.workload import data_file, generated_model
from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.backends.llama_cpp.library import log
from selectrie.backends.llama_cpp.vocabulary import read_vocabulary
from selectrie.engine.engine import Engine
from selectrie.grammar import Grammar
from selectrie.grammar.grammar import installed_grammar
from selectrie.grammar.machine.compiling import compile_rules
from selectrie.grammar.machine.machine import Machine
from selectrie.grammar.readers.gbnf import read_gbnf
from selectrie.grammar.token_automaton import GrammarAutomaton
from selectrie.grammar.token_mask import byte_trie
from selectrie.options import BeamSearchParams
from selectrie.core.types import Precision
from selectrie.core.vocabulary import Vocabulary

TARGETS = Targets(
    at_most={
        "later_s": 50e-6,
        "first_s": 15e-3,
        "worst_first_over_llama_cpp": 1,
        "worst_token_s": 1e-3,
        "trie_s": 0.5,
        "beam_first_outside": 0.1,
        "beam_second_outside": 0.1,
        "copy_over_int": 1.1,  # the true ratio is 1; times this short vary
    }
)
VOCABULARY = "weights/random_real_vocab/random-qwen2.gguf"
MOST_OF_A_TEXT = 40
Text: TypeAlias = list[tuple[int, bool]]
N_COPIES, COPY_REPEATS = 10_000, 5
PROMPT = "The record as JSON: "
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array"}},
    "required": ["name", "age"],
}
TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


@dataclass(frozen=True, slots=True)
class Bench:
    """A vocabulary, as ours and as llama.cpp's pointer, and the figures: seconds by
    grammar and way.
    """

    vocabulary: Vocabulary
    vocab: Any
    tokenizer: Any
    n_tokens: int
    figures: Figures


def timed(figures: Figures, name: str, work: Callable[[], Any]) -> Any:
    """Call a function, and note the seconds."""
    start = time.perf_counter()
    result = work()
    figures.add(name, time.perf_counter() - start)
    return result


def ours(bench: Bench, name: str, grammar: str, seed: int) -> list[Text]:
    """Draw texts of this many tokens in all and time first look-ups; then look up the
    same states again.

    Returns the texts: tokens, and whether the state before each was new.
    """
    figures, rng = bench.figures, np.random.default_rng(seed)
    start = time.perf_counter()
    automaton = GrammarAutomaton(Machine(compile_rules(read_gbnf(grammar))), bench.vocabulary)
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
    """Time the sampler of llama.cpp along the texts, on all tokens; accepting a token
    is not timed.
    """
    data = np.zeros(bench.vocabulary.n_tokens, dtype=TOKEN_DATA)
    data["id"] = np.arange(len(data))
    pointer = data.ctypes.data_as(llama_cpp.llama_token_data_p)
    array = llama_cpp.llama_token_data_array(data=pointer, size=len(data), selected=-1, sorted=False)
    for text in texts:
        sampler = llama_cpp.llama_sampler_init_grammar(bench.vocab, grammar.encode(), b"root")
        for token, _ in text:
            data["logit"] = 0
            timed(bench.figures, f"{name}_llama_cpp", partial(llama_cpp.llama_sampler_apply, sampler, array))
            if data["logit"][token] != 0:  # it allows no character to end in another way: see the tests
                break
            llama_cpp.llama_sampler_accept(sampler, token)
        llama_cpp.llama_sampler_free(sampler)


def of_llguidance(bench: Bench, name: str, grammar: str, texts: list[Text]) -> None:
    """Time masks of llguidance along the texts, twice."""
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


def copies(bench: Bench) -> None:
    """Time copies of a state inside a JSON text, of an int and of a matcher there, and
    the steps that begin with a copy.
    """
    add, text = bench.figures.add, b'{"a": [1, '
    automaton = GrammarAutomaton(Machine(compile_rules(read_gbnf(installed_grammar("json")))), bench.vocabulary)
    state, token = automaton.walk(automaton.start(), text), bench.vocabulary.pieces.index(b"2")
    automaton.advance(state, token)
    plain = 10**6  # like a state, and unlike the numbers of which CPython holds one object for all
    ways: dict[str, Callable[[], Any]] = {
        "copy_int": partial(deepcopy, plain),
        "copy_state": partial(deepcopy, state),
        "advance": partial(automaton.advance, state, token),
    }
    grammar = llguidance.grammar_from("gbnf", installed_grammar("json"))
    matcher = llguidance.LLMatcher(bench.tokenizer, grammar, log_level=0)
    assert all(matcher.consume_token(bench.vocabulary.pieces.index(bytes([byte]))) for byte in text)
    ways["copy_llguidance"] = matcher.deep_copy
    ways["advance_llguidance"] = lambda: matcher.deep_copy().consume_token(token)
    for name, work in ways.items():
        start = time.perf_counter()
        for _ in range(N_COPIES):
            work()
        add(name, (time.perf_counter() - start) / N_COPIES)


def beams(llm: Engine, figures: Figures, beam: BeamSearchParams) -> dict[str, int]:
    """Time searches under grammars that were never used before, and again. Returns how
    many steps and rows they took.
    """
    made: dict[str, Callable[[], Grammar]] = {
        "beam": lambda: Grammar.from_gbnf(installed_grammar("json")),
        "beam_schema": lambda: Grammar.from_json_schema(SCHEMA),
    }
    counts = {}
    for name, make in made.items():
        llm.trim()
        start = time.perf_counter()
        grammar = make()
        for which in ("first", "second"):
            found = llm.beam_search(PROMPT, grammar, beam=beam)
            seconds = time.perf_counter() - start
            figures.add(f"{name}_{which}", seconds)
            figures.add(f"{name}_{which}_outside_decode", seconds - found.cost.decode_s)
            llm.trim()
            start = time.perf_counter()
        counts |= {f"{name}_steps": found.n_steps, f"{name}_rows": found.cost.rows}
    return counts


def searched(path: Path, figures: Figures, *, repeats: int, threads: int, beam: BeamSearchParams) -> dict[str, Any]:
    """Run beam searches on a model file; return the shares of their time outside
    `llama_decode`.
    """
    settings = LlamaOptions(n_ctx=4096, n_batch=512, n_threads=threads, precision=Precision.FAST)
    counts: dict[str, int] = {}
    with closing(Engine(open_model(path, settings))) as llm:
        beams(llm, Figures(), replace(beam, max_tokens=2))  # made once for a model and its vocabulary
        for _ in range(repeats):
            counts = beams(llm, figures, beam)
    names = [name for name in figures.seconds if name.startswith("beam") and not name.endswith("_outside_decode")]
    shares = {f"{name}_outside": figures.median(f"{name}_outside_decode") / figures.median(name) for name in names}
    return counts | {f"{name}_s": figures.median(name) for name in names} | shares


def copied(figures: Figures) -> dict[str, float]:
    """Return the seconds of copies and steps, and the ratio of a state's copy to that
    of an int and of a matcher.
    """
    names = [name for name in figures.seconds if name.startswith(("copy", "advance"))]
    found = {f"{name}_s": figures.median(name) for name in names}
    found["copy_over_int"] = found["copy_state_s"] / found["copy_int_s"]
    found["copy_over_llguidance"] = found["copy_state_s"] / found["copy_llguidance_s"]
    return found


def opened(path: Path) -> tuple[Vocabulary, Any]:
    """Return the vocabulary of a model file, read without its weights."""
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    log.install()
    with log.our_calls():
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model, path
    return read_vocabulary(model, path), llama_cpp.llama_model_get_vocab(model)


def tokenizer_of(vocabulary: Vocabulary) -> Any:
    """Return the vocabulary in the form that llguidance needs."""
    from selectrie.grammar.llguidance import _make_tokenizer

    return _make_tokenizer(vocabulary)


def grammars(folder: Path | None) -> dict[str, str]:
    """Return GBNF texts by name: those of a folder, else the installed ones."""
    if folder is None:
        return {name: installed_grammar(name) for name in ("json", "c-expression", "sql-select", "list")}
    return {path.stem.replace("-", "_"): path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.gbnf"))}


def summary(figures: Figures, names: list[str]) -> dict[str, Any]:
    """Return the medians by grammar, and over all grammars."""
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
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a made vocabulary, few tokens, nothing is checked")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="names of grammars")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the model that beams run on"
    )
    options = parser.parse_args()
    shape, beam = (
        ("tiny", BeamSearchParams(max_tokens=8))
        if options.quick
        else ("0.5b", BeamSearchParams(n=8, max_tokens=32, length_penalty=1))
    )
    real = None if options.quick else data_file(VOCABULARY)
    beam = replace(beam, canonical_only=real is not None)
    weights = generated_model(shape, "f32" if options.quick else "q8_0", real)
    refuse_under_load(allowed=options.under_load)
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
            of_llguidance(bench, name, grammar, texts)
        for _ in range(COPY_REPEATS):
            copies(bench)
    facts: dict[str, Any] = {"vocabulary": vocabulary.n_tokens, "grammars": len(texts_of), "repeats": options.repeats}
    facts["trie_s"] = figures.median("trie")
    facts |= copied(figures)
    facts |= searched(weights, figures, repeats=options.repeats, threads=options.threads, beam=beam)
    targets = TARGETS if real and options.only is None else NO_TARGETS
    return report("grammar", facts | summary(figures, list(texts_of)), targets, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
