"""Requests that are recorded and replayed, and a comparison of their answers."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial

import numpy as np

from selectrie import (
    BeamSearchParams,
    Engine,
    Grammar,
    RenderParams,
    SamplingParams,
    SearchParams,
    StopParams,
    Template,
)
from selectrie.core.types import SelfCheck
from selectrie.core.vocabulary import Vocabulary
from selectrie.engine.requests.loglikelihood import Sequences
from selectrie.testing import HashModel
from tests.support.deciding import BYTES, LIMITS, QUESTIONS, STATE

TIED = "x:"
"""A prompt after which all tokens are equally probable."""

CATS = [" cat", " bat", " car", " cat cat", " cats"]
ANY_TEXT = Grammar.from_regex(" (cat|bat|car)( cat| bat| car){0,3}")
TEMPLATE = Template("""\
It is <<#select 'one'>> cat<<or>> bat<</select>> and<<gen 'two' max_tokens=3 temperature=0>>.""")
GREEDY = SamplingParams(temperature=0)
SHORT = StopParams(max_tokens=5)


def hash_model(
    nodes: int = LIMITS.nodes, rows_per_call: int = LIMITS.rows_per_call, vocabulary: Vocabulary = BYTES
) -> HashModel:
    """A model that hashes its context, byte by byte."""
    tied = (0, *(2 + byte for byte in TIED.encode()))
    limits = replace(LIMITS, nodes=nodes, rows_per_call=rows_per_call)
    return HashModel(7, vocabulary=vocabulary, limits=limits, sharpness=0.5, planted={tied: [0.0] * BYTES.n_tokens})


def engine_of(model: HashModel) -> Engine:
    """An engine on a fake, with the self-check that it would make."""
    return Engine(model, check=SelfCheck(batch_multiple=8, moved=0.0, tolerance=2e-6, n_rows=160))


def _loglikelihoods(engine: Engine) -> object:
    with engine.loglikelihood_scorer(16) as scorer:
        return scorer.loglikelihoods(Sequences.of([([3, 4, 5], [6, 7]), ([3, 4], [8, 9, 10]), ([5], [6])]))


def _stream(engine: Engine) -> object:
    with engine.stream("a cat", n=2, seed=3, sampling=GREEDY, stopping=SHORT) as stream:
        chunks = list(stream)
    return [[chunk for chunk in chunks if chunk.index == index] for index in range(2)]


ASKED = {
    "select": lambda e: e.select("a cat", CATS),
    "select, healed": lambda e: e.select("a cat ", ["cat", "bat"]),
    "select, best first": lambda e: e.select("a cat", CATS, search=SearchParams(method="best_first")),
    "select, near tie": lambda e: e.select(TIED, ["a", "b", "c"]),
    "select, healed near tie": lambda e: e.rank(f"{TIED}", ["a", "b", "ab"], terminator="none"),
    "select, eog": lambda e: e.select("a cat", CATS, terminator="eog"),
    "select, pmi": lambda e: e.select("a cat", CATS, rule="pmi"),
    "rank": lambda e: e.rank("a cat", CATS),
    "score": lambda e: e.score("a cat", " cat bat", following="."),
    "select_many": lambda e: e.select_many([("one", CATS), ("a bat", CATS), ("one", CATS[:2])]),
    "decide": lambda e: e.decide(STATE, QUESTIONS),
    "grammar": lambda e: e.select("a cat", grammar=ANY_TEXT, search=SearchParams(max_tokens=4, budget_nodes=60)),
    "beam": lambda e: e.beam_search("a cat", ANY_TEXT, beam=BeamSearchParams(width=3, n=2, max_tokens=4)),
    "sample": lambda e: e.sample("a cat", ANY_TEXT, n=3, seed=5, search=SearchParams(max_tokens=4)),
    "sample, locally": lambda e: e.sample("a", ANY_TEXT, seed=5, exact=False, search=SearchParams(max_tokens=9)),
    "generate": lambda e: e.generate(["a cat", "a bat"], n=2, seed=5, stopping=SHORT),
    "generate, greedy": lambda e: e.generate("a cat", seed=5, sampling=GREEDY, stopping=SHORT),
    "stream": _stream,
    "prompt_logprobs": lambda e: e.prompt_logprobs(["a cat", "a bat", "a cat cat"], top=2),
    "prompt_logprobs again": lambda e: [e.prompt_logprobs(["a cat bat"], top=2) for _ in range(2)],
    "render": lambda e: e.render(TEMPLATE, rendering=RenderParams(seed=1)),
    "chat": lambda e: e.select([{"role": "user", "content": "a cat"}], CATS),
    "loglikelihoods": _loglikelihoods,
}
"""Requests by name, each a function of an engine."""

_OF_THE_CLOCK = frozenset({"id", "created", "decode_s", "seconds"})
_OF_THE_COST = frozenset({"cost", "rows_evaluated"})


def same_answer(  # noqa: PLR0911 - a case for each kind of value
    one: object, other: object, *, but: frozenset[str] = _OF_THE_CLOCK
) -> bool:
    """Return whether two answers are the same to the last bit, but for seconds.

    `but` has the names of fields that may differ.
    """
    same = partial(same_answer, but=but)
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return float(one).hex() == float(other).hex()
    if is_dataclass(one) and not isinstance(one, type):
        names = [field.name for field in fields(one) if field.name not in but and not field.name.startswith("_")]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, str | bytes | int | bool | None | Enum | frozenset | set):
        return one == other
    if callable(one) or not hasattr(one, "__dict__"):
        return True
    return same(*({k: v for k, v in vars(x).items() if k[:1] != "_"} for x in (one, other)))


def same_values(one: object, other: object) -> bool:
    """Return whether two answers are the same to the last bit, but for their cost."""
    return same_answer(one, other, but=_OF_THE_CLOCK | _OF_THE_COST)
