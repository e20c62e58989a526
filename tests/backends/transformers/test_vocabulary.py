"""Vocabularies of fast tokenizers: bytes and tokens against Transformers itself, and against llama.cpp on equal vocabularies."""

from __future__ import annotations

import json
import random
import re
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")

from selectrie.backends.transformers.tokenizer_rules import composed_by_nfc
from selectrie.backends.transformers.vocabulary import open_tokenizer, read_vocabulary
from selectrie.core.vocabulary import TokenizerKind, Vocabulary
from selectrie.errors import ModelFileError, TextError, UnsupportedModelError
from selectrie.options import PromptParams
from selectrie.tokenization.encoding import encode_after, encode_prompt
from selectrie.tokenization.prompts import read_prompt, with_text
from tests.support import fast_tokenizers
from tests.support.fast_tokenizers import SPECIAL, SPECS, added, made, rewritten, tokenizer_of
from tests.support.n_examples import n_examples
from tests.support.real_data import real_file
from tests.support.vocabularies import vocabulary_of
from tests.tokenization.test_boundary import random_text
from tests.tokenization.test_settled_positions import cuts

PLAIN = PromptParams()
SPECIAL_TOO = PromptParams(parse_special=True)
HARD = (
    *(
        "Hello world",
        " two  spaces",
        "tab\tnew\nline\r\n",
        "naïve café ﬁ Å",
        "日本語テキスト",
        "🙂👩\u200d👩\u200d👧",
        "▁ literal",
    ),
    *(
        "a\u0301",
        "0x<0x41>",
        "x" * 40,
        "\x00\x01",
        "\ufeff bom",
        "\u200b",
        "İstanbul ǅ",
        "a\u00a0b",
        "<s></s><|im_end|>",
    ),
    *("", " ", "  ", "\n", "\n\n\n", " <tool> ", "a<tool>b", "<unk>"),
)
ENDS = {"bos_token": "<s>", "eos_token": "</s>"}
CHANGING = ("unigram-nfkc", "unigram-unknown")
"""Tokenizers that do not write every text unchanged."""
texts = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from((*HARD, *"ab .\n", "the", "cat's"))).map("".join),
    st.sampled_from(HARD),
)


@cache
def vocabulary(name: str) -> Vocabulary:
    tokenizer = made(name)
    return read_vocabulary(tokenizer, n_tokens=len(tokenizer) + 7)


@pytest.mark.short("gpt-2", "llama-3", "prepend", "always", "unigram*")
@pytest.mark.parametrize("name", SPECS)
@given(text=texts)
def test_tokens_are_those_of_transformers(name, text):
    """Control tokens spelled in a text are plain text, and so are their parts."""
    own = vocabulary(name)
    try:
        tokens = own.tokenize(text.encode())
    except TextError:
        assert name == "unigram-unknown"
        return
    if name.startswith("unigram") and any(one in text for one in SPECIAL):
        assert not set(tokens) & set(range(len(SPECIAL)))  # Transformers looks for special pieces in text too
    else:
        assert tokens == made(name)(text, add_special_tokens=False, split_special_tokens=True).input_ids


@pytest.mark.short("gpt-2", "llama-3", "prepend", "unigram*")
@pytest.mark.parametrize("name", [name for name in SPECS if name not in CHANGING])
@given(text=texts)
def test_the_bytes_of_tokens_spell_the_text(name, text):
    """Whatever the text, but for what the vocabulary itself says may be altered."""
    own = vocabulary(name)
    data = text.encode()
    spelled = own.decode(own.tokenize(data))
    altered = own.tokenizing.altered
    if not any(one in data for one in altered):
        assert spelled == own.with_added_space(data)
    if own.spacing is not None and not any(one in data for one in altered):
        assert own.decode(own.spacing.encode_inside(data)) == data


def test_every_byte_may_be_told_apart_from_the_altered():
    """The law above is tried on most texts: of the hard ones, few have anything that may be altered."""
    for name in SPECS:
        altered = vocabulary(name).tokenizing.altered
        n_tried = sum(not any(one in text.encode() for one in altered or ()) for text in HARD)
        assert n_tried >= 12


@pytest.mark.short("gpt-2", "llama-3", "prepend", "unigram*")
@pytest.mark.parametrize("name", SPECS)
@given(parts=st.lists(st.one_of(st.sampled_from(SPECIAL), texts), max_size=6))
@settings(max_examples=n_examples(60))
def test_tokens_behind_control_tokens(name, parts):
    """A text with control tokens is read as Transformers reads it: a space is added before text where it adds one."""
    own, text = vocabulary(name), "".join(parts)
    reference = made(name)(text).input_ids
    starts_itself = own.bos is not None and made(name)(text, add_special_tokens=False).input_ids[:1] == [own.bos]
    try:
        tokens = encode_prompt(own, read_prompt(own, text, SPECIAL_TOO)).tolist() if text or own.bos is not None else []
    except TextError:
        assert name == "unigram-unknown" or any(one in text.encode() for one in own.ambiguous)
        return
    assert tokens == (reference[1:] if starts_itself else reference)


@pytest.mark.parametrize("name", SPECS)
def test_a_text_that_continues_bos_is_told_from_one_that_begins(name):
    """A tokenizer that adds its space at the beginning alone adds none where the text itself spells BOS."""
    own = vocabulary(name)
    for start, prompting in (("", PLAIN), ("<s>", SPECIAL_TOO)):
        if own.bos is None:
            continue
        for text in ("a b", " a"):
            reference = made(name)(start + text, add_special_tokens=not start).input_ids
            assert encode_prompt(own, read_prompt(own, start + text, prompting)).tolist() == reference


@pytest.mark.parametrize("name", SPECS)
def test_pieces_are_what_the_decoder_writes(name):
    """Each ordinary token alone, decoded by Transformers where it is valid UTF-8."""
    own, backend = vocabulary(name), made(name).backend_tokenizer
    n_compared = 0
    before = backend.encode("a", add_special_tokens=False).ids
    prefix = backend.decode(before, skip_special_tokens=False)
    for token, piece in enumerate(own.pieces[: len(made(name))]):
        if token in own.control or token in own.user_defined or not piece:
            continue
        try:
            expected = prefix + piece.decode()
        except UnicodeDecodeError:
            continue
        assert backend.decode([*before, token], skip_special_tokens=False) == expected
        n_compared += 1
    assert n_compared > 90


@pytest.mark.parametrize("name", SPECS)
def test_bytes_that_are_no_text_are_never_spelled(name):
    """Text cut inside a character becomes tokens that do not spell it, so that no caller takes them for its encoding."""
    own = vocabulary(name)
    if name == "unigram-unknown":
        with pytest.raises(TextError):
            own.tokenize("é".encode()[:1])
        return
    for cut in ("é".encode()[:1], "é".encode()[1:], "日本".encode()[:4], b"a\xff b"):
        assert own.decode(own.tokenize(cut)) not in (cut, b" " + cut)


@pytest.mark.parametrize("name", SPECS)
def test_ids_cut_inside_a_character_stay(name):
    """Ids as a prompt, random ones and those of a text that ends inside a character, are kept as they are."""
    own, rng = vocabulary(name), random.Random(1)
    spelled = [token for token, piece in enumerate(own.pieces) if piece]
    if name == "unigram-unknown":
        spelled = [token for token in spelled if own.pieces[token].isascii()]
    for _ in range(100):
        ids = rng.choices(spelled, k=rng.randrange(1, 8))
        prompt = read_prompt(own, ids, PLAIN)
        expected = ids if own.bos is None or ids[0] == own.bos else [own.bos, *ids]
        assert encode_prompt(own, prompt).tolist() == expected


@pytest.mark.parametrize(("name", "kind", "is_known"), [
    ("gpt-2", TokenizerKind.MERGES, True),
    ("starcoder", TokenizerKind.MERGES, True),
    ("qwen-2", TokenizerKind.MERGES, True),
    ("byte-prefix", TokenizerKind.MERGES, True),
    ("llama-3", TokenizerKind.UNKNOWN, True),
    ("prepend", TokenizerKind.SCORES, True),
    ("always", TokenizerKind.SCORES, True),
    ("first", TokenizerKind.SCORES, True),
    ("never", TokenizerKind.SCORES, True),
    ("unigram", TokenizerKind.UNKNOWN, True),
    ("unigram-nfkc", TokenizerKind.UNKNOWN, False),
    ("unigram-unknown", TokenizerKind.UNKNOWN, False),
])  # fmt: skip
def test_kinds(name, kind, is_known):
    """Words that are taken whole, and scores of whole pieces, are of no kind that searches rely on."""
    found = vocabulary(name).tokenizing
    assert (found.kind, found.splits_locally, found.altered is not None) == (kind, True, is_known)


@pytest.mark.parametrize("pattern", [r"[^ ]+ +|.", r".*x|.", r"\w+(?=.* )|.|\n", r"[\s\S]{3}"])
def test_a_pattern_that_looks_far_settles_nothing(pattern):
    """Where words depend on what is far away, no position is certain."""
    pre = fast_tokenizers.sequence_of(fast_tokenizers.split_by(pattern), fast_tokenizers.PLAIN_BYTES)
    own = read_vocabulary(tokenizer_of(fast_tokenizers.byte_level_spec(pre=pre)), n_tokens=1000)
    assert (own.kind, own.tokenizing.splits_locally) == (TokenizerKind.UNKNOWN, False)


def test_words_that_case_splits_are_not_merged_alone():
    """A pattern that splits camelCase, as o200k does, is local, but a run of letters is not one word."""
    pre = fast_tokenizers.sequence_of(
        fast_tokenizers.split_by(r" ?[A-Z]*[a-z]+|\s+(?!\S)|\s+|."), fast_tokenizers.PLAIN_BYTES
    )
    own = read_vocabulary(tokenizer_of(fast_tokenizers.byte_level_spec(pre=pre)), n_tokens=1000)
    assert (own.kind, own.tokenizing.splits_locally) == (TokenizerKind.UNKNOWN, True)


def test_special_ids_of_every_source():
    """What ends a generation is said by the configuration, one id or several, and by the tokenizer."""
    tokenizer = made("prepend")
    for configured, expected in ((None, [2]), (4, [2, 4]), ([4, 2], [2, 4]), ((), [2])):
        own = read_vocabulary(tokenizer, n_tokens=1200, eos_token_ids=configured)
        assert own.eog.tolist() == expected
    assert (own.bos, own.declared_bos, own.eos, own.start) == (1, None, 2, 1)
    named = made("qwen-2").bos_token_id
    assert named is not None
    other = vocabulary("qwen-2")
    assert (other.bos, other.declared_bos, other.start) == (None, named, named)  # it puts nothing before a text
    assert replace(other, declared_bos=None).start == other.eos
    assert replace(other, declared_bos=None).digest != other.digest
    with pytest.raises(UnsupportedModelError, match=r"eos_token_id = \[2, 1200\]: the model has 1200 tokens"):
        read_vocabulary(tokenizer, n_tokens=1200, eos_token_ids=1200)


def test_ids_without_a_token_are_control_tokens_without_a_spelling():
    """Holes among the ids, and logits beyond the last id, are never made from text and spell nothing."""
    spec = SPECS["gpt-2"]()
    last = max(one["id"] for one in spec["added_tokens"])
    spec["added_tokens"].append(added(last + 3, "<far>"))
    spec["model"]["vocab"].update({one["content"]: one["id"] for one in spec["added_tokens"]})
    own = read_vocabulary(tokenizer_of(spec), n_tokens=last + 10)
    missing = [last + 1, last + 2, *range(last + 4, last + 10)]
    assert own.n_tokens == last + 10
    assert all((own.pieces[token], own.texts[token]) == (b"", "") for token in missing)
    assert set(missing) <= set(own.control.tolist())
    assert own.texts[last + 3] == "<far>"
    assert own.encode_spans([(b"a<far>b", True)])[0].tolist()[-1] == last + 3
    with pytest.raises(UnsupportedModelError, match=rf"ids up to {last + 3}, the model only {last + 3} logits"):
        read_vocabulary(tokenizer_of(spec), n_tokens=last + 3)


def test_white_space_beside_added_tokens():
    """Tokens that take white space along do so in a template, and are counted among what alters text elsewhere."""
    spec = SPECS["gpt-2"]()
    last = max(one["id"] for one in spec["added_tokens"])
    spec["added_tokens"] += [
        added(last + 1, "<|a|>", rstrip=True, lstrip=True),
        added(last + 2, "<b>", special=False, rstrip=True),
    ]
    tokenizer = tokenizer_of(spec)
    own = read_vocabulary(tokenizer, n_tokens=last + 3)
    assert (own.strips_left.tolist(), own.strips_right.tolist()) == ([last + 1], [last + 1, last + 2])
    assert {b"<b> ", b"<b>\n", "<b>\u3000".encode()} <= own.tokenizing.altered
    for text in ("x <|a|>\n y", "<|a|>  ", " \t<|a|>z", "x<b> y", "a\u3000<|a|>\u00a0\nb", "a\x1c<|a|>\x1cb"):
        tokens, rest = own.encode_spans([(text.encode(), True)])
        assert [*tokens.tolist(), *own.tokenize(rest)] == tokenizer(text, add_special_tokens=False).input_ids


def test_the_tokenizer_of_the_user_is_not_written_to():
    """Nothing about it changes, and control tokens in its own text are control tokens as before."""
    tokenizer = tokenizer_of(SPECS["prepend"](), **ENDS)
    before = tokenizer.backend_tokenizer.to_str(), tokenizer("a</s>b").input_ids
    own = read_vocabulary(tokenizer, n_tokens=len(tokenizer))
    assert 2 not in own.tokenize(b"a</s>b")
    assert own.tokenizing
    assert (tokenizer.backend_tokenizer.to_str(), tokenizer("a</s>b").input_ids) == before
    assert not tokenizer.backend_tokenizer.encode_special_tokens


@pytest.mark.parametrize("name", ["prepend-special-bytes", "prepend-added-bytes", "unigram-special-bytes"])
def test_byte_tokens_spell_their_byte_wherever_they_are_listed(name):
    """A byte token among the special or added ones is what plain text becomes, and spells its byte; its name in text does not."""
    own, plain = vocabulary(name), vocabulary(name.split("-")[0])
    [line_end] = own.tokenize(b"a\n")[1:]
    assert own.texts[line_end] == "<0x0A>"
    assert own.pieces[line_end] == b"\n"
    assert line_end not in own.control
    assert own.pieces == plain.pieces
    assert own.control.tolist() == plain.control.tolist()
    backend = made(name).backend_tokenizer
    assert backend.decode([*own.tokenize(b"a"), line_end], skip_special_tokens=False).endswith("a\n")
    for text in ("a\n", "a\n\n b", "日\n", "\t"):
        assert own.tokenize(text.encode()) == plain.tokenize(text.encode())
    if "special" in name:
        with pytest.raises(TextError, match="special token '<0x0A>', which this tokenizer also makes of other text"):
            read_prompt(own, "a<0x0A>b", SPECIAL_TOO)
    else:
        assert b"<0x0A>" in own.tokenizing.altered


def test_a_byte_of_the_alphabet_that_is_special_is_text_too():
    """The line end of a byte-level vocabulary, listed as a special token, is what plain text becomes."""
    spec = SPECS["gpt-2"]()
    line_end = spec["model"]["vocab"]["\u010a"]
    spec["added_tokens"].insert(0, added(line_end, "\u010a"))
    own = read_vocabulary(tokenizer_of(spec, **ENDS), n_tokens=1024)
    assert own.tokenize(b"a\n")[1:] == [line_end]
    assert (own.pieces[line_end], line_end in own.control) == (b"\n", False)


def test_special_tokens_in_normalised_text_are_refused_where_they_are_read():
    """Transformers finds such a token only at the beginning and behind a space; plain text is read as ever."""
    spec = SPECS["prepend"]()
    for token in spec["added_tokens"]:
        token["normalized"] = True
    tokenizer = tokenizer_of(spec, **ENDS)
    own = read_vocabulary(tokenizer, n_tokens=len(tokenizer))
    assert [len(tokenizer(text, add_special_tokens=False).input_ids) for text in ("</s>", "a</s>")] == [1, 5]
    for text in ("</s>", "a</s>", "a </s>"):
        plain = tokenizer(text, split_special_tokens=True).input_ids
        assert encode_prompt(own, read_prompt(own, text, PLAIN)).tolist() == plain
        with pytest.raises(TextError, match=r"special token '</s>', which .* does not find everywhere"):
            read_prompt(own, text, SPECIAL_TOO)


def test_a_special_token_that_merges_make_is_text_too():
    """Where merges lead to a special token, plain text spells it, so it has bytes and is no control token."""
    spec = SPECS["never"]()
    spec["model"]["merges"] += [["<", "s"], ["<s", ">"]]
    spec["model"]["vocab"]["<s"] = 1 + max(spec["model"]["vocab"].values())
    tokenizer = tokenizer_of(spec, **ENDS)
    own = read_vocabulary(tokenizer, n_tokens=len(tokenizer))
    assert own.tokenize(b"<s>") == [1]
    assert (own.pieces[1], 1 in own.control, own.bos) == (b"<s>", False, 1)


@pytest.mark.parametrize(("change", "reason"), [
    (lambda spec: spec.update(fast_tokenizers.wordpiece_spec()), "of type WordPiece, whose tokens do not spell the text"),
    (lambda spec: spec.update(decoder=None), "has no decoder, so the bytes of a token are not known"),
    (lambda spec: spec.update(decoder={"type": "BPEDecoder", "suffix": "</w>"}), "decoder is of type BPEDecoder"),
    (lambda spec: spec["model"].update(dropout=0.1), "drops merges at random"),
    (lambda spec: spec["model"].update(end_of_word_suffix="</w>"), "spelled differently at the ends of words"),
    (lambda spec: spec["model"].update(byte_fallback=False, unk_token=None), "leaves out characters without a token"),
    (lambda spec: spec.update(normalizer={"type": "Lowercase"}, pre_tokenizer={"type": "WhitespaceSplit"}), "writes 'a b' as 'ab'"),
])  # fmt: skip
def test_tokenizers_that_are_refused(change, reason):
    """The error says what about the tokenizer is in the way."""
    spec = SPECS["prepend"]()
    change(spec)
    with pytest.raises(UnsupportedModelError, match=reason):
        read_vocabulary(tokenizer_of(spec), n_tokens=2000, name="m")


def test_a_tokenizer_without_a_fast_form_is_refused():
    """What is not a fast tokenizer has no parts to read."""
    with pytest.raises(UnsupportedModelError, match="its tokenizer is a object, not a fast one"):
        read_vocabulary(object(), n_tokens=10)


def test_characters_without_a_token_are_refused_by_name():
    """A vocabulary without bytes says which part of a text it cannot write."""
    with pytest.raises(TextError, match="no token for '日本'"):
        vocabulary("unigram-unknown").tokenize("a 日本".encode())


def test_bytes_without_a_token_are_refused_by_name():
    """A byte-level vocabulary that lacks a byte says so; Transformers would leave it out."""
    spec = SPECS["gpt-2"]()
    spec["model"]["vocab"]["\u0100unused"] = spec["model"]["vocab"].pop("\u00c3")  # the byte C3
    spec["model"]["merges"] = [pair for pair in spec["model"]["merges"] if "\u00c3" not in "".join(pair)]
    own = read_vocabulary(tokenizer_of(spec), n_tokens=2000)
    assert own.tokenize(b"abc")
    assert b"\xc3" in own.tokenizing.altered
    with pytest.raises(TextError, match=r"no token for '\\\\xc3'"):
        own.tokenize("é".encode())


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12))
@settings(max_examples=n_examples(400))
def test_nfc_changes_no_text_without_the_characters_that_it_may_change(text):
    """The list of characters is complete."""
    own = vocabulary("qwen-2")
    if not any(one in text.encode() for one in composed_by_nfc()):
        assert own.normalized(text.encode()) == text.encode()


def test_nfc_is_known_by_its_characters():
    """Composed letters are no reason for doubt; what composes is, combining or not."""
    listed = composed_by_nfc()
    assert {"\u09be".encode(), "\u0dcf".encode(), "\u102e".encode()} <= listed  # vowel signs, of class 0
    assert {"\u0301".encode(), "\u212b".encode(), "\u1161".encode(), "\u11a8".encode(), "\u0345".encode()} <= listed
    assert not {"é".encode(), "한".encode(), "ß".encode(), "日".encode(), b"a"} & listed


def test_threads_get_the_same_tokens():
    """Eight threads encode different texts at once."""
    own = vocabulary("gpt-2")
    said = [random_text(random.Random(seed), 200).encode() for seed in range(8)]
    expected = [own.tokenize(text) for text in said]
    different: list[int] = []

    def check(index: int) -> None:
        different.extend(index for _ in range(50) if own.tokenize(said[index]) != expected[index])

    threads = [threading.Thread(target=check, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert different == []


# Real vocabularies


REAL = {
    "gpt-2": "gpt-2",
    "starcoder": "starcoder",
    "qwen2": "qwen2",
    "falcon": "falcon",
    "llama-spm": None,
    "stories260K": None,
}


@pytest.mark.short("stories260K", "gpt-2")
@pytest.mark.parametrize("name", REAL)
def test_tokens_are_those_of_llama_cpp(name):
    """The same tokens, merges and scores, written as tokenizer.json: pieces, kind and 2 000 texts are llama.cpp's."""
    file = "stories260K.gguf" if name == "stories260K" else f"random_real_vocab/random-{name}.gguf"
    path = real_file(f"weights/{file}")
    other = vocabulary_of(path)
    pre = REAL[name] and fast_tokenizers.PRE_OF[name]
    own = read_vocabulary(tokenizer_of(rewritten(path, pre)), n_tokens=other.n_tokens)
    assert (own.pieces, own.texts) == (other.pieces, other.texts)
    unknown = [] if pre else [0]  # special in a tokenizer.json, of a type of its own in a GGUF file
    assert sorted({*own.control.tolist()} - {*unknown}) == other.control.tolist()
    assert own.tokenizing == other.tokenizing
    rng = random.Random(1)
    said = [random_text(rng, rng.choice((3, 10, 40, 150))).encode() for _ in range(1500)]
    said += [(start + rest).encode() for start, rest in cuts(rng, 500, plain=False)]
    assert [text for text in said if own.tokenize(text) != other.tokenize(text)] == []
    bos = np.asarray([other.eos if other.bos is None else other.bos], dtype=np.int32)
    letters = own.tokenize(b"ab")
    for prefix in (bos, np.asarray(letters, dtype=np.int32)):
        for text in said[:200]:
            assert encode_after(own, prefix, text) == encode_after(replace(other, bos=own.bos), prefix, text)


def test_a_folder_is_read():
    """The vocabulary of the real checkpoint is that of its GGUF file."""
    folder = real_file("weights/stories260K-hf")
    own = read_vocabulary(open_tokenizer(folder), n_tokens=512)
    other = vocabulary_of(real_file("weights/stories260K.gguf"))
    assert (own.pieces, own.texts, own.bos, own.eos) == (other.pieces, other.texts, other.bos, other.eos)
    assert own.tokenizing == other.tokenizing


@pytest.mark.parametrize("name", ["gpt-2", "qwen-2", "always"])
@pytest.mark.parametrize("n_tokens", [2, 3, 8])
def test_padding_and_truncation_of_earlier_calls_do_not_matter(name, n_tokens):
    """A tokenizer keeps both until its next call: padding on the left is no BOS, and nothing is cut off."""
    tokenizer = made(name)
    tokenizer.pad_token, tokenizer.padding_side = "</s>", "left"
    expected = vocabulary(name)
    for options in ({"padding": "max_length", "max_length": n_tokens}, {"truncation": True, "max_length": 1}):
        tokenizer("a", **options)
        own = read_vocabulary(tokenizer, n_tokens=expected.n_tokens)
        assert own.bos == expected.bos
        assert own.tokenize(b"the cat sat there") == expected.tokenize(b"the cat sat there")


def test_a_post_processor_that_lacks_its_tokens_is_refused():
    """Encoding with it would end in a panic of the tokenizer's code; an id beyond the logits is refused too."""
    spec = SPECS["gpt-2"]()
    lacking = {**spec, "post_processor": {**spec["post_processor"], "special_tokens": {}}}
    for broken in (
        lacking,
        {**spec, "post_processor": {"type": "Sequence", "processors": [lacking["post_processor"]]}},
    ):
        with pytest.raises(UnsupportedModelError, match="does not define its token '<s>'"):
            read_vocabulary(tokenizer_of(broken), n_tokens=1024)
    far = {**spec, "post_processor": fast_tokenizers.with_bos(4000, "<s>")}
    with pytest.raises(UnsupportedModelError, match="puts token 4000 first, the model has 1024 logits"):
        read_vocabulary(tokenizer_of(far), n_tokens=1024)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    """The error names the folder and what is missing."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ModelFileError, match=r"has no tokenizer\.json"):
        open_tokenizer(tmp_path)


def folder_of(folder: Path, spec: dict[str, object], tokenizer_class: str) -> Path:
    """A folder with a tokenizer alone."""
    said = {"tokenizer_class": tokenizer_class, **ENDS, "unk_token": "<unk>"}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return folder


@pytest.mark.parametrize("name", SPECS)
def test_a_tokenizer_that_is_its_file_is_opened_without_a_word(name, tmp_path, caplog):
    """Transformers' plain class takes every part from the file."""
    open_tokenizer(folder_of(tmp_path, SPECS[name](), "PreTrainedTokenizerFast"))
    assert caplog.messages == []


@pytest.mark.parametrize(("name", "shown"), [
    ("prepend", r"encodes ' a' as \['<s>', '▁a'\]; its tokenizer.json says \['<s>', '▁', '▁a'\]"),
    ("always", r"encodes 'a<unk>b' as \['<s>', '▁a', '<unk>', 'b'\]; .* says \['<s>', '▁a', '<unk>', '▁b'\]"),
    ("first", ""),
])  # fmt: skip
def test_a_tokenizer_that_differs_from_its_file_is_named(name, shown, tmp_path, caplog):
    """Llama's class adds spaces in its own way: its tokens are used, as Transformers' are, and a warning shows both."""
    folder = folder_of(tmp_path, SPECS[name](), "LlamaTokenizer")
    tokenizer = open_tokenizer(folder)
    assert bool(caplog.messages) == bool(shown)
    for message in caplog.messages:
        assert re.search(
            f"{re.escape(str(folder))}: Transformers opens the tokenizer as LlamaTokenizer, which {shown}", message
        )
    own = read_vocabulary(tokenizer, n_tokens=len(tokenizer))
    for text in HARD:
        assert (
            own.tokenize(text.encode())
            == tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids
        )


@pytest.mark.parametrize("tokenizer_class", ["PreTrainedTokenizerFast", "LlamaTokenizer"])
def test_an_added_token_with_the_id_of_another_is_refused(tokenizer_class, tmp_path):
    """The tokenizer keeps the model's text for the id, both ways, and moves the added token to a new one."""
    spec = SPECS["prepend"]()
    token = spec["model"]["vocab"]["at"]
    spec["added_tokens"].append(added(token, "BAR", special=False))
    moved = tokenizer_of(spec).backend_tokenizer
    assert (moved.id_to_token(token), moved.decode([token])) == ("at", "at")
    assert moved.token_to_id("BAR") == len(spec["model"]["vocab"])
    with pytest.raises(
        UnsupportedModelError, match=rf"added token 'BAR' the id {token}, which 'at' has .* uses id 996 instead"
    ):
        open_tokenizer(folder_of(tmp_path, spec, tokenizer_class))


def test_two_texts_of_one_id_are_refused(tmp_path):
    """The tokenizer encodes both and decodes one; which one, its own copies do not agree on."""
    spec = SPECS["never"]()
    vocab = spec["model"]["vocab"]
    vocab["foo"] = vocab["bar"] = len(vocab)
    tokenizer = open_tokenizer(folder_of(tmp_path, spec, "PreTrainedTokenizerFast"))
    with pytest.raises(UnsupportedModelError, match=r"has two tokens of id \d+, '(foo|bar)' and '(foo|bar)'"):
        read_vocabulary(tokenizer, n_tokens=2000, name="m")


def test_ids_become_text_where_the_tokenizer_makes_them_of_it():
    """With a space that is added at the beginning alone, too."""
    for name in ("first", "always", "prepend", "byte-prefix", "unigram"):
        own = vocabulary(name)
        tokens = np.asarray([own.bos, *own.tokenize(b"the cat")], dtype=np.int32)
        prompt = with_text(own, tokens[:1], tokens[1:])
        assert (prompt.prefix.tolist(), own.with_added_space(prompt.text)) == ([own.bos], b" the cat")
