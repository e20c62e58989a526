"""Prompts, choices and searches on vocabularies of fast tokenizers: the laws of `tests/tokenization`, and normalised text."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")

import selectrie
from selectrie import BeamSearchParams, Grammar, PromptParams, SearchParams, Template
from selectrie.backends.transformers.vocabulary import read_vocabulary
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import TextError
from selectrie.testing.fakes import HashModel
from selectrie.tokenization.canonical import open_prompt
from selectrie.tokenization.encoding import encode_choices, encode_prompt
from selectrie.tokenization.prompts import read_prompt
from tests.support.fast_tokenizers import SPECS, made
from tests.support.n_examples import n_examples
from tests.tokenization import test_settled_positions as settled
from tests.tokenization.test_boundary import pairs_that_differ
from tests.tokenization.test_settled_positions import LIMITS, engine_on

WRITING = [name for name in SPECS if name != "unigram-unknown"]
"""Tokenizers that write every character of the texts below."""
ACCENTED, COMPOSED = "The cafe\u0301 of", "The café of"


@cache
def vocabulary(name: str) -> Vocabulary:
    tokenizer = made(name)
    return read_vocabulary(tokenizer, n_tokens=len(tokenizer))


def model_of(name: str, seed: int = 3) -> HashModel:
    return HashModel(seed, vocabulary=vocabulary(name), sharpness=3.0, limits=LIMITS)


@pytest.mark.short("gpt-2", "llama-3", "prepend", "always", "unigram")
@pytest.mark.parametrize("name", WRITING)
def test_the_own_encoding_keeps_the_context(name):
    """Prompts cut anywhere and whatever follows."""
    failed, n_tried = settled.broken(vocabulary(name), random.Random(1), 400)
    assert failed == []
    assert n_tried > 150


@pytest.mark.long
@pytest.mark.parametrize("name", WRITING)
def test_own_encodings_keep_their_context(name, record_property):
    """The law at 10 000 cuts a vocabulary."""
    failed, n_tried = settled.broken(vocabulary(name), random.Random(2), 10_000)
    assert failed == []
    record_property("cuts", n_tried)


@pytest.mark.parametrize("name", WRITING)
def test_many_texts_are_encoded_as_each_is_alone(name):
    """What is shared between the texts of a list changes no token of any."""
    assert settled.encoded_otherwise(vocabulary(name), random.Random(6), 300) == []


@pytest.mark.short("gpt-2", "llama-3", "prepend", "always", "unigram")
@pytest.mark.parametrize("name", [name for name in WRITING if not name.startswith("qwen") and name != "unigram-nfkc"])
def test_a_tail_is_encoded_as_the_whole(name):
    """Behind long prompts the tokens are those of prompt and choice encoded whole."""
    different, n_short = pairs_that_differ(vocabulary(name), random.Random(1), 300)
    assert different == []
    assert n_short >= 12


@pytest.mark.short("gpt-2", "prepend", "unigram")
@pytest.mark.parametrize("name", ["gpt-2", "llama-3", "byte-prefix", "prepend", "first", "unigram"])
def test_a_search_is_the_list(name):
    """Order and differences of log-probability by exact search and by a wide beam, and the mass of exact draws."""
    different, n_proved = settled.searches_that_differ(vocabulary(name), random.Random(3), 6, plain=False)
    assert different == []
    assert n_proved >= 3


@pytest.mark.short("gpt-2", "llama-3", "prepend", "always", "unigram")
@pytest.mark.parametrize("name", [name for name in WRITING if name != "unigram-nfkc"])
@given(
    prompt=st.sampled_from(("", " ", "a", "The", "The ", "It was ", "Answer:", "\n", "x  ")),
    choices=st.lists(
        st.sampled_from(("a", " a", "  a", "the", " the", "\n", ".", "日本", " 日", "e")), min_size=1, unique=True
    ),
)
@settings(max_examples=n_examples(60))
def test_choices_are_encoded_with_the_prompt(name, prompt, choices):
    """Context and path are the tokens that Transformers makes of prompt and choice together."""
    own = vocabulary(name)
    if not prompt and own.bos is None:
        return
    read = read_prompt(own, prompt, PromptParams())
    try:
        encoded = encode_choices(own, read, [choice.encode() for choice in choices])
    except selectrie.errors.PromptError:
        assert own.bos is None
        return
    assert encoded.boundary == "heal" or own.bos is None  # without BOS nothing may be left to heal
    if encoded.boundary == "split":
        return
    for place, choice in enumerate(choices):
        path = encoded.tokens[encoded.offsets[place] : encoded.offsets[place + 1]]
        assert [*encoded.context, *path] == made(name)(prompt + choice).input_ids


@pytest.mark.parametrize(
    ("start", "rest"), [("It was a<0x0", "A>"), ("the cat <0x0A", "> b"), ("It was a<", "0x0A> b")]
)
def test_the_name_of_an_added_byte_token_is_not_cut(start, rest):
    """No position within a name that the tokenizer looks up is settled, although the token spells something else."""
    own, tokenizer = vocabulary("prepend-added-bytes"), made("prepend-added-bytes")
    whole = tokenizer(start + rest).input_ids
    opened = open_prompt(own, read_prompt(own, start, PromptParams()))
    assert own.texts.index("<0x0A>") in whole
    assert whole[: len(opened.context)] == opened.context.tolist()
    assert opened.healed.endswith(start[start.index("<") :].encode())
    assert not opened.paths.writes(rest.encode())


CUT_ANYWHERE = (
    "",
    "a\n",
    "<|im_start|>\n",
    "the ca",
    " ",
    "<|im_end|>",
    "\n",
    "\n\n b\n",
    "x  ",
    "日",
    "é\n",
    "<|im_start|>the\n",
)
"""Prompts that end within and after what tokenizers treat each in its own way."""
ALTERNATIVES = ((" cat", "cats", ".", "the", " dog"), ("\ncat", " b", "  x"), ("日本", " 日", "é", "\n"))


def searches_that_differ_from_lists(name: str, prompts: Sequence[str]) -> tuple[list[object], int]:
    """Answers of searched requests that differ from those of the list, or whose tokens are not the tokenizer's; and the proofs.

    The tokens of a text are those that Transformers makes of prompt and text together.
    """
    own, tokenizer, reads = vocabulary(name), made(name), PromptParams(parse_special=True)
    different: list[object] = []
    n_proved = 0
    with engine_on(model_of(name)) as engine:
        for prompt, texts in product(prompts, ALTERNATIVES):
            grammar = Grammar.from_choices(texts)
            listed = engine.select(prompt, list(texts), terminator="none", prompting=reads)
            logp = {one.text: one.logp for one in listed.choices}
            order = sorted(texts, key=lambda text: -logp[text])
            context = open_prompt(own, read_prompt(own, prompt, reads)).context.tolist()
            for exact in (True, False):
                beam = BeamSearchParams(width=64, n=len(texts), exact=exact, terminator="none")
                found = engine.beam_search(prompt, grammar, beam=beam, prompting=reads)
                n_proved += found.certificate.proved
                moved = [one.logp - found.logp - logp[one.text] + logp[found.text] for one in found]
                if list(found.texts) != order or not np.allclose(moved, 0, atol=1e-6):
                    different.append((prompt, texts, exact, found.texts, order))
                for one in found:
                    path = [*context, *(token.id for token in one.tokens)]
                    if path != tokenizer(prompt + one.text).input_ids:
                        different.append((prompt, one.text, [own.texts[token] for token in path]))
            searched = engine.select(
                prompt, grammar=Grammar.from_regex(alternation(texts)), terminator="none", prompting=reads
            )
            drawn = engine.sample(prompt, grammar, n=4, seed=1, terminator="none", prompting=reads)
            paths = [[*context, *(token.id for token in one.tokens)] for one in drawn]
            if searched.text != order[0] or paths != [tokenizer(prompt + one.text).input_ids for one in drawn]:
                different.append((prompt, texts, searched.text, order[0], [one.text for one in drawn]))
    return different, n_proved


def alternation(texts: tuple[str, ...]) -> str:
    """A pattern of these texts, and of far more that no model of the suite prefers: too many to list."""
    return "|".join([*map(re.escape, texts), "~[0-9]{40}"])


@pytest.mark.short("byte-prefix")
@pytest.mark.parametrize("name", ["byte-prefix", "always", "unigram-special-bytes"])
def test_searched_texts_have_the_tokens_and_scores_of_the_list(name):
    """Behind prompts cut anywhere: order, log-probabilities, and the tokenizer's own tokens of prompt and text, proved."""
    different, n_proved = searches_that_differ_from_lists(name, CUT_ANYWHERE[:4])
    assert different == []
    assert n_proved >= 12


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in WRITING if name not in ("qwen-2", "unigram-nfkc")])
def test_all_searched_texts_have_the_tokens_and_scores_of_the_list(name):
    """The law for every tokenizer that puts BOS first and does not normalise, behind every prompt."""
    different, n_proved = searches_that_differ_from_lists(name, CUT_ANYWHERE)
    assert different == []
    assert n_proved >= 30


@pytest.mark.parametrize("name", ["always", "first", "byte-prefix", "unigram"])
def test_texts_that_begin_with_a_space_after_nothing(name):
    """A tokenizer that adds no space before one writes ` a` and `a` alike: with both in a grammar nothing is proved."""
    spaced, plain, neither = [" a cat", " a dog"], ["a cat", "a dog"], ["the", "b"]
    proofs = []
    with engine_on(model_of(name)) as engine:
        for texts in (spaced, plain, [*spaced, *neither], [*spaced, plain[0]], [" ", "b"]):
            grammar = Grammar.from_choices(texts)
            logp = {one.text: one.logp for one in engine.select("", texts, terminator="none").choices}
            found = engine.beam_search("", grammar, beam=BeamSearchParams(exact=True, n=4, terminator="none"))
            proofs.append(found.certificate.proved)
            assert [one.logp for one in found] == pytest.approx([logp[one.text] for one in found])
            if plain[0] in texts and spaced[0] in texts:
                assert set(found.texts) == {"a cat", " a dog"}
                assert found.certificate.reason == "the tokenizer writes ' a cat' and 'a cat' alike"
            else:
                assert list(found.texts) == sorted(texts, key=lambda text: -logp[text])
        many = engine.beam_search(
            "", Grammar.from_regex("[ a-c]{1,30}"), beam=BeamSearchParams(exact=False, max_tokens=8)
        )
        assert many.certificate.reason == "the tokenizer writes a text alike with and without a space before it"
        delimited = engine.beam_search(
            "",
            Grammar.from_choices(["a", "b"]),
            prompting=PromptParams(delimiter=" "),
            beam=BeamSearchParams(exact=True, terminator="none"),
        )
        assert delimited.certificate.proved
        assert delimited.logp == pytest.approx(max(engine.score("", text).logp for text in (" a", " b")))
    assert proofs == [True, True, True, False, True]


def test_listed_texts_that_begin_with_spaces_are_written():
    """Where any text may be altered, each listed text is encoded to find out, with the spaces that it begins with."""
    texts = [" a cat", "  x", "b"]
    with engine_on(model_of("unigram-nfkc")) as engine:
        logp = {one.text: one.logp for one in engine.select("", texts, terminator="none").choices}
        beam = BeamSearchParams(exact=True, n=4, terminator="none")
        found = engine.beam_search("", Grammar.from_choices(texts), beam=beam)
    assert found.certificate.proved
    assert list(found.texts) == sorted(texts, key=lambda text: -logp[text])
    assert [one.logp for one in found] == pytest.approx([logp[one.text] for one in found])


# Normalised text


def test_a_prompt_is_normalised_and_every_answer_says_so():
    """The answer is that of the normalised prompt; its notes say that the prompt was changed."""
    texts, search = ["men", "boys"], SearchParams(max_tokens=8)
    grammar, prompts = Grammar.from_choices(texts), (COMPOSED, ACCENTED)
    with engine_on(model_of("qwen-2")) as engine:
        answers = [
            [
                engine.select(prompt, texts, terminator="none"),
                engine.score(prompt, " men"),
                engine.beam_search(prompt, grammar, beam=BeamSearchParams(exact=True, terminator="none")),
                engine.beam_search(prompt, grammar, beam=BeamSearchParams(terminator="none")),
                engine.sample(prompt, grammar, n=2, seed=1, terminator="none", search=search),
                engine.generate(prompt, seed=1, stopping=selectrie.StopParams(max_tokens=4)),
                engine.render(Template(f"{prompt} <<select 'x' options=o>>"), o=texts).selections["x"],
            ]
            for prompt in prompts
        ]
    for plain, changed in zip(*answers, strict=True):
        assert plain.notes == ()
        assert len(changed.notes) == 1
        assert "normalises text" in changed.notes[0]
        assert "normalises text" in changed.to_dict()["notes"][0]
        assert "notes" not in plain.to_dict()
    (composed, *_), (accented, *_) = answers
    assert [one.logp for one in composed.choices] == [one.logp for one in accented.choices]


def test_a_normalised_prompt_is_healed():
    """The end of a word of the prompt is encoded again with the choices, as behind the normalised prompt."""
    own = vocabulary("qwen-2")
    prompts = [read_prompt(own, f"{prompt} t", PromptParams()) for prompt in (COMPOSED, ACCENTED)]
    composed, accented = (encode_choices(own, prompt, [b"he", b"o"]) for prompt in prompts)
    assert (accented.boundary, accented.healed) == (composed.boundary, composed.healed) == ("heal", b" t")
    assert accented.tokens.tolist() == composed.tokens.tolist()
    assert [prompt.is_normalized for prompt in prompts] == [False, True]


def test_normalised_prompts_have_the_tokens_of_transformers():
    """As text, with control tokens in it, and in turns."""
    own = vocabulary("qwen-2")
    for text in (ACCENTED, f"<|im_start|>{ACCENTED}<|im_end|>e\u0301", "\u212b"):
        read = read_prompt(own, text, PromptParams(parse_special=True))
        assert read.is_normalized
        assert encode_prompt(own, read).tolist() == made("qwen-2")(text).input_ids
    assert not read_prompt(own, COMPOSED, PromptParams()).is_normalized


def test_texts_that_would_change_are_refused():
    """A choice, the text after it, and a grammar's text, each with both forms."""
    said = r"normalises 'e\\u0301' to '\\xe9'; give it in that form"
    with engine_on(model_of("qwen-2")) as engine:
        with pytest.raises(TextError, match=f"choice 1: .*{said}"):
            engine.select("It was", ["a", "e\u0301"])
        with pytest.raises(TextError, match=f"following: .*{said}"):
            engine.select("It was", ["a", "b"], following="e\u0301")
        with pytest.raises(TextError, match=f"text .* of the grammar: .*{said}"):
            engine.beam_search("It was", Grammar.from_choices(["a", "e\u0301"]))
        with pytest.raises(TextError, match=f"choice 0: .*{said}"):
            engine.generate("It was", options=selectrie.GenerationParams(choices=["e\u0301"]))
        long = Grammar.from_regex("(a|e\u0301)[ab]{0,17}")
        found = engine.beam_search("It was", long, beam=BeamSearchParams(terminator="none", max_tokens=6))
        assert not found.certificate.proved
        assert "does not write '\u0301' unchanged" in found.certificate.reason


def test_a_choice_that_composes_with_the_prompt_is_encoded_apart():
    """A combining character is its own normal form, but not after a letter: the boundary is then a split."""
    with engine_on(model_of("qwen-2")) as engine:
        found = engine.select("The e", ["\u0301", " a"], terminator="none")
    assert found.signature.boundary == "split"
    assert np.isfinite([one.logp for one in found.choices]).all()


def test_unigram_searches_are_right_without_a_law():
    """No pair of tokens is dropped, and paths that the tokenizer would not make are refused."""
    texts = ["the cat", "the dog", "a"]
    with engine_on(model_of("unigram-nfkc")) as engine:
        listed = {one.text: one.logp for one in engine.select("It was ", texts, terminator="none").choices}
        for canonical_only in (True, False):
            beam = BeamSearchParams(exact=True, n=3, terminator="none", canonical_only=canonical_only)
            found = engine.beam_search("It was ", Grammar.from_choices(texts), beam=beam)
            assert set(found.texts) == set(texts)
            if canonical_only:
                assert list(found.texts) == sorted(texts, key=lambda text: -listed[text])
