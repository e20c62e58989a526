"""Beams keep the best texts behind prompts that are cut where tokens span the end, for each vocabulary."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

import byte_bpe
from selectrie import BeamResult, BeamSearchParams, Engine, GenerationParams, Grammar
from selectrie.core.types import Limits, ModelKind
from selectrie.core.vocabulary import Vocabulary
from selectrie.engine.precision_check import SelfCheck
from selectrie.errors import NothingFoundError
from selectrie.testing import HashModel
from tests.support import made_vocabularies
from tests.support.real_data import REAL_VOCABULARIES, real_file
from tests.support.vocabularies import vocabulary_of

VOCABULARIES = (*(kind for kind in made_vocabularies.KINDS if kind != "wordpiece"), *REAL_VOCABULARIES)
"""WordPiece is left out, because it does not write every text."""
WORDS = tuple(dict.fromkeys(re.findall(r"[a-z]+", byte_bpe.TEXT.lower())))
ENDS = (" ", ": ", ' "', '"', "(", " [", "{", " #", "#", "\n", ".", "")
WIDTHS = (1, 2, 4, 8)
NEAR = 1e-5
LIMITS = Limits(nodes=4096, sequences=256, rows_per_call=512, kind=ModelKind.ATTENTION, max_idle_rows=4096)
REFUND = ["refund", "track order", "reset password", "card arrival"]
CODES = "([0-9]{5})?"
"""So many endings that a grammar's texts are not listed."""


@dataclass
class Tried:
    """What the law found: questions with other answers, and what it was tried at."""

    wrong: list[object] = field(default_factory=list)
    questions: int = 0
    beams: int = 0


@contextmanager
def engine_on(vocabulary: Vocabulary, seed: int) -> Iterator[Engine]:
    """An engine on a fake, whose rows are the same in every layout."""
    model = HashModel(seed, vocabulary=vocabulary, sharpness=2.0, limits=LIMITS)
    with Engine(model, check=SelfCheck(8, 0.0, 0.0)) as engine:
        yield engine


def named(name: str, folder) -> Vocabulary:
    """The vocabulary of a name in `VOCABULARIES`."""
    if name in made_vocabularies.KINDS:
        return vocabulary_of(made_vocabularies.make(name, folder / f"{name}.gguf"))
    return vocabulary_of(real_file(f"weights/random_real_vocab/random-{name}.gguf"))


def question(rng: random.Random) -> tuple[str, list[str]]:
    """A prompt, and two to seven texts that may follow it."""
    words = rng.sample(WORDS, 6)
    half = words[0][: rng.randrange(1, len(words[0]) + 1)]
    prompt = f"{' '.join(words[1:4])} {half}{rng.choice(ENDS)}"
    texts = {words[0][len(half) :] or "s", *rng.sample(REFUND, rng.randrange(0, 3))}
    while len(texts) < 2 or rng.random() < 0.7:
        word = rng.choice(WORDS)
        texts.add(rng.choice(("", "", " ", '"')) + word[rng.choice((0, 0, len(word) // 2)) :])
        if rng.random() < 0.3:
            texts.add(f"{rng.choice(sorted(texts))} {rng.choice(WORDS)}")
    return prompt, sorted(texts - {""})[:7]


def beams(engine: Engine, prompt: str, grammar: Grammar, tried: Tried, **options) -> dict[int, BeamResult]:
    """The results at every width; what holds of each grammar is looked at."""
    found: dict[int, BeamResult] = {}
    for width in WIDTHS:
        beam = BeamSearchParams(width=width, n=8, max_tokens=64, **options)
        tried.beams += 1
        try:
            found[width] = engine.beam_search(prompt, grammar, beam=beam)
        except NothingFoundError as error:
            tried.wrong.append((prompt, grammar, width, str(error)))
            return {}
    greedy = {width: one.greedy and [token.id for token in one.greedy.tokens] for width, one in found.items()}
    best = [one.hypotheses[0].logp if one.hypotheses else None for one in found.values()]
    if None in greedy.values() or len({tuple(path) for path in greedy.values()}) > 1:
        tried.wrong.append((prompt, grammar, "greedy", greedy))
    elif any(logp is None or logp < found[1].greedy.logp - NEAR for logp in best):
        tried.wrong.append((prompt, grammar, "worse than greedy", best))
    elif not all(grammar.accepts(text) for one in found.values() for text in one.texts):
        tried.wrong.append((prompt, grammar, "other texts"))
    return found


def try_one(engine: Engine, rng: random.Random, tried: Tried) -> None:
    """Ask one question of texts that are listed, and of texts that are not."""
    prompt, texts = question(rng)
    tried.questions += 1
    listed = engine.select(prompt, texts, terminator="none")
    logp = {one.text: one.logp for one in listed.choices}
    pattern = f"({'|'.join(map(re.escape, texts))})"
    for width, found in beams(engine, prompt, Grammar.from_regex(pattern), tried, terminator="none").items():
        if width < len(texts):
            continue
        first = found[0]
        moved = [abs((one.logp - first.logp) - (logp[one.text] - logp[first.text])) for one in found]
        if set(found.texts) != set(texts) or max(moved) > NEAR:
            tried.wrong.append((prompt, texts, width, found.texts, moved))
    beams(engine, prompt, Grammar.from_regex(pattern + CODES), tried, terminator="eog")


def tried_at(name: str, folder, seed: int, n: int) -> Tried:
    """Try the law at `n` questions."""
    tried, rng = Tried(), random.Random(seed)
    with engine_on(named(name, folder), seed) as engine:
        for _ in range(n):
            try_one(engine, rng, tried)
    return tried


@pytest.mark.short("merges", "scores", "gpt-2", "llama-spm")
@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_beam_keeps_what_it_can_hold(name, tmp_path):
    """A beam as wide as a set returns the whole set, and greedy decoding is the same at every width and never better."""
    assert tried_at(name, tmp_path, 1, 3 if name in made_vocabularies.KINDS else 1).wrong == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("name", VOCABULARIES)
def test_beams_keep_what_they_can_hold(name, part, tmp_path, record_property):
    """The law holds at 10 000 questions over all vocabularies, each asked of two grammars at four widths."""
    tried = tried_at(name, tmp_path, 2 + part, 250)
    assert tried.wrong == []
    record_property("questions", tried.questions)
    record_property("beams", tried.beams)


@pytest.mark.parametrize(
    ("name", "prompt", "texts"),
    [
        ("longest-match", "payment the transaction awa", ['"went', "card arrival", "no", "refund", "y"]),
        ("merges", "boa", ["en", "rm", "t", "ver"]),
        ("scores", "blu", ["e", "five", "rrency"]),
    ],
)
def test_a_prompt_without_a_settled_position_is_opened_as_for_a_list(tmp_path, name, prompt, texts):
    """Without BOS, beams, draws and drawn tokens have the joints and the healed bytes of a list of the same texts."""
    grammar = Grammar.from_choices(texts)
    with engine_on(replace(named(name, tmp_path), bos=None), 3) as engine:
        listed = engine.select(prompt, texts, terminator="none")
        found = engine.beam_search(prompt, grammar, beam=BeamSearchParams(width=8, n=8, terminator="none"))
        samples = engine.sample(prompt, grammar, n=8, seed=1, terminator="none")
        heals = [GenerationParams(heal=True, grammar=grammar), GenerationParams(heal=True, choices=texts)]
        drawn = [engine.generate(prompt, seed=1, options=one)[0] for one in heals]
    logp = {one.text: one.logp for one in listed.choices}
    assert set(found.texts) == set(texts)
    for texts_of in (found, samples):
        moved = [one.logp - logp[one.text] for one in texts_of]
        assert max(moved) - min(moved) <= NEAR
    assert samples.exact
    assert drawn[0].healed.endswith(drawn[1].healed)


@pytest.mark.parametrize(
    ("prompt", "texts", "seed"),
    [
        ("leather you mastercard unab", '("reached|le|over|over lived|reset password|track order)', 4),
        ("google cancellation can to", "(refund|s)", 5),
    ],
)
def test_greedy_decoding_is_the_same_behind_the_longest_match(tmp_path, prompt, texts, seed):
    """Tokens that span the ends of words do not make greedy decoding give up in a beam that has found other texts."""
    tried = Tried()
    with engine_on(named("longest-match", tmp_path), seed) as engine:
        beams(engine, prompt, Grammar.from_regex(texts + CODES), tried, terminator="eog")
    assert (tried.wrong, tried.beams) == ([], len(WIDTHS))


def test_greedy_decoding_in_any_tokens_is_the_same_at_every_width(tmp_path):
    """Without canonical paths, greedy decoding does not depend on the width either, and no result is worse."""
    rng, tried = random.Random(3), Tried()
    with engine_on(named("merges", tmp_path), 3) as engine:
        for _ in range(2):
            prompt, texts = question(rng)
            grammar = Grammar.from_regex(f"({'|'.join(map(re.escape, texts))})")
            beams(engine, prompt, grammar, tried, canonical_only=False, terminator="eog")
    assert tried.wrong == []


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("eight currency no he", "(ad|post|s|s middle)"),
        ("eight get where applies", "(ad|post|s|s middle)"),
    ],
)
def test_greedy_decoding_is_the_same_where_no_path_is_canonical(tmp_path, prompt, texts):
    """Other searches find the texts there, which depend on the width; greedy decoding does not."""
    tried = Tried()
    with engine_on(named("whole-words", tmp_path), 3) as engine:
        beams(engine, prompt, Grammar.from_regex(texts + CODES), tried, terminator="eog")
    assert (tried.wrong, tried.beams) == ([], len(WIDTHS))
