"""A prompt's context ends where no text can change it: own encodings on real and made vocabularies, and searches against lists."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import byte_bpe
import selectrie
from selectrie import (
    BeamSearchParams,
    Engine,
    GenerationParams,
    Grammar,
    SamplingParams,
    SearchParams,
    StopParams,
    Template,
)
from selectrie.backends.llama_cpp.vocabulary import MERGING
from selectrie.core.types import Limits, ModelKind
from selectrie.core.vocabulary import TokenizerKind, Vocabulary
from selectrie.engine.precision_check import SelfCheck
from selectrie.testing.fakes import HashModel, TableModel, make_vocabulary
from selectrie.tokenization import canonical, encoding
from selectrie.tokenization.canonical import open_prompt
from selectrie.tokenization.encoding import PromptText, encode_after, encode_choices
from tests.support import made_vocabularies
from tests.support.made_vocabularies import make_byte_level
from tests.support.real_data import REAL_VOCABULARIES, real_file
from tests.support.vocabularies import start_of, vocabulary_of

ENGLISH = " ".join(byte_bpe.TEXT.split())
OTHERS = (
    "東京都は日本の首都です。我喜欢吃苹果，但是他不喜欢。한국어 문장입니다. 日本語テキスト、カタカナ語「引用」。",
    "def place_of(text):\n    return text[3:]  # 1,000.50\n\n\nclass A:\r\n\tx = {'a': [1, 22, 333]}\n" * 2,
    "don't it's we'LL they’re — “so” 3.14159 12345678 1st x86_64 camelCaseHTTPServer ABCéDEf http://a.bc/d_e?f=g&h#i",
    "\u3000全角 \u00a0é̀ ñ ß İ 🤗👍🏽 ١٢٣ ภาษาไทย हिन्दी русский Слово \u200b\ufeff <|im_start|> </s> ▁ a  b   c    d\n\n\n e \t\t",
)
ATOMS = (
    *"abcXYZ 0129.,;:!?'\"-_/\\\n\t()[]{}<>|@#$%^&*~`éß日本。，🤗한ไーЖ",
    *(
        "'s",
        "'re",
        "'ll",
        " '",
        "’s",
        "  ",
        "\n\n",
        "\r\n",
        "\u0301",
        " the",
        "ing",
        " I",
        "000",
        "▁",
        "ﬁ",
        "\u200d",
        "\u3000",
    ),
)
SMALL = ("stories260K.gguf", "tiny-rwkv-7v0-834K.gguf")
ALL = (
    *made_vocabularies.KINDS,
    "embedded",
    *SMALL,
    *(f"random_real_vocab/random-{name}.gguf" for name in REAL_VOCABULARIES),
)
PLAIN = ("wordpiece", "whole-words")
"""Kinds that are tried on words with one space between: WordPiece spells nothing else, and words are what is taken whole."""
LIMITS = Limits(nodes=4096, sequences=256, rows_per_call=512, kind=ModelKind.ATTENTION, max_idle_rows=4096)


@pytest.fixture(scope="module")
def named(tmp_path_factory, embedded) -> Callable[[str], Vocabulary]:
    """The vocabulary of a name in `ALL`; a skip where its file is not there."""
    folder = tmp_path_factory.mktemp("vocabularies")

    @cache
    def read(name: str) -> Vocabulary:
        if name == "embedded":
            return vocabulary_of(embedded)
        if name in made_vocabularies.KINDS:
            return vocabulary_of(made_vocabularies.make(name, folder / f"{name}.gguf"))
        return vocabulary_of(real_file(f"weights/{name}"))

    return read


def plain_words(text: str) -> str:
    """Lower-case words with one space between: what WordPiece spells as it stands."""
    return " ".join("".join(c for c in text.lower() if c.isascii() and (c.isalpha() or c == " ")).split())


def cuts(rng: random.Random, n: int, *, plain: bool) -> Iterator[tuple[str, str]]:
    """Prompts cut anywhere, and what follows: the text's own continuation, or something else."""
    for _ in range(n):
        source = ENGLISH if plain or rng.random() < 0.6 else rng.choice(OTHERS)
        first = rng.randrange(max(1, len(source) - 60))
        text = source[first : first + rng.choice((20, 60, 200))]
        if not plain and rng.random() < 0.2:
            text = "".join(rng.choice(ATOMS) for _ in range(rng.randrange(2, 24)))
        text = plain_words(text) if plain else text
        place = rng.randrange(1, max(2, len(text)))
        rest = text[place : place + rng.randrange(1, 20)]
        if rng.random() < 0.3:
            rest = (
                rng.choice(("s", "x", "ing", "ed ", "abc"))
                if plain
                else "".join(rng.choices(ATOMS, k=rng.randrange(1, 6)))
            )
        yield text[:place], rest


def broken(vocabulary: Vocabulary, rng: random.Random, n: int, *, plain: bool = False) -> tuple[list[object], int]:
    """Cuts at which the law fails, and how many it was tried at.

    The own encoding of prompt and text begins with the kept context, its rest spells the healed bytes and then the text, is an
    own path, and no pair of it is refused.
    """
    failed: list[object] = []
    n_tried = 0
    for start, rest in cuts(rng, n, plain=plain):
        begins = vocabulary.bos is not None or rng.random() < 0.7
        prompt = PromptText(start_of(vocabulary) if begins else np.empty(0, dtype=np.int32), start.encode())
        whole = encode_after(vocabulary, prompt.prefix, prompt.text + rest.encode())
        opened = open_prompt(vocabulary, prompt)
        is_spelled = vocabulary.decode(whole) in (prompt.text + rest.encode(), b" " + prompt.text + rest.encode())
        if opened.doubt or opened.boundary == "split" or not is_spelled:
            continue
        n_tried += 1
        n_kept = len(opened.context) - len(prompt.prefix)
        path = whole[n_kept:]
        if whole[:n_kept] != opened.context[len(prompt.prefix) :].tolist():
            failed.append((start, rest, "context"))
        elif vocabulary.decode(path) != opened.prefix + rest.encode() or not opened.paths.is_canonical(path):
            failed.append((start, rest, "path"))
        elif refused := [
            pair
            for pair in pairwise([*([opened.last] * (opened.last is not None)), *path])
            if not opened.paths.may_join(*pair)
        ]:
            failed.append((start, rest, refused))
    return failed, n_tried


@pytest.mark.short("merges", "scores", "wordpiece", "*gpt-2.gguf", "*llama-spm.gguf")
@pytest.mark.parametrize("name", ALL)
def test_the_own_encoding_keeps_the_context(name, named):
    """Prompts cut anywhere and whatever follows, on a vocabulary of each kind and on real ones."""
    failed, n_tried = broken(named(name), random.Random(1), 400, plain=name in PLAIN)
    assert failed == []
    assert n_tried > 150


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_own_encodings_keep_their_context(name, named, record_property):
    """The law at 10 000 cuts a vocabulary."""
    failed, n_tried = broken(named(name), random.Random(2), 10_000, plain=name in PLAIN)
    assert failed == []
    record_property("cuts", n_tried)


@pytest.mark.parametrize("mutant", ["last token", "any place", "words only"])
def test_the_law_finds_a_context_that_is_too_long(mutant, named, monkeypatch):
    """One token taken back, a place within a word, and a word's end that a token spans are found on a SentencePiece vocabulary or
    on one of merges."""
    if mutant == "last token":
        monkeypatch.setattr(canonical, "_n_settled", lambda _vocabulary, _prompt, own: (len(own) - 1, ""))
    elif mutant == "any place":
        monkeypatch.setattr("selectrie.tokenization.canonical._ends_word", lambda *_: True)
        monkeypatch.setattr("selectrie.tokenization.canonical.is_spanned", lambda *_: False)
    else:
        monkeypatch.setattr("selectrie.tokenization.canonical.is_spanned", lambda *_: False)
    names = ("merges", "scores", "longest-match")
    assert any(broken(named(name), random.Random(1), 300)[0] for name in names)


def test_words_taken_whole_are_found_by_the_law(named, monkeypatch):
    """Where merges were believed of vocabularies that do not merge alone, their own pairs are refused."""
    monkeypatch.setattr(canonical, "_ENCODE_PARTS_ALIKE", frozenset(TokenizerKind))
    monkeypatch.setattr(
        canonical,
        "_are_neighbours",
        lambda vocabulary, left, right, *_: (
            canonical.encode_inside(vocabulary, vocabulary.pieces[left] + vocabulary.pieces[right]) == [left, right]
        ),
    )
    assert broken(named("whole-words"), random.Random(1), 400, plain=True)[0]
    assert broken(named("wordpiece"), random.Random(1), 400, plain=True)[0]


# Many texts


def encoded_otherwise(vocabulary: Vocabulary, rng: random.Random, n: int) -> list[bytes]:
    """Texts that are encoded otherwise among many than alone."""
    texts = [(start + rest).encode() for start, rest in cuts(rng, n, plain=False)]
    texts += [b" " * n_spaces + text for text in texts[: n // 4] for n_spaces in (1, 2)]
    texts += [
        b"",
        b" ",
        b"  ",
        b"a ",
        b" a  b   c",
        b"a\xe2\x96\x81b c",
        "a\u2581\u2581\u2581 1".encode(),
        "a \u2581b".encode(),
        b"a b",
        b"a  b",
        b"a\n b",
        b"\0 \0a",
    ]
    if vocabulary.kind is TokenizerKind.SCORES:
        texts += [b"\xe6", b"\xe6 a", b"a \xf0\x9f b", b" \xa4"]
    many = encoding._encode_each(vocabulary, texts)
    return [text for text, tokens in zip(texts, many, strict=True) if tokens != vocabulary.tokenize(text)]


@pytest.mark.short("merges", "scores", "wordpiece", "*gpt-2.gguf", "*llama-spm.gguf")
@pytest.mark.parametrize("name", ALL)
def test_many_texts_are_encoded_as_each_is_alone(name, named):
    """What is shared between the texts of a list changes no token of any."""
    assert encoded_otherwise(named(name), random.Random(6), 400) == []


@pytest.mark.parametrize("more", [{"merged": ("a b", "e t")}, {"user_defined": ("e", "th")}])
def test_words_that_are_not_encoded_apart(more, tmp_path, monkeypatch):
    """A token that holds a space within, or is looked up before any merge, ends the sharing of words."""
    vocabulary = vocabulary_of(made_vocabularies.make_scores(tmp_path / "made.gguf", **more))
    assert encoded_otherwise(vocabulary, random.Random(6), 100) == []
    monkeypatch.setattr(encoding, "_encodes_words_apart", lambda _vocabulary: True)
    assert encoded_otherwise(vocabulary, random.Random(6), 100) != []


def test_distinct_words_are_encoded_once(named):
    """10 000 pairs of 100 words each take 200 calls of the tokenizer, and some for the prompt."""
    calls = []
    made = named("scores")
    counted = replace(made, tokenize=lambda text: calls.append(text) or made.tokenize(text))
    first, second = ([f" {letter}{i}" for i in range(100)] for letter in "ab")
    encode_choices(counted, PromptText(start_of(made), b"It was"), [(a + b).encode() for a in first for b in second])
    assert len(calls) <= 200 + 20


# What merges alone


def tiny_byte_level(folder: Path, pre: str) -> Vocabulary:
    """Bytes, ` a`, `ab`, ` ab` by merges, and `abc`, ` abc` that no merge makes."""
    tokens = [byte_bpe.spell(text) for text in ("ab", " a", " ab", "abc", " abc")]
    space = byte_bpe.spell(" ")
    return vocabulary_of(make_byte_level(folder / f"{pre}.gguf", pre, tokens, ["a b", f"{space} a", f"{space} ab"]))


@pytest.mark.parametrize("pre", sorted(MERGING))
def test_a_named_pre_tokenizer_merges_alone(pre, tmp_path):
    """llama.cpp itself takes no word whole behind it, and keeps runs of letters together."""
    vocabulary = tiny_byte_level(tmp_path, pre)
    assert vocabulary.kind is TokenizerKind.MERGES
    assert [vocabulary.pieces[i] for i in vocabulary.tokenize(b" abc")] == [b" ab", b"c"]
    assert [vocabulary.pieces[i] for i in vocabulary.tokenize(b"xab")] == [b"x", b"ab"]
    assert [vocabulary.pieces[i] for i in vocabulary.tokenize(b"XaBab")] == [b"X", b"a", b"B", b"ab"]


@pytest.mark.parametrize("pre", ["llama-bpe", "llama3", "falcon3", "tekken", "glm4", "youtu", "not-known-to-anybody"])
def test_other_pre_tokenizers_are_unknown(pre, tmp_path):
    """Where words are taken whole, or nobody knows, nothing is refused; a name that llama.cpp refuses cannot be loaded."""
    if pre == "not-known-to-anybody":
        with pytest.raises(AssertionError):
            tiny_byte_level(tmp_path, pre)
        return
    vocabulary = tiny_byte_level(tmp_path, pre)
    assert vocabulary.kind is TokenizerKind.UNKNOWN
    assert [vocabulary.pieces[i] for i in vocabulary.tokenize(b" abc")] == [b" abc"]
    assert [vocabulary.pieces[i] for i in vocabulary.tokenize(b" abcd")] == [b" ab", b"c", b"d"]
    paths = open_prompt(vocabulary, PromptText(start_of(vocabulary), b"x")).paths
    [ab, c] = vocabulary.tokenize(b"ab") + vocabulary.tokenize(b"c")
    assert paths.may_join(ab, c)


def test_a_word_that_is_longer_than_a_whole_one_is_drawn(tmp_path):
    """` abcd` stands beside ` abc`, which no merge makes: it is found, proved, and drawn as often as it is probable."""
    vocabulary = tiny_byte_level(tmp_path, "llama-bpe")
    texts = [" abcd", " srn", " abx"]
    grammar = Grammar.from_choices(texts)
    with engine_on(HashModel(5, vocabulary=vocabulary, sharpness=0.5, limits=LIMITS)) as engine:
        listed = {one.text: one.logp for one in engine.select("x1", texts, terminator="none").choices}
        found = engine.beam_search(
            "x1", grammar, beam=BeamSearchParams(exact=True, n=3, terminator="none", budget_nodes=5_000)
        )
        drawn = engine.sample("x1", grammar, n=200, seed=1, terminator="none", search=SearchParams(budget_nodes=20_000))
    assert list(found.texts) == sorted(texts, key=lambda text: -listed[text])
    assert found.certificate.proved
    share = np.exp([listed[text] for text in texts])
    share /= share.sum()
    for text, p in zip(texts, share, strict=True):
        n_drawn = sum(one.text == text for one in drawn)
        assert abs(n_drawn - 200 * p) <= 5 * np.sqrt(200 * p * (1 - p)) + 1


# Lists and searches


def engine_on(model: HashModel) -> Engine:
    """An engine that measures nothing first."""
    return Engine(model, check=SelfCheck(8, 0.0, 0.0))


def question(rng: random.Random, *, plain: bool) -> tuple[str, list[str]] | None:
    """A prompt cut anywhere and texts, none the beginning of another: one goes on as the source does."""
    source = plain_words(ENGLISH) if plain else ENGLISH
    first = source.rindex(" ", 0, rng.randrange(60, len(source) - 100)) + 1
    place = first + rng.randrange(8, 30)
    texts = {source[place : place + rng.randrange(1, 9)].rstrip()}
    for _ in range(rng.randrange(1, 5)):
        start = rng.randrange(len(source) - 20)
        texts.add(source[start : start + rng.randrange(1, 8)].rstrip())
    texts = {one for one in texts if one and not any(other != one and other.startswith(one) for other in texts)}
    prompt = source[first:place]
    if plain and prompt.endswith(" "):
        return None
    return (prompt, sorted(texts)) if len(texts) > 1 else None


def searches_that_differ(
    vocabulary: Vocabulary, rng: random.Random, n: int, *, plain: bool
) -> tuple[list[object], int]:
    """Questions for which the exact search, or a beam that proves its answer, is not the list, or exact draws have another mass;
    and how many were proved."""
    different: list[object] = []
    n_proved = 0
    for _ in range(n):
        asked = question(rng, plain=plain)
        if asked is None:
            continue
        prompt, texts = asked
        grammar, model = (
            Grammar.from_choices(texts),
            HashModel(rng.randrange(999), vocabulary=vocabulary, sharpness=3.0, limits=LIMITS),
        )
        with engine_on(model) as engine:
            listed = {one.text: one.logp for one in engine.select(prompt, texts, terminator="none").choices}
            order = sorted(texts, key=lambda text: -listed[text])
            for exact in (True, False):
                beam = BeamSearchParams(
                    width=64, n=len(texts), exact=exact, terminator="none", budget_nodes=4_000 if exact else None
                )
                found = engine.beam_search(prompt, grammar, beam=beam)
                if not found.certificate.proved:
                    continue
                n_proved += found.certificate.proved
                moved = [one.logp - found.logp - listed[one.text] + listed[found.text] for one in found]
                if exact:
                    mass = float(np.exp([one.logp for one in found]).sum())
                    drawn = engine.sample(prompt, grammar, n=3, seed=rng.randrange(999), terminator="none")
                    if not drawn.mass_low - 1e-9 <= mass <= drawn.mass_high + 1e-9 or not set(texts) >= {
                        one.text for one in drawn
                    }:
                        different.append((prompt, texts, "draws", drawn.mass_low, mass, drawn.mass_high))
                if list(found.texts) != order or not np.allclose(moved, 0, atol=1e-6):
                    different.append((prompt, texts, exact, found.texts))
    return different, n_proved


@pytest.mark.short("merges", "scores", "wordpiece")
@pytest.mark.parametrize("name", [*made_vocabularies.KINDS, "embedded"])
def test_a_search_is_the_list(name, named):
    """Order and differences of log-probability by exact search and by a wide beam, and the mass of exact draws, behind prompts cut
    anywhere."""
    different, n_proved = searches_that_differ(named(name), random.Random(3), 8, plain=name in PLAIN)
    assert different == []
    assert n_proved >= 4


@pytest.mark.long
@pytest.mark.parametrize("name", [*made_vocabularies.KINDS, "embedded", *SMALL])
def test_searches_are_their_lists(name, named, record_property):
    """The law at 200 cuts a vocabulary."""
    different, n_proved = searches_that_differ(named(name), random.Random(4), 200, plain=name in PLAIN)
    assert different == []
    record_property("proofs", n_proved)


@pytest.mark.parametrize(
    ("name", "prompt", "texts", "changed"),
    [
        ("wordpiece", "the girl went", [" to", " ed", "er"], ""),
        ("wordpiece", "the girl went ", ["to", "ed"], ""),
        ("wordpiece", "the girl went ", [" to", "ed"], "' to'"),
        ("wordpiece", "the girl we", ["Nt", "t"], "'Nt'"),
        ("scores", "the girl we", ["\u2581nt", "t"], "'▁nt'"),
        ("scores", "the girl we", ["nt", "t"], ""),
    ],
)
def test_a_text_that_the_tokenizer_changes_leaves_no_proof(name, prompt, texts, changed, named):
    """Capitals, spaces that it adds and SentencePiece's sign for one: the text is named, and neither search nor draws are exact."""
    grammar = Grammar.from_choices(texts)
    with engine_on(HashModel(3, vocabulary=named(name), sharpness=3.0, limits=LIMITS)) as engine:
        found = engine.beam_search(prompt, grammar, beam=BeamSearchParams(exact=True, n=9, terminator="none"))
        drawn = engine.sample(prompt, grammar, n=2, seed=1, terminator="none")
        listed = {one.text: one.logp for one in engine.select(prompt, texts, terminator="none").choices}
    assert (found.certificate.proved, drawn.exact) == (not changed, not changed)
    assert changed in found.certificate.reason
    assert drawn.reason == found.certificate.reason
    if not changed:
        assert list(found.texts) == sorted(texts, key=lambda text: -listed[text])


# The model that comes with selectrie


@pytest.fixture(scope="module")
def llm() -> Iterator[Engine]:
    with selectrie.load(n_threads=1) as engine:
        yield engine


WITHIN = ("Once upon a ti", ["me", "n", "p"])


def test_a_prompt_that_ends_within_a_word(llm):
    """`time` is what the list says, and every search of a grammar, proved; of draws, and of a template's slot."""
    prompt, texts = WITHIN
    grammar = Grammar.from_choices(texts)
    listed = llm.select(prompt, texts, terminator="none")
    logp = {one.text: one.logp for one in listed.choices}
    for beam in (BeamSearchParams(exact=True, n=3), BeamSearchParams()):
        found = llm.beam_search(prompt, grammar, beam=beam)
        assert list(found.texts) == sorted(texts, key=lambda text: -logp[text])[: beam.n]
        assert (found.certificate.proved, found.certificate.reason, found.healed) == (True, "", b" ti")
        for one in found:
            moved = one.logp - found.logp - logp[one.text] + logp["me"]
            assert abs(moved) <= 2 * listed.signature.tolerance * 4
    assert {one.text for one in llm.sample(prompt, grammar, n=20, seed=1)} == {"me"}
    searched = llm.select(prompt, grammar=Grammar.from_regex("(me|n|p)([0-9]{5})?"))
    assert (searched.text, searched.certificate.proved) == ("me", True)
    page = llm.render(
        Template(
            "Once upon a ti<<beam 'x' regex='(me|n|p)'>> and once upon a ti<<select 'y' regex='(me|n|p)([0-9]{5})?'>>"
        )
    )
    assert (page["x"], page["y"]) == ("me", "me")


def test_healed_generation_goes_on_within_a_word(llm):
    """The most probable text after `Once upon a ti` begins with `me`; one token of text is one, however many spell the prompt."""
    one = llm.generate(
        WITHIN[0],
        sampling=SamplingParams.GREEDY,
        stopping=StopParams(max_tokens=1),
        options=GenerationParams(heal=True),
    )[0]
    assert (one.text, one.healed, one.finish) == ("me", b" ti", "length")
    assert b"".join(token.piece for token in one.tokens) == b" time"


def test_a_prompt_without_a_settled_place_says_so():
    """One word on a model without BOS, and texts that are not listed: what was found stands, and nothing is proved or exact."""
    vocabulary = replace(make_vocabulary(), bos=None)
    grammar, search = Grammar.from_regex("(u|at)+"), SearchParams(max_tokens=4)
    with engine_on(HashModel(1, vocabulary=vocabulary)) as engine:
        found = engine.beam_search("c", grammar, beam=BeamSearchParams(exact=True, max_tokens=4))
        drawn = engine.sample("c", grammar, n=1, seed=1, search=search)
        selected = engine.select("c", grammar=grammar, search=search)
    for reason in (found.certificate.reason, selected.certificate.reason, drawn.reason):
        assert reason.startswith("no position of the prompt's text")
    assert (found.certificate.proved, selected.certificate.proved, drawn.exact) == (False, False, False)
    assert (drawn.mass, drawn.mass_low, drawn.mass_high) == (None, None, None)


@pytest.mark.parametrize(("prompt", "texts"), [("c", ("at",)), ("a", ("t", "b")), ("ca", ("t",))])
def test_a_prompt_of_one_word_that_every_text_changes_is_answered(prompt, texts):
    """Without BOS nothing of `c` stays before `at`: the texts are scored behind the prompt as it is encoded, as those of a list;
    of texts that are not listed nothing is proved."""
    vocabulary = replace(make_vocabulary(), bos=None)
    grammar, unlisted = Grammar.from_choices(texts), Grammar.from_regex(f"({'|'.join(texts)})+")
    with engine_on(HashModel(1, vocabulary=vocabulary)) as engine:
        listed = engine.select(prompt, list(texts), terminator="none")
        found = [
            engine.beam_search(prompt, grammar, beam=BeamSearchParams(exact=exact, n=2)) for exact in (True, False)
        ]
        drawn = engine.sample(prompt, grammar, n=3, seed=1)
        selected = engine.select(prompt, grammar=unlisted, search=SearchParams(max_tokens=2))
        page = engine.render(Template(f"{prompt}<<beam 'x' grammar=g>>"), g=grammar)
    logp = {one.text: pytest.approx(one.logp) for one in listed.choices}
    assert all(set(one.texts) == set(texts) for one in found)
    for one in (*found, page.selections["x"]):
        assert all(text.logp == logp[text.text] for text in one)
        assert (one.signature.boundary, one.certificate.proved) == (listed.signature.boundary, True) == ("split", True)
    assert (drawn.exact, all(one.logp == logp[one.text] for one in drawn)) == (True, True)
    assert selected.text in texts
    assert selected.certificate.reason.startswith("no position of the prompt's text")


def test_healed_tokens_do_not_count():
    """Of texts behind ` c`, which one token or two may spell, those of one token are found with `max_tokens=1`."""
    table = {("a",): {" ": 0.5, " c": 0.2, " cat": 0.2, " b": 0.1}, ("a", " "): {"cat": 0.5, "c": 0.5}}
    for at in (("a", " c"), ("a", " ", "c")):
        table[at] = {"u": 0.6, "b": 0.4}
    with engine_on(TableModel(table)) as engine:
        how = {"max_tokens": 1, "terminator": "none", "canonical_only": False}
        for exact in (True, False):
            found = engine.beam_search(
                "a c", Grammar.from_regex("u|b|bb"), beam=BeamSearchParams(exact=exact, n=3, **how)
            )
            assert found.texts == ("u", "b")
            assert {tuple(token.piece for token in one.tokens) for one in found} <= {
                (b" c", b"u"),
                (b" c", b"b"),
                (b" ", b"c", b"u"),
                (b" ", b"c", b"b"),
            }
