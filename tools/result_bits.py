"""Print every number of about 280 results to the last bit, to see whether a change of
code changed one.

    python tools/result_bits.py > before.json
    python tools/result_bits.py --check before.json

`--check` names each result that differs and where it differs first. For each kind of
result it then says how many differ, how many of these have another answer (winner, text
or tokens), and by how many nats log-probabilities differ at most.

The models are a fake, the model that comes with selectrie, the small weights in the
folder that SELECTRIE_TEST_DATA names, and every GGUF file in the folder that
SELECTRIE_REAL_MODELS names, each with one thread. The last are asked only
`ASKED_OF_REAL`. The names of results are used only here; only the tables below contain
the names that selectrie uses. Floats are written by `float.hex()`. Equal bits are
promised on one machine and one build only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import selectrie
from selectrie import evaluation, testing
from selectrie.errors import SelectrieError

PUBLIC = {
    "beam": "BeamSearchParams",
    "choice": "Choice",
    "decision": "DecisionParams",
    "engine": "Engine",
    "generation": "GenerationParams",
    "grammar": "Grammar",
    "predicate": "Predicate",
    "prompt": "PromptParams",
    "render": "RenderParams",
    "rule": "ScoringRule",
    "sampling": "SamplingParams",
    "scale": "Score",
    "search": "SearchParams",
    "stop": "StopParams",
    "template": "Template",
}
"""Public names of `selectrie`, by the names used here."""

COST = {"rows": "rows"}
TOKEN = {"id": "id", "logp": "logp"}
CHOICE = {
    "logp": "logp",
    "upper": "logp_upper",
    "terminator": "logp_terminator",
    "score": "score",
    "probability": "probability",
    "low": "probability_low",
    "high": "probability_high",
    "local": "logp_local",
    "shift": "boundary_shift",
    "tokens": ("tokens", [TOKEN]),
}
CERTIFICATE = {"proved": "proved", "gap": "bound_gap", "nodes": "nodes_evaluated", "method": "method"}
HEALED = {"log_heal": "log_heal", "heal_gap": "heal_gap"}
SELECTION = {
    "index": "index",
    "margin": "margin",
    "coverage": "coverage",
    "greedy": "greedy_index",
    "ends": "terminator",
    "open_mass": ("certificate", {"mass": "open_mass", **CERTIFICATE}),
    "choices": ("choices", [CHOICE]),
    "cost": ("cost", COST),
    **HEALED,
}
SCORED_TEXT = {"logp": "logp", "greedy": "is_greedy", "tokens": ("tokens", [TOKEN]), **HEALED}
HYPOTHESIS = {
    "text": "text",
    "logp": "logp",
    "path": "logp_path",
    "end": "logp_end",
    "score": "score",
    "tokens": ("tokens", [TOKEN]),
}
SAMPLES = {
    "mass": "mass",
    "low": "mass_low",
    "high": "mass_high",
    "attempts": "n_attempts",
    "texts": ("texts", [HYPOTHESIS]),
    **HEALED,
}
BEAM = {
    "steps": "n_steps",
    "merged": "n_merged",
    "dead_ends": "n_dead_ends",
    "certificate": ("certificate", CERTIFICATE),
    "texts": ("hypotheses", [HYPOTHESIS]),
    **HEALED,
}
COMPLETION = {
    "text": "text",
    "logp": "logp",
    "log_heal": "log_heal",
    "finish": "finish",
    "close": "close_steps",
    "tokens": ("tokens", [TOKEN]),
    "alternatives": ("alternatives", [[TOKEN]]),
}
GENERATION = {"completions": ("completions", [COMPLETION]), "prompt": "prompt_tokens"}
ASSIGNMENT = {"text": "text", "logp": "logp", "probability": "probability"}
JOINT = {
    "n": "n_assignments",
    "margin": "margin",
    "coverage": "coverage",
    "marginals": "marginals",
    "assignments": ("assignments", [ASSIGNMENT]),
    "certificate": ("certificate", CERTIFICATE),
    **HEALED,
}
SAMPLED_CHOICE = {"index": "index", "probability": "probability", "set": ("selection", SELECTION)}
DECISION = {
    "value": "value",
    "confidence": "confidence",
    "mass": "label_mass",
    "margin": "margin",
    "spread": "spread",
    "selections": ("selections", [SELECTION]),
}
PROMPT = {"tokens": "tokens", "logp": "logp", "greedy": "is_greedy", "top": "top", "named": "named"}
RECORDS = (
    ("completions", GENERATION),
    ("hypotheses", BEAM),
    ("assignments", JOINT),
    ("mass", SAMPLES),
    ("label_mass", DECISION),
    ("selection", SAMPLED_CHOICE),
    ("choices", SELECTION),
    ("named_ids", PROMPT),
    ("is_greedy", SCORED_TEXT),
)
"""How to read each kind of record, recognised by an attribute that no kind before it
has.
"""

MEASURED = {
    "logp": "logp",
    "greedy": "is_greedy",
    "tokens": "n_tokens",
    "unconditional": "logp_unconditional",
    "premise": "logp_premise",
    "content_free": "logp_content_free",
}
FIGURE = {"value": "value", "stderr": "stderr", "low": "low", "high": "high"}
WEIGHTS = ("stories260K", "random-swa-gemma3", "random-hybrid-qwen35", "tiny-rwkv-7v0-834K")
"""Files of the test data."""

REAL = "real "
"""What the names of real models begin with."""

ASKED_OF_REAL = (
    "tolerance",
    "select.eog",
    "select.unless-continued",
    "select.token_mean",
    "select.open_end",
    "rank.all",
    "search.best_first",
    "decide.choice",
    "decide.predicate",
    "grammar.select",
    "beam",
    "generate.greedy",
    "generate.heal",
    "score",
    "prompt",
    "page.slots",
)
"""What real models are asked: less than others, because they are slow."""

NATS = {
    *("logp", "upper", "terminator", "score", "local", "shift", "margin", "path", "end", "top", "named"),
    *("gap", "log_heal", "heal_gap", "unconditional", "premise", "content_free", "tolerance"),
}
"""Fields with log-probabilities, their sums, means and differences."""

WORK = {"rows", "nodes", "steps", "merged", "dead_ends", "attempts", "method"}
"""Fields that say how an answer was found."""

Bits = dict[str, object]


def record(name: str, *args: Any, **options: Any) -> Any:
    """Return a record of selectrie by the name that it has here."""
    return getattr(selectrie, PUBLIC[name])(*args, **options)


def bits(value: object) -> object:
    """Return a value as JSON: floats by their bits, tuples as lists."""
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (tuple, list)):
        return [bits(one) for one in value]
    return float(value).hex()  # type: ignore[arg-type]


def read(value: Any, fields: Any) -> object:
    """Return the named fields of a record, or of each record in a sequence if the
    fields are in a list.
    """
    if value is None:
        return None
    if isinstance(fields, list):
        return [read(one, fields[0]) for one in value]
    found = {}
    for name, field in fields.items():
        attribute, inner = (field, None) if isinstance(field, str) else field
        got = getattr(value, attribute)
        found[name] = bits(got) if inner is None else read(got, inner)
    return found


def shown(result: Any) -> object:
    """Return a result of any kind as JSON."""
    if isinstance(result, (list, tuple)):
        return [shown(one) for one in result]
    for attribute, fields in RECORDS:
        if hasattr(result, attribute):
            return read(result, fields)
    if hasattr(result, "pieces"):
        return {"text": result.text, "slots": {name: shown(one) for name, one in result.selections.items()}}
    if hasattr(result, "tasks"):
        return [
            {
                "figures": {name: read(one, FIGURE) for name, one in sorted(task.figures.metrics.items())},
                "items": [read(one.choices, [MEASURED]) for one in task.records],
            }
            for task in result.tasks
        ]
    return bits(result)


Work = Iterator[tuple[str, Callable[[], object]]]


def selections(llm: Any, prompt: str, texts: list[str], long: list[str]) -> Work:
    """Yield calls with sets of choices: terminators, rules, priors, boundaries, searches,
    batches.
    """
    for end in ("none", "eog", "unless-continued"):
        yield f"select.{end}", lambda end=end: llm.select(prompt, texts, terminator=end)
    yield "select.following", lambda: llm.select(prompt, texts, following=".")
    for rule in ("token_mean", "char_mean", "byte_mean"):
        yield f"select.{rule}", lambda rule=rule: llm.select(prompt, texts, rule=rule)
    yield "select.prior", lambda: llm.select(prompt, texts, prior=[1 + i % 3 for i in range(len(texts))])
    for boundary in ("split", "harness"):
        yield f"select.{boundary}", lambda b=boundary: llm.select(prompt, texts, prompting=record("prompt", boundary=b))
    yield (
        "select.open_end",
        lambda: llm.select(prompt + texts[0][:2], [one[2:] for one in texts if one[:2] == texts[0][:2]]),
    )
    yield "rank.all", lambda: llm.rank(prompt, texts)
    yield "rank.two", lambda: llm.rank(prompt, long, search=record("search", k=2))
    for method in ("exhaustive", "best_first"):
        yield (
            f"search.{method}",
            lambda m=method: llm.select(prompt, long, search=record("search", method=m, k=3, width=4)),
        )
    yield "search.mass", lambda: llm.select(prompt, long, search=record("search", method="best_first", stop="mass"))
    yield (
        "search.budget",
        lambda: llm.select(prompt, long, search=record("search", method="best_first", budget_nodes=3)),
    )
    yield "score", lambda: llm.score(prompt, texts[0])
    yield "score.following", lambda: llm.score(prompt, texts[-1], following=".")


def several_tasks(llm: Any, prompt: str, texts: list[str]) -> Work:
    """Yield calls that make requests of more than one task.

    Time decides which tasks share a call, and real weights then give other bits.
    """
    content_free = record("rule", "calibrated", content_free=("a", "b"))
    yield "select.pmi", lambda: llm.select(prompt, texts, rule="pmi")
    yield "select.calibrated", lambda: llm.select(prompt, texts, rule=content_free)
    yield "batch", lambda: llm.select_many([(prompt, texts), (prompt[:-1], texts)], rule="batch")
    yield (
        "generate.several",
        lambda: llm.generate([prompt, prompt[:-1]], n=2, seed=3, stopping=record("stop", max_tokens=8)),
    )


def grammars(llm: Any, prompt: str, pattern: str) -> Work:
    """Yield calls for the texts of a grammar: searched, drawn, and by a beam."""
    grammar = record_class("grammar").from_regex(pattern)
    search = record("search", max_tokens=6, budget_nodes=60)
    yield "grammar.select", lambda: llm.select(prompt, grammar=grammar, search=search)
    yield (
        "grammar.any_path",
        lambda: llm.select(
            prompt, grammar=grammar, search=record("search", max_tokens=4, budget_nodes=40, canonical_only=False)
        ),
    )
    yield "sample.exact", lambda: llm.sample(prompt, grammar, n=3, seed=5, search=search)
    yield "sample.by_token", lambda: llm.sample(prompt, grammar, n=3, seed=5, exact=False, search=search)
    yield "beam", lambda: llm.beam_search(prompt, grammar, beam=record("beam", width=4, n=3, max_tokens=6))
    yield (
        "beam.penalty",
        lambda: llm.beam_search(
            prompt,
            grammar,
            beam=record("beam", width=4, n=2, max_tokens=6, length_penalty=0.7, groups=2, diversity=0.5),
        ),
    )
    yield (
        "beam.exact",
        lambda: llm.beam_search(
            prompt, grammar, beam=record("beam", width=4, n=2, max_tokens=5, exact=True, budget_nodes=60)
        ),
    )


def decisions(llm: Any) -> Work:
    """Yield calls that answer one question of each kind, in a stated layout."""
    params = record("decision", layout="state first")
    state = "Tom lost his red ball in the park. He was sad."
    yield (
        "decide.choice",
        lambda: llm.decide(state, record("choice", "What did Tom lose?", ["a ball", "a cat", "a car"]), params=params),
    )
    yield "decide.predicate", lambda: llm.decide(state, record("predicate", "Tom is happy."), params=params)
    levels = ["not", "a little", "very"]
    yield "decide.score", lambda: llm.decide(state, record("scale", "How sad is Tom?", levels), params=params)


def record_class(name: str) -> Any:
    """Return a class of selectrie by the name that it has here."""
    return getattr(selectrie, PUBLIC[name])


def generations(llm: Any, prompt: str, texts: list[str]) -> Work:
    """Yield calls for sequences: drawn, greedy, penalised, healed, among choices, two prompts."""
    stop = record("stop", max_tokens=8)
    yield "generate", lambda: llm.generate(prompt, seed=3, stopping=stop)
    yield (
        "generate.greedy",
        lambda: llm.generate(prompt, seed=0, sampling=record("sampling", temperature=0.0), stopping=stop),
    )
    yield (
        "generate.penalty",
        lambda: llm.generate(
            [prompt, prompt[:-1]],
            seed=7,
            sampling=record("sampling", repeat_penalty=1.3, presence_penalty=0.2, typical_p=0.9, top_k=0),
            stopping=stop,
        ),
    )
    yield (
        "generate.heal",
        lambda: llm.generate(prompt, seed=1, stopping=stop, options=record("generation", heal=True, n_alternatives=2)),
    )
    yield (
        "generate.choices",
        lambda: llm.generate(
            prompt, seed=2, stopping=record("stop", max_tokens=16), options=record("generation", choices=texts[:3])
        ),
    )


def pages(llm: Any, prompt: str, texts: list[str], pattern: str) -> Work:
    """Yield calls that render templates: slots, loops, joint blocks that are listed."""
    options = list(dict.fromkeys(one.strip() for one in texts))[:3]
    slots = f"{prompt} <<select 'one' options=options>> <<gen 'two' max_tokens=4>> <<gen 'three' regex='{pattern}' max_tokens=4>>"
    loop = f"{prompt}<<#each options>> <<this>> <<select 'kind' options=options temperature=0.8>><</each>>"
    joint = f"{prompt}<<#joint k=2>> <<select 'a' options=options>> <<select 'b' options=options>><</joint>>"
    for name, source in (("slots", slots), ("loop", loop), ("joint", joint)):
        yield (
            f"page.{name}",
            lambda source=source: llm.render(
                record("template", source), options=options, rendering=record("render", seed=4)
            ),
        )


def evaluations(llm: Any, prompt: str, texts: list[str]) -> Work:
    """Yield calls that evaluate items of benchmarks."""
    items = [
        evaluation.Item(prompt[: len(prompt) - i], tuple(text.strip() for text in texts[:3]), (i % 3,))
        for i in range(4)
    ]
    metrics = ("acc", "acc_norm", "acc_mutual_info", "brier")
    yield "evaluate", lambda: evaluation.evaluate(llm, items, metrics=metrics)


def work(llm: Any, prompt: str, texts: list[str], long: list[str], pattern: str) -> Work:
    """Yield everything that one model is asked."""
    yield "tolerance", lambda: llm.tolerance
    yield from selections(llm, prompt, texts, long)
    yield from grammars(llm, prompt, pattern)
    yield from generations(llm, prompt, texts)
    yield from pages(llm, prompt, texts, pattern)
    yield from evaluations(llm, prompt, texts)
    yield from decisions(llm)
    yield "prompt", lambda: llm.prompt_logprobs([prompt], top=2, named=[1, 2])
    if llm.identity.backend == "selectrie.testing":
        yield from several_tasks(llm, prompt, texts)


WORDS = [f" {a} {b}" for a in ("red", "green", "big", "little") for b in ("car", "cat", "house", "ball", "bird")]


def models() -> Iterator[tuple[str, Any, tuple[str, list[str], list[str], str]]]:
    """Yield the name of each model, an engine, and what it is asked."""
    tiny = [" cat", " cats", " car", " a", "a", " bat", " b"]
    many = [f" {a}{b}" for a in ("cat", "bat", "car", "b") for b in ("", "s", " a", " cat", "us")]
    yield "fake", record("engine", testing.HashModel(7)), ("a cat", tiny, many, " (a|b|ca)( cat| bat){1,3}")
    texts = [" park", " park to play", " store", " moon", " parks"]
    asked = ("Once upon a time there was a girl. She went to the", texts, WORDS, " (big |small )*(cat|dog|car)")
    yield "embedded", selectrie.load(n_threads=1, n_ctx=512), asked
    folder = os.environ.get("SELECTRIE_TEST_DATA", "")
    for name in WEIGHTS:
        path = Path(folder, "weights", f"{name}.gguf")
        if folder and path.exists():
            yield name, selectrie.load(path, n_threads=1, n_ctx=512), asked
        else:
            print(f"# without {name}: SELECTRIE_TEST_DATA names no folder with it", file=sys.stderr)
    for path in real_models():
        yield f"{REAL}{path.stem}", selectrie.load(path, n_threads=1, n_ctx=512), asked


def real_models() -> list[Path]:
    """Return the files of real models, or say that there are none."""
    folder = os.environ.get("SELECTRIE_REAL_MODELS", "")
    files = sorted(Path(folder).glob("*.gguf")) if folder else []
    if not files:
        print("# without real models: SELECTRIE_REAL_MODELS names no folder with GGUF files", file=sys.stderr)
    return files


def results() -> Bits:
    """Return every result by its name: `MODEL/KIND`, or `MODEL/KIND.VARIANT`."""
    found: Bits = {}
    for model, llm, asked in models():
        with llm:
            for name, answer in work(llm, *asked):
                if name in ASKED_OF_REAL or not model.startswith(REAL):
                    llm.trim()  # the places of cells must not depend on how earlier requests were batched
                    found[f"{model}/{name}"] = answered(answer)
    return found


def answered(answer: Callable[[], object]) -> object:
    """Return a result as JSON, or the error code if the request is refused."""
    try:
        return shown(answer())
    except SelectrieError as error:
        return f"error: {error.code}"


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return the names of results that differ, or that only one of the two has."""
    return sorted(name for name in {*before, *after} if before.get(name, ...) != after.get(name, ...))


def changes(before: object, after: object, place: str = "") -> Iterator[tuple[str, object, object]]:
    """Yield each place where two results differ, and what stands there in each."""
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        pairs = [(str(key), before[key], after[key]) for key in before]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(str(i), *both) for i, both in enumerate(zip(before, after, strict=True))]
    else:
        if before != after:
            yield place, before, after
        return
    for key, old, new in pairs:
        yield from changes(old, new, f"{place}.{key}".lstrip("."))


def first_difference(before: object, after: object) -> str:
    """Say where two results differ first, and how."""
    place, old, new = next(changes(before, after))
    return f"{place or 'all of it'} was {json.dumps(old)[:80]}, is {json.dumps(new)[:80]}"


def effect(kind: str, before: object, after: object) -> tuple[bool, float]:
    """Return whether the answer is another, and by how many nats numbers differ at most.

    Numbers other than log-probabilities, and the work, are neither.
    """
    is_other, most = False, 0.0
    for place, old, new in changes(before, after, kind):
        field = [part for part in place.split(".") if not part.isdigit()][-1]
        numbers = [float.fromhex(one) for one in (old, new) if isinstance(one, str) and _FLOAT.fullmatch(one)]
        if len(numbers) < 2:
            is_other = is_other or field not in WORK
        elif field in NATS:
            most = max(most, abs(numbers[0] - numbers[1]))
    return is_other, most


_FLOAT = re.compile(r"-?(0x[01]\.[0-9a-f]+p[+-][0-9]+|inf)|nan")


def summary(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Say for each kind of result how many differ and how far, if some do."""
    effects: dict[str, list[tuple[bool, float]]] = {}
    for name in differences(before, after):
        kind = _kind(name)
        effects.setdefault(kind, []).append(effect(kind, before.get(name), after.get(name)))
    n_results = Counter(_kind(name) for name in {*before, *after})
    return [
        f"{kind}: {len(found)} of {n_results[kind]} differ, by at most {max(most for _, most in found):.3g} nats;"
        f" {sum(is_other for is_other, _ in found)} with another answer"
        for kind, found in sorted(effects.items())
    ]


def _kind(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def main(arguments: list[str] | None = None) -> int:
    """Print the results, or compare them with those of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="FILE", type=Path, help="compare with what was printed before")
    options = parser.parse_args(arguments)
    sys.setswitchinterval(60)  # otherwise chance decides which tasks of a request are evaluated in one call
    with tempfile.TemporaryDirectory() as home:  # so that the self-check of an earlier run is not reused
        os.environ["HOME"] = home
        found = json.loads(json.dumps(results()))
    if options.check is None:
        print(json.dumps(found, indent=1, sort_keys=True))
        return 0
    before = json.loads(options.check.read_text(encoding="utf-8"))
    others = differences(before, found)
    for name in others:
        print(f"{name}: {first_difference(before.get(name), found.get(name))}")
    print("\n".join([*summary(before, found), f"{len(found)} results, {len(others)} differ"]))
    return int(bool(others))


if __name__ == "__main__":
    sys.exit(main())
