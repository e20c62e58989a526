"""Lists, searches and slots agree on weights behind prompts that are cut anywhere.

Draws behind prompts that end within words have the law of the list.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

import byte_bpe
import selectrie
from selectrie import BeamSearchParams, Engine, Grammar, Hypothesis, SearchParams, Selection, Template
from selectrie.core.types import Limits, ModelKind
from selectrie.engine.precision_check import SelfCheck
from selectrie.errors import NothingFoundError
from selectrie.testing import HashModel
from selectrie.tokenization import canonical
from tests.support import made_vocabularies
from tests.support.measured import score_nats
from tests.support.real_data import REAL_VOCABULARIES, real_file
from tests.support.vocabularies import vocabulary_of

WEIGHTS = (
    "embedded",
    "stories260K.gguf",
    "tiny-rwkv-7v0-834K.gguf",
    "random-hybrid-qwen35.gguf",
    "random-swa-gemma3.gguf",
    *(f"random_real_vocab/random-{name}.gguf" for name in REAL_VOCABULARIES),
)
ENGLISH = " ".join(byte_bpe.TEXT.split())
PAGES = {
    "beam": Template("<<prompt>><<beam 'x' regex=pattern terminator='eog'>>"),
    "select": Template("<<prompt>><<select 'x' regex=pattern terminator='eog'>>"),
}


@pytest.fixture(scope="module")
def engine_of(embedded) -> Iterator[Callable[[str], Engine]]:
    """The engine of a name in `WEIGHTS`; a skip where its file is not there."""
    with ExitStack() as opened:

        @cache
        def load(name: str) -> Engine:
            path = embedded if name == "embedded" else real_file(f"weights/{name}")
            return opened.enter_context(selectrie.load(path, n_threads=1))

        yield load


def sources() -> list[str]:
    """Books and stories of the test data."""
    return [
        Path(real_file(f"text/{name}")).read_text(encoding="utf-8")
        for name in ("english_books_sample.txt", "tinystories_sample.txt")
    ]


def cut(rng: random.Random, source: str) -> tuple[str, list[str]]:
    """A prompt that ends anywhere in a text, and two to six texts that may follow.

    None is the beginning of another, and one may go on as the source does.
    """
    while True:
        place = rng.randrange(80, len(source) - 40)
        prompt = source[place - rng.randrange(20, 80) : place]
        texts = {source[place : place + rng.randrange(1, 10)]}
        for _ in range(rng.randrange(1, 6)):
            start = rng.randrange(len(source) - 20)
            texts.add(source[start : start + rng.randrange(1, 8)])
        texts = {one for one in texts if not any(other != one and other.startswith(one) for other in texts)}
        if len(texts) > 1:
            return prompt, sorted(texts)


@dataclass
class Tried:
    """What the law found: questions that differ, and what it was tried at."""

    different: list[object] = field(default_factory=list)
    cuts: int = 0
    within_words: int = 0
    proofs: int = 0
    unproved: Counter[str] = field(default_factory=Counter)
    near_ties: int = 0


def nats_of(tolerance: float, found: Hypothesis) -> float:
    """Nats by which layout may move a found text's log-probability.

    A row is read for each token and one for the end.
    """
    return tolerance * (len(found.tokens) + 1)


def moves(listed: Selection, found: list[Hypothesis]) -> list[tuple[float, float]]:
    """How far the difference between a text and the first is from the list's.

    Each with the nats by which layout may move it.
    """
    tolerance = listed.signature.tolerance
    assert tolerance is not None
    logp = {one.text: one.logp for one in listed.choices}
    nats = dict(zip(logp, score_nats(listed).tolist(), strict=True))
    first = found[0]
    return [
        (
            abs((one.logp - first.logp) - (logp[one.text] - logp[first.text])),
            sum(nats_of(tolerance, each) + nats[each.text] for each in (one, first)),
        )
        for one in found[1:]
    ]


def compare_beams(engine: Engine, prompt: str, texts: list[str], tried: Tried, *, with_draws: bool) -> None:
    """Ask a list, an exact search and a wide beam; look at the mass of draws too."""
    listed = engine.select(prompt, texts, terminator="none")
    grammar = Grammar.from_choices(texts)
    for exact in (True, False):
        beam = BeamSearchParams(
            width=64, n=len(texts), exact=exact, terminator="none", budget_nodes=4_000 if exact else None
        )
        found = engine.beam_search(prompt, grammar, beam=beam)
        if not found.certificate.proved:
            tried.unproved["exact beam" if exact else "beam"] += 1
            continue
        tried.proofs += 1
        if set(found.texts) != set(texts) or found[0].logp < max(one.logp for one in found):
            tried.different.append((prompt, texts, "texts", exact, found.texts))
        elif wrong := [(moved, nats) for moved, nats in moves(listed, list(found)) if moved > nats]:
            tried.different.append((prompt, texts, "differences", exact, wrong))
        elif exact and with_draws:
            drawn = engine.sample(prompt, grammar, n=3, seed=tried.cuts, terminator="none")
            mass = math.fsum(math.exp(one.logp) for one in found)
            moved = math.exp(2 * max(nats_of(found.signature.tolerance, one) for one in found))
            if not drawn.mass_low / moved <= mass <= drawn.mass_high * moved or {one.text for one in drawn} - set(
                texts
            ):
                tried.different.append((prompt, texts, "draws", drawn, mass))


def compare_searches(engine: Engine, prompt: str, texts: list[str], tried: Tried, *, with_pages: bool) -> None:
    """Ask `select` and slots for the best of a set that is too large to be listed.

    No text of a list that holds what they found is better.
    """
    pattern = f"({'|'.join(map(re.escape, texts))})([0-9]{{5}})?"
    grammar = Grammar.from_regex(pattern)
    searched = engine.select(prompt, grammar=grammar, terminator="eog", search=SearchParams(budget_nodes=4_000))
    answers = {"search": searched}
    if with_pages:
        pages = {name: engine.render(page, prompt=prompt, pattern=pattern) for name, page in PAGES.items()}
        answers |= {name: page.selections["x"] for name, page in pages.items()}
    tried.unproved.update(name for name, one in answers.items() if not one.certificate.proved)
    found = {name: one.text for name, one in answers.items() if one.certificate.proved}
    tried.proofs += len(found)
    listed = engine.select(prompt, sorted({*texts, *found.values()}), terminator="eog")
    logp = {one.text: one.logp for one in listed.choices}
    nats = dict(zip(logp, score_nats(listed).tolist(), strict=True))
    best = max(logp, key=logp.__getitem__)
    for name, text in found.items():
        tried.near_ties += text != best
        if logp[best] - logp[text] > 2 * (nats[best] + nats[text]):
            tried.different.append((prompt, texts, name, text, logp))


def compared(engine: Engine, rng: random.Random, texts: list[str], n: int, *, pages_each: int) -> Tried:
    """Try the law at `n` cuts, one in `pages_each` with templates and draws too."""
    tried = Tried()
    for i in range(n):
        prompt, options = cut(rng, rng.choice(texts))
        tried.cuts += 1
        tried.within_words += prompt[-1].isalpha() and any(text[0].isalpha() for text in options)
        compare_beams(engine, prompt, options, tried, with_draws=i % pages_each == 0)
        compare_searches(engine, prompt, options, tried, with_pages=i % pages_each == 0)
    return tried


def test_a_search_on_weights_is_the_list(engine_of):
    """The embedded model gives one order, and equal differences, whichever way it is asked."""
    tried = compared(engine_of("embedded"), random.Random(1), [ENGLISH], 8, pages_each=4)
    assert tried.different == []
    assert tried.proofs >= 16
    assert tried.within_words >= 3


def test_a_context_that_is_too_long_is_not_the_list(engine_of, monkeypatch):
    """Where one token alone is taken back, what is proved is not the list."""
    monkeypatch.setattr(canonical, "_n_settled", lambda _vocabulary, _prompt, own: (len(own) - 1, ""))
    tried = Tried()
    compare_beams(engine_of("embedded"), "Once upon a ti", ["me", "n", "p"], tried, with_draws=False)
    assert tried.different


@pytest.mark.long
@pytest.mark.parametrize("name", WEIGHTS)
def test_searches_on_weights_are_their_lists(name, engine_of, record_property):
    """The law holds at 200 cuts of books and stories for each vocabulary."""
    tried = compared(engine_of(name), random.Random(2), sources(), 200, pages_each=4)
    assert tried.different == []
    for counted in ("cuts", "within_words", "proofs", "near_ties"):
        record_property(counted, getattr(tried, counted))
    for how, n in tried.unproved.items():
        record_property(f"unproved by {how}", n)


# Draws behind prompts that end within words

FALSE_ALARMS = 1e-6
"""How often chance alone would fail a test of draws, whose seeds are fixed."""
N_DRAWN = 500
WITHIN = (
    ("They were very ha", ["ppy", "rd", "lf"]),
    ("Lily had a red c", ["oat", "at", "up"]),
    ("Once upon a time there was a litt", ["le d", "le c", "er"]),
)
"""Prompts and texts between which the embedded model is in doubt."""
MADE_WITHIN = (
    ("i was charged an extra fee on my account stat", ["at", "eme", "nd"]),
    ("the card is about to expire, it was swa", ["a", "he", "llowe"]),
)
"""The same of hashed fakes over made vocabularies.

Of each, one text changes two tokens of the prompt.
"""
LIMITS = Limits(nodes=4096, sequences=256, rows_per_call=512, kind=ModelKind.ATTENTION, max_idle_rows=4096)


def p_of(engine: Engine, questions: list[tuple[str, list[str]]], *, exact: bool = True, n: int = N_DRAWN) -> float:
    """How probable draws at least as far from the list's probabilities are.

    By Pearson's chi-square over all questions; zero where nothing can be drawn.
    Questions of an odd number of texts have an even number of degrees of freedom,
    for which the tail has a closed form.
    """
    statistic, n_free = 0.0, 0
    for prompt, texts in questions:
        share = shares(engine, prompt, texts)
        grammar = Grammar.from_choices(texts)
        try:
            drawn = engine.sample(prompt, grammar, n=n, seed=1, exact=exact, terminator="none")
        except NothingFoundError:
            return 0.0
        counts = Counter(one.text for one in drawn)
        assert set(counts) <= set(texts)
        assert drawn.exact == exact
        statistic += sum((counts[text] - n * p) ** 2 / (n * p) for text, p in share.items())
        n_free += len(texts) - 1
    assert n_free
    assert n_free % 2 == 0
    half = statistic / 2
    return math.exp(-half) * math.fsum(half**i / math.factorial(i) for i in range(n_free // 2))


def shares(engine: Engine, prompt: str, texts: list[str]) -> dict[str, float]:
    """The list's probability of each text among them."""
    listed = engine.select(prompt, texts, terminator="none").choices
    best = max(one.logp for one in listed)
    total = math.fsum(math.exp(one.logp - best) for one in listed)
    return {one.text: math.exp(one.logp - best) / total for one in listed}


@pytest.fixture(scope="module", params=["embedded", "whole-words", "scores"])
def in_doubt(request, engine_of, tmp_path_factory) -> Iterator[tuple[Engine, list[tuple[str, list[str]]]]]:
    """An engine, and questions behind prompts that end within words.

    The embedded model, and hashed fakes over vocabularies: words taken whole before
    any merge, and merges by score.
    """
    if request.param == "embedded":
        yield engine_of("embedded"), list(WITHIN)
        return
    path = made_vocabularies.make(request.param, tmp_path_factory.mktemp("vocabularies") / "made.gguf")
    model = HashModel(7, vocabulary=vocabulary_of(path), sharpness=0.5, limits=LIMITS)
    with Engine(model, check=SelfCheck(8, 0.0, 0.0)) as engine:
        yield engine, list(MADE_WITHIN)


@pytest.mark.short("embedded", "whole-words")
def test_draws_have_the_law_of_the_list(in_doubt):
    """Texts behind prompts that end within words are drawn as often as their list says."""
    engine, questions = in_doubt
    assert p_of(engine, questions) > FALSE_ALARMS


@pytest.mark.short("embedded")
def test_draws_behind_a_context_that_is_too_long_do_not(in_doubt, monkeypatch):
    """Where one token alone is taken back, some text comes too rarely or too often."""
    engine, questions = in_doubt
    monkeypatch.setattr(canonical, "_n_settled", lambda _vocabulary, _prompt, own: (len(own) - 1, ""))
    assert p_of(engine, questions) < FALSE_ALARMS


def test_draws_token_by_token_do_not(engine_of):
    """The same test refuses draws among the tokens that may follow."""
    assert p_of(engine_of("embedded"), list(WITHIN), exact=False, n=100) < FALSE_ALARMS
