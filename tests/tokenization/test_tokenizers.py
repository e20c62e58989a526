"""Tokenizers that do not write every text as it stands: no search proves anything about
texts that it cannot see."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from selectrie import BeamSearchParams, Engine, Grammar, PromptParams, SearchParams, Template
from selectrie.backends.llama_cpp import vocabulary
from selectrie.backends.llama_cpp.vocabulary import read_vocabulary
from selectrie.core.types import Limits, ModelKind
from selectrie.core.vocabulary import TokenizerKind, Vocabulary
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.rendering.joint_block import JointRequest, JointSlot, decide_jointly
from selectrie.engine.rendering.slots import SlotContext
from selectrie.engine.requests.constrained_prompt import ConstrainedPrompt, constrain
from selectrie.engine.scheduler.task_group import task_group
from selectrie.errors import NothingFoundError
from selectrie.options import DEFAULT_PROMPTING
from selectrie.template.values.values import SlotOption
from selectrie.testing.fakes import HashModel
from selectrie.tokenization.canonical import open_prompt
from selectrie.tokenization.encoding import PromptText
from selectrie.tokenization.prompts import read_prompt
from tests.support.made_vocabularies import (
    UNUSED,
    USER_DEFINED,
    make_byte_level,
    make_merged,
    make_scored,
    make_wordpiece,
)
from tests.support.vocabularies import open_model, start_of, vocabulary_of

LIMITS = Limits(nodes=4096, sequences=256, rows_per_call=512, kind=ModelKind.ATTENTION, max_idle_rows=4096)


def engine_on(vocabulary: Vocabulary, seed: int = 5) -> Engine:
    """An engine that measures nothing first."""
    model = HashModel(seed, vocabulary=vocabulary, sharpness=0.5, limits=LIMITS)
    return Engine(model, check=SelfCheck(8, 0.0, 0.0))


# Merges that make no token


def with_a_merge_to_nothing(folder: Path) -> Vocabulary:
    """Bytes, `aa` and `bc`; `a` and `b` merge too, and what they make is no token."""
    path = make_byte_level(folder / "m.gguf", "gpt-2", ["aa", "bc"], ["a b", "a a", "b c"])
    return vocabulary_of(path)


def test_a_merge_to_no_token_leaves_the_law_of_merges_unknown(tmp_path):
    """Of such a file no pair of tokens is refused: `b` and `c` stand side by side in `abc`."""
    vocabulary = with_a_merge_to_nothing(tmp_path)
    assert vocabulary.kind is TokenizerKind.UNKNOWN
    a, b, c, aa = (vocabulary.texts.index(text) for text in ("a", "b", "c", "aa"))
    assert vocabulary.tokenize(b"abc") == [a, b, c]
    assert vocabulary.tokenize(b"aab") == [a, a, b]
    paths = open_prompt(vocabulary, PromptText(start_of(vocabulary), b"x")).paths
    assert paths.may_join(a, a)
    assert paths.may_join(b, c)
    assert vocabulary.tokenize(b"aac") == [aa, c]


@pytest.mark.parametrize("seed", range(4))
def test_texts_behind_a_merge_to_no_token_are_found(seed, tmp_path):
    """A search finds all texts of the grammar, as the list scores them, and proves it."""
    texts = ["ab", "bb", "cb", "bc"]
    with engine_on(with_a_merge_to_nothing(tmp_path), seed) as engine:
        listed = {one.text: one.logp for one in engine.select("x a", texts, terminator="none").choices}
        beam = BeamSearchParams(exact=True, n=4, terminator="none", budget_nodes=5_000)
        found = engine.beam_search("x a", Grammar.from_choices(texts), beam=beam)
    assert found.certificate.proved
    assert list(found.texts) == sorted(texts, key=lambda text: -listed[text])
    best = found[0].text
    for one in found:
        assert one.logp - found[0].logp == pytest.approx(listed[one.text] - listed[best], abs=1e-9)


def test_a_file_that_is_gone_leaves_the_law_of_merges_unknown(tmp_path):
    """The merges are read from the file when they are first needed; without them nothing is refused."""
    path = make_byte_level(tmp_path / "m.gguf", "gpt-2", ["ab"], ["a b"])
    vocabulary = vocabulary_of(path)
    path.unlink()
    assert vocabulary.kind is TokenizerKind.UNKNOWN


def test_a_shared_model_with_another_pre_tokenizer_is_unknown():
    """What a `Llama` says of the tokenizer beside its file stands in no metadata."""
    import llama_cpp

    from selectrie.backends.llama_cpp.options import LlamaOptions
    from selectrie.backends.llama_cpp.weights import open_weights
    from selectrie.engine.sources import embedded_file

    kinds = []
    for pre in (None, "llama-bpe"):
        overrides = None if pre is None else {"tokenizer.ggml.pre": pre}
        llama = llama_cpp.Llama(str(embedded_file()), n_ctx=32, verbose=False, kv_overrides=overrides)
        weights = open_weights(llama, LlamaOptions())
        kinds.append(weights.vocabulary.kind)
        weights.release()
        llama.close()
    assert kinds == [TokenizerKind.MERGES, TokenizerKind.UNKNOWN]


# What is not written as it stands

SIGN = "\u2581"
PIECES = [
    (one, -float(place), 1) for place, one in enumerate([SIGN, *"abcxy<u>q\n", f"{SIGN}a", f"{SIGN}b", "fo", "o"])
]
PHI = [("<|endoftext|>", 0.0, 3)]
"""What llama.cpp asks of a model that is called phi-3, whose tokens swallow white space."""
LONG = "([ab]{0,11})"
"""Behind a text: more texts than are encoded one by one."""


def made(kind: str, folder: Path) -> Vocabulary:
    """A vocabulary that alters texts, by what alters them."""
    path = folder / f"{kind}.gguf"
    user = [("<u>", 0.0, USER_DEFINED)]
    if kind == "merged":
        return vocabulary_of(make_merged(path, "gpt-2", [("fo", 0, 1), ("foo", 0, UNUSED)], ["f o", "fo o"]))
    if kind == "whole":
        return vocabulary_of(make_merged(path, "llama-bpe", [("foo", 0, UNUSED), ("xy", 0, 1)], ["x y"]))
    if kind == "dropped":
        return vocabulary_of(make_merged(path, "gpt-2", [("xy", 0, 1)], ["x y"], dropped="q\u00c3"))
    if kind == "ghost":
        return vocabulary_of(make_merged(path, "gpt-2", [], ["\u0120 a"]))
    more = {"spaced": user, "unused": [("foo", 0.0, UNUSED)]}.get(kind, [])
    if kind == "strips":
        return vocabulary_of(make_scored(path, [*PIECES, *user, *PHI], space_prefix=False, name="phi-3-mini"))
    return vocabulary_of(make_scored(path, PIECES + more, space_prefix=True))


def asked(vocabulary: Vocabulary, prompt: str | list[int], grammar: Grammar) -> ConstrainedPrompt:
    """The request, as every search of the grammar reads it."""
    model = HashModel(0, vocabulary=vocabulary, limits=LIMITS)
    return constrain(model, prompt, grammar, max_tokens=30, terminator="none", prompting=PromptParams())


ALTERED = [
    ("spaced", "x ", ["<u>a", "b", "c"], "<u>"),
    ("spaced", "x <u", [">a", "b", "c"], "<u>"),
    ("spaced", "x <u>", ["a", "b", "c"], "<u>"),
    ("spaced", "x", [f"{SIGN}a", "b", "c"], SIGN),
    ("spaced", f"x a{SIGN}", ["a", "b", "c"], "prompt"),
    ("strips", "x <u>", [" a", "b"], "<u> "),
    ("strips", "x <u", ["> a", "b"], "<u> "),
    ("unused", "x ", ["foo", "b"], "foo"),
    ("merged", "x f", ["oo", "ar"], "foo"),
    ("whole", "x\n", ["foo", "ar"], "foo"),
    ("dropped", "x ", ["aq", "b"], "q"),
    ("dropped", "x ", ["\u00e9", "b"], "\ufffd"),
    ("ghost", "x", [" a", "b"], " a"),
]


@pytest.mark.parametrize(("kind", "prompt", "texts", "changed"), ALTERED)
def test_what_is_not_written_as_it_stands_leaves_no_proof(kind, prompt, texts, changed, tmp_path):
    """A grammar of many texts is not proved, and the reason names the string; of few texts the text."""
    vocabulary = made(kind, tmp_path)
    many = Grammar.from_regex(f"({'|'.join(texts)}){LONG}")
    assert changed in asked(vocabulary, prompt, many).doubt
    assert "does not write" in asked(vocabulary, prompt, Grammar.from_choices(texts)).doubt


def test_a_text_that_part_of_a_character_swallows_leaves_no_proof(tmp_path):
    """SentencePiece takes the text behind the first byte of a character for its other bytes, and then writes no space."""
    vocabulary = made("scored", tmp_path)
    prompt = [*vocabulary.tokenize(b"x"), vocabulary.pieces.index(b"\xf0")]
    assert asked(vocabulary, prompt, Grammar.from_choices(["ab", "b"])).doubt == ""
    assert "does not write 'a b'" in asked(vocabulary, prompt, Grammar.from_choices(["ab", "a b"])).doubt
    assert "part of a character" in asked(vocabulary, prompt, Grammar.from_regex(LONG)).doubt


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("spaced", "[a-z ]+"),
        ("strips", "[a-z >]+"),
        ("unused", "[a-eg-z]+"),
        ("merged", "[a-eg-z]+"),
        ("whole", "[a-eg-z]+"),
        ("dropped", "[a-p]+"),
        ("ghost", "[b-z]+"),
    ],
)
def test_a_grammar_that_writes_none_of_it_stays_proved(kind, pattern, tmp_path):
    """Its bytes tell that no such string can stand in a text."""
    assert asked(made(kind, tmp_path), "x y ", Grammar.from_regex(pattern)).doubt == ""


def test_every_search_and_draw_says_so(tmp_path):
    """Select, beams, the exact search, draws and slots of a page are not proved where a text may be missing."""
    grammar = Grammar.from_regex("(<u>a|b|c)([ab]{0,17})")
    with engine_on(made("spaced", tmp_path)) as engine:
        search = SearchParams(budget_nodes=4_000, max_tokens=20)
        found = engine.select("x ", grammar=grammar, terminator="none", search=search)
        assert (found.certificate.proved, "<u>" in found.certificate.reason) == (False, True)
        for exact in (False, True):
            beam = engine.beam_search(
                "x ", grammar, beam=BeamSearchParams(exact=exact, terminator="none", budget_nodes=4_000)
            )
            assert (beam.certificate.proved, "<u>" in beam.certificate.reason) == (False, True)
        drawn = engine.sample("x ", grammar, n=2, seed=1, terminator="none", search=search)
        assert (drawn.exact, drawn.mass, "<u>" in drawn.reason) == (False, None, True)
        page = engine.render(Template("x <<select 'y' grammar=g terminator='none'>>"), g=grammar)
        assert not page.selections["y"].certificate.proved


@pytest.mark.short("spaced-x <u", "unused-*")
@pytest.mark.parametrize(
    ("kind", "prompt"), [("spaced", "x <u>"), ("spaced", "x <u"), ("spaced", f"x a{SIGN}"), ("unused", "x f")]
)
def test_a_prompt_behind_which_no_text_is_written_as_it_stands_is_answered(kind, prompt, tmp_path):
    """SentencePiece puts a space behind a user-defined token that the prompt ends in: the texts are those of the grammar all the
    same, behind the prompt as it is encoded, and nothing is proved."""
    texts = {"spaced": ["a", "b", "c"], "unused": ["oo"]}[kind]
    texts = [f">{one}" for one in texts] if prompt.endswith("<u") else texts
    grammar, many = Grammar.from_choices(texts), Grammar.from_regex(f"({'|'.join(texts)})([ab]{{0,17}})")
    with engine_on(made(kind, tmp_path)) as engine:
        for exact in (False, True):
            beam = engine.beam_search(prompt, grammar, beam=BeamSearchParams(exact=exact, terminator="none", n=3))
            assert set(beam.texts) == set(texts)
            assert not beam.certificate.proved
            assert "does not write" in beam.certificate.reason
        drawn = engine.sample(prompt, grammar, n=3, seed=1, terminator="none")
        assert ({one.text for one in drawn} <= set(texts), drawn.exact) == (True, False)
        assert "does not write" in drawn.reason
        search = SearchParams(budget_nodes=500, max_tokens=20)
        found = engine.select(prompt, grammar=many, terminator="none", search=search)
        assert (found.text.startswith(tuple(texts)), found.certificate.proved) == (True, False)
        page = engine.render(Template(f"{prompt}<<beam 'y' grammar=g terminator='none'>>"), g=many)
        assert str(page["y"]).startswith(tuple(texts))
        assert not page.selections["y"].certificate.proved


def random_scored(rng: random.Random, path: Path) -> Path:
    """Characters and parts of all types."""
    texts = dict.fromkeys([SIGN, *rng.sample("abc<u>q \u00e9", rng.randrange(4, 9)), "<u>"])
    texts.update(dict.fromkeys("".join(rng.choices(f"abcu<>{SIGN}", k=rng.choice((2, 2, 3)))) for _ in range(12)))
    kinds = [1 if len(one) == 1 and rng.random() < 0.9 else rng.choice((1, 1, 1, 1, 3, 4, 5)) for one in texts]
    rows = [(one, -rng.random(), kind) for one, kind in zip(texts, kinds, strict=True)]
    breaks = {"\n", f"\n{rng.choice(list(texts))}"}
    rows += [(one, 0.0, USER_DEFINED) for one in sorted(breaks) if rng.random() < 0.3]
    name = rng.choice(("", "phi-3-mini"))
    return make_scored(path, rows + PHI, space_prefix=rng.random() < 0.5, name=name)


def random_merged(rng: random.Random, path: Path) -> Path:
    """Merges of which some make nothing, or a token that is none, and bytes that are missing."""
    made_of = {one: one for one in "abcu\u0120\u00c3\u00a9<>"}
    merges, tokens = [], []
    for _ in range(rng.randrange(3, 12)):
        left, right = rng.choice(list(made_of)), rng.choice(list(made_of))
        if left + right not in made_of and len(left + right) < 5:
            made_of[left + right] = left + right
            is_merged = not merges or rng.random() < 0.7
            merges += [f"{left} {right}"] if is_merged else []
            if not is_merged or rng.random() < 0.8:
                tokens.append((left + right, 0.0, rng.choice((0, 1, 1, 1, 1, 1, 3, 4, 5))))
    pre = rng.choice(("gpt-2", "llama-bpe", "qwen2"))
    return make_merged(path, pre, tokens, merges, dropped=rng.choice(("", "", "q", "\u00c3", "bq")))


def random_wordpiece(rng: random.Random, path: Path) -> Path:
    """Beginnings and insides of words, for some letters only one of the two, or neither."""
    letters = rng.sample("abcuqx<>", rng.randrange(5, 9))
    starts = rng.sample(letters, rng.randrange(2, len(letters)))
    parts = sorted({"".join(rng.choices("abcuqx", k=rng.choice((2, 2, 3)))) for _ in range(6)})
    return make_wordpiece(path, [*starts, *parts[:3]], [*letters, *parts[2:]])


N_MADE = {random_scored: 16, random_merged: 40, random_wordpiece: 32}
"""Vocabularies of each sort."""


def broken(
    make: Callable[[random.Random, Path], Path], folder: Path, n_vocabularies: int
) -> tuple[list[str], int, int]:
    """Texts that a request without a doubt loses, and how many requests had none and one."""
    lost, n_sure, n_doubted = [], 0, 0
    for seed in range(n_vocabularies):
        rng = random.Random(seed)
        path = make(rng, folder / f"{seed}.gguf")
        vocabulary = read_vocabulary(open_model(path), path)
        for _ in range(12):
            letters = "".join(rng.sample("abcuq<> \u00e9" + SIGN, rng.randrange(2, 6)))
            prompt = "x" + "".join(rng.choices(rng.choice((letters, "abcu<> ")), k=rng.randrange(0, 6)))
            texts = sorted({"".join(rng.choices(letters, k=rng.randrange(1, 5))) for _ in range(4)})
            pattern = f"({'|'.join(texts)})([{letters[0]}{letters[1]}]{{0,11}})"
            for grammar in (Grammar.from_choices(texts), Grammar.from_regex(pattern)):
                one = asked(vocabulary, prompt, grammar)
                n_sure, n_doubted = n_sure + (not one.doubt), n_doubted + bool(one.doubt)
                if not one.doubt:
                    lost += [text for text in texts if not spells(vocabulary, one, prompt, text)]
    return lost, n_sure, n_doubted


def spells(vocabulary: Vocabulary, one: ConstrainedPrompt, prompt: str, text: str) -> bool:
    """Does the tokenizer's own encoding of all keep the context, spell what is left, and count as its own? The slow way."""
    tokens, n = [vocabulary.bos, *vocabulary.tokenize((prompt + text).encode())], len(one.prompt)
    left = one.healed + one.delimiter + text.encode()
    is_spelled = tokens[:n] == one.prompt.tolist() and vocabulary.decode(tokens[n:]) == left
    return is_spelled and one.canonicity.is_canonical(tokens[n:])


@pytest.mark.short("random_scored", "random_wordpiece")
@pytest.mark.parametrize("make", [random_scored, random_merged, random_wordpiece])
def test_without_a_doubt_no_text_is_lost(make, tmp_path):
    """On vocabularies with tokens of every type, a grammar is doubted or its texts are spelled by their own encoding."""
    lost, n_sure, n_doubted = broken(make, tmp_path, N_MADE[make])
    assert not lost
    assert min(n_sure, n_doubted) >= (5 if make is random_wordpiece else 50)  # few words are all known


@pytest.mark.short("_is_mergeable-*")
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("_texts_set_apart", random_scored),
        ("_is_mergeable", random_scored),
        ("_bytes_of", random_merged),
    ],
)
def test_the_law_misses_none_of_what_is_found_out(name, make, tmp_path, monkeypatch):
    """Without any one of the ways in which strings are found, a text is lost under a proof."""
    planted = {"_bytes_of": lambda _: None, "_is_mergeable": lambda *_: False}.get(name, lambda *_: iter(()))
    monkeypatch.setattr(vocabulary, name, planted)
    assert broken(make, tmp_path, N_MADE[make])[0]


@pytest.mark.parametrize("prompt", ["bb1", "bb", "s b1 s"])
@pytest.mark.parametrize("user_defined", [["\n"], ["bb", "\nA"]])
def test_a_line_end_that_a_token_takes_is_not_put_before_a_text(user_defined, prompt, tmp_path):
    """Where a user-defined token takes a line end, text is encoded behind another byte, and every text is found."""
    tokens = [(one, -float(place), 1) for place, one in enumerate([SIGN, *"Abs1a"])]
    tokens += [(one, 0.0, USER_DEFINED) for one in user_defined]
    vocabulary = vocabulary_of(make_scored(tmp_path / "m.gguf", tokens, space_prefix=True))
    texts = ["As", "1 a"]
    with engine_on(vocabulary) as engine:
        listed = engine.select(prompt, texts, terminator="none")
        found = engine.beam_search(
            prompt, Grammar.from_choices(texts), beam=BeamSearchParams(exact=True, n=2, terminator="none")
        )
    assert set(found.texts) == set(texts)
    assert (found.text, found.certificate.proved) == (listed.text, not prompt.endswith(tuple(user_defined)))


def test_where_every_byte_may_be_taken_nothing_is_proved(tmp_path):
    """A vocabulary without any byte that text can stand behind says so."""
    bytes_taken = [(chr(byte), 0.0, USER_DEFINED) for byte in range(1, 128) if chr(byte) not in " a"]
    tokens = [(SIGN, 0.0, 1), ("aa", 0.0, 1), ("\u00e9", 0.0, 1), ("\u00e9\u00e9", 0.0, 1), *bytes_taken]
    vocabulary = vocabulary_of(make_scored(tmp_path / "m.gguf", tokens, space_prefix=True))
    one = asked(vocabulary, "\u00e9", Grammar.from_choices(["\u00e9", "\u00e9\u00e9"]))
    assert one.doubt == "it is not certain how the tokenizer writes text after other text"


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("prompt", ["s s", "b. s", "s  s"])
def test_a_prompt_with_a_word_that_wordpiece_does_not_know(prompt, exact, tmp_path):
    """The tokens of `b` are not its text: the prompt and each text are encoded together, so `3` goes on with a word."""
    vocabulary = vocabulary_of(make_wordpiece(tmp_path / "m.gguf", ["s", "3"], ["3"]))
    with engine_on(vocabulary) as engine:
        listed = engine.select(prompt, ["3", "33"], terminator="none")
        beam = BeamSearchParams(exact=exact, n=2, terminator="none")
        found = engine.beam_search(prompt, Grammar.from_choices(["3", "33"]), beam=beam)
    assert {one.text for one in found} == {"3", "33"}
    assert found.text == listed.text
    assert found[0].logp - found[1].logp == pytest.approx(listed.ranked[0].logp - listed.ranked[1].logp)


def test_a_control_token_that_no_word_holds_alters_no_text(tmp_path):
    """`</s>` is three words, so its merge is never made: a text that spells it has plain tokens, and searches are proved."""
    merges = ["< /", "</ s", "</s >", "a s"]
    tokens = [("</", 0, 1), ("</s", 0, 1), ("as", 0, 1)]
    vocabulary = vocabulary_of(make_merged(tmp_path / "m.gguf", "gpt-2", tokens, merges))
    assert vocabulary.texts.index("</s>") in vocabulary.control
    assert vocabulary.tokenizing.altered == frozenset()
    assert vocabulary.decode(vocabulary.tokenize(b"a</s>b")) == b"a</s>b"
    with engine_on(vocabulary) as engine:
        for pattern in ('"(</s>|[a-b]{0,2})"', '"[</s>]{1,4}"'):
            one = engine.select("x", grammar=Grammar.from_regex(pattern), search=SearchParams(max_tokens=8))
            assert one.certificate.proved, one.certificate.reason
        found = engine.beam_search("x", Grammar.from_regex('"</s>" *'), beam=BeamSearchParams(width=2))
    assert found.text.startswith('"</s>"')


# Joint blocks


@pytest.mark.parametrize(
    ("kind", "options", "changed"),
    [
        ("merged", ["f", "oo", "a"], "foo"),
        ("unused", ["f", "oo", "o"], "foo"),
        ("dropped", ["q", "a", "b"], "q"),
        ("ghost", [" ", "a", "b"], " a"),
        ("merged", ["b", "c", "a"], ""),
    ],
)
def test_a_searched_block_whose_texts_are_altered_is_not_proved(kind, options, changed, tmp_path):
    """Three slots of which a text may be written otherwise: what is found is one of the block's texts, and the reason names the
    string. Where none may, the search is the list, proved."""
    found = []
    with engine_on(made(kind, tmp_path)) as engine:
        slots = [JointSlot(name, tuple(SlotOption(text, text) for text in options)) for name in "xyz"]
        for max_listed in (1, 100):
            request = JointRequest((slots[0], ".", slots[1], slots[2]), max_listed=max_listed)
            with task_group(engine._model_thread) as group:
                place = SlotContext(read_prompt(engine.vocabulary, "x", DEFAULT_PROMPTING), "")
                found.append(decide_jointly(engine._session(group), request, place))
    searched, listed = found
    assert searched.certificate.proved == (not changed)
    assert changed in searched.certificate.reason
    assert searched.text in {request.text_of(picked) for picked in product(range(3), repeat=3)}
    if not changed:
        assert (searched.text, searched.logp) == (listed.text, pytest.approx(listed.logp))


# Tokens that a grammar names


@pytest.mark.parametrize(
    ("rule", "texts", "changed"),
    [
        ('"a" <s> "ab" | "c"', {"aab", "c"}, ""),
        ('"a" <s> " b" | "c"', {"a b", "c"}, ""),
        ('<s> [ab] <s> "bc"', {"abc", "bbc"}, ""),
        ('"a" <s>', {"a"}, ""),
        ('<u> "a" | "c"', {"c"}, "<u>"),
        ('<u> | "c"', {"<u>", "c"}, "<u>"),
        (f'"a" <s> "{SIGN}b" | "c"', {"c"}, SIGN),
    ],
)
def test_texts_behind_named_tokens_are_found_or_doubted(rule, texts, changed, tmp_path):
    """SentencePiece puts a space behind a control token only where text is encoded: what the grammar has there is one of its texts,
    found by every search and drawn; what is behind a user-defined token may be missing, and nothing is proved."""
    grammar = Grammar.from_gbnf(f"root ::= {rule}")
    with engine_on(made("spaced", tmp_path)) as engine:
        for exact in (True, False):
            found = engine.beam_search(
                "x ", grammar, beam=BeamSearchParams(exact=exact, n=4, width=16, terminator="none")
            )
            assert set(found.texts) == texts
            assert changed in found.certificate.reason
            if exact:
                assert found.certificate.proved == (not changed)
        drawn = engine.sample("x ", grammar, n=3, seed=1)
        assert ({one.text for one in drawn} <= texts, drawn.exact) == (True, not changed)


def test_a_named_token_that_the_tokenizer_would_not_write_is_no_answer(tmp_path):
    """Behind `x ` the tokenizer writes ` a`, which the grammar does not allow: nothing is found, and no beam gives it."""
    vocabulary = made("spaced", tmp_path)
    grammar = Grammar.from_gbnf(f'root ::= <[{vocabulary.texts.index("a")}]> "b"')
    with engine_on(vocabulary) as engine:
        for exact in (True, False):
            with pytest.raises(NothingFoundError, match="no text"):
                engine.beam_search("x ", grammar, beam=BeamSearchParams(exact=exact, terminator="none"))
            beam = BeamSearchParams(exact=exact, terminator="none", canonical_only=False)
            assert engine.beam_search("x ", grammar, beam=beam).text == "ab"


@pytest.mark.parametrize("part", ["<s", "s>"])
def test_a_beginning_that_text_may_spell_too_stays_a_beginning(part, tmp_path):
    """A token `<s` makes text of `<s>` the token BOS; behind BOS a prompt begins with a space all the same."""
    tokens = [(one, -float(place), 1) for place, one in enumerate([SIGN, "b", "<", "s", ">", part])]
    vocabulary = vocabulary_of(make_scored(tmp_path / "m.gguf", tokens, space_prefix=True))
    with engine_on(vocabulary) as engine:
        plan = engine.tokens("b b", ["b"], terminator="none", prompting=PromptParams(boundary="split"))
    assert vocabulary.bos not in vocabulary.control
    assert [token for token, _ in plan.prompt] == [vocabulary.bos, *vocabulary.tokenize(b"b b")]
