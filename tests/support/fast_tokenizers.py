"""Fast tokenizers of Transformers: made by the suite, and rewritten from GGUF files with the same tokens."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import byte_bpe
from selectrie.backends.llama_cpp.gguf_header import read_texts
from selectrie.core.vocabulary import TokenizerKind, Vocabulary
from tests.support.vocabularies import vocabulary_of

SIGN = "\u2581"
GPT_2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PLAIN_BYTES = {**GPT_2, "use_regex": False}
LLAMA_3_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN_2_PATTERN = LLAMA_3_PATTERN.replace("{1,3}", "")
METASPACE = {"type": "Metaspace", "replacement": SIGN, "split": True}
SPACE_DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": SIGN}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ],
}
TO_SIGN = {"type": "Replace", "pattern": {"String": " "}, "content": SIGN}
PREPEND = {"type": "Prepend", "prepend": SIGN}
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
FALLBACK = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
SPECIAL = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")


def split_by(pattern: str, behavior: str = "Isolated") -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def sequence_of(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def added(token: int, content: str, *, special: bool = True, **flags: bool) -> dict[str, Any]:
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token, "content": content, "special": special, **usual, **flags}


def with_bos(token: int, text: str) -> dict[str, Any]:
    """A post-processor that puts one token before a text."""
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": text, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {text: {"id": text, "ids": [token], "tokens": [text]}},
    }


def spec_of(model: dict[str, Any], added_tokens: list[dict[str, Any]], **parts: Any) -> dict[str, Any]:
    """The content of a `tokenizer.json`."""
    empty = {"truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None}
    return {"version": "1.0", **empty, "added_tokens": added_tokens, "model": model, **parts}


def bpe(tokens: list[str], merges: list[tuple[str, str]], **more: Any) -> dict[str, Any]:
    usual = {"dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    vocab = {text: token for token, text in enumerate(tokens)}
    return {"type": "BPE", "vocab": vocab, "merges": [list(pair) for pair in merges], **usual, **more}


def tokenizer_of(spec: dict[str, Any], **named: str) -> Any:
    """The tokenizer of Transformers; named: its special tokens, such as bos_token."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(spec)), clean_up_tokenization_spaces=False, **named
    )


# Made by the suite


def byte_level_spec(*, pre: dict[str, Any] = GPT_2, whole: tuple[str, ...] = (), **parts: Any) -> dict[str, Any]:
    """Merges of the text in `byte_bpe`; `whole`: tokens that no merge makes, which are looked up before any merge."""
    made = byte_bpe.build(900)
    tokens = list(made.tokens[: made.n_real])
    tokens += [word for word in map(byte_bpe.spell, whole) if word not in tokens]
    merges = [tuple(merge.split(" ")) for merge in made.merges]
    specials = [added(len(tokens) + i, text) for i, text in enumerate(SPECIAL[1:])]
    more = [
        added(len(tokens) + len(specials), "<tool>", special=False),
        added(len(tokens) + len(specials) + 1, "\n\n\n", special=False, normalized=True),
    ]
    decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return spec_of(
        bpe(tokens, merges, ignore_merges=bool(whole)),
        specials + more,
        **{"pre_tokenizer": pre, "decoder": decoder, "post_processor": with_bos(len(tokens), "<s>"), **parts},
    )


def _pieces() -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens of ASCII text with U+2581 for spaces, and the merges that make them."""
    made = byte_bpe.build(900)
    plain = {character: chr(byte) for byte, character in enumerate(byte_bpe.byte_characters())}

    def spelled(text: str) -> str:
        return "".join(plain[character] for character in text).replace(" ", SIGN)

    pairs = [tuple(map(spelled, merge.split(" "))) for merge in made.merges]
    kept = [(left, right) for left, right in pairs if (left + right).replace(SIGN, " ").isascii()]
    characters = [SIGN, *(chr(code) for code in range(33, 127))]
    return list(dict.fromkeys([*characters, *(left + right for left, right in kept)])), kept


def scores_spec(*, scheme: str | None = "prepend", **parts: Any) -> dict[str, Any]:
    """SentencePiece's merges with tokens for bytes; scheme: of Metaspace, or "prepend" for the normalizer."""
    pieces, merges = _pieces()
    tokens = [*SPECIAL, *BYTES, *pieces]
    legal = [pair for pair in merges if "\n" not in "".join(pair)]
    tokens = [text for text in tokens if "\n" not in text]
    model = bpe(tokens, legal, **FALLBACK)
    own: dict[str, Any] = {"normalizer": {"type": "Sequence", "normalizers": [PREPEND, TO_SIGN]}}
    if scheme != "prepend":
        own = {"pre_tokenizer": {**METASPACE, "prepend_scheme": scheme}}
    specials = [added(i, text) for i, text in enumerate(SPECIAL)]
    usual = {"decoder": SPACE_DECODER, "post_processor": with_bos(1, "<s>")}
    return spec_of(model, specials, **{**usual, **own, **parts})


def with_listed_bytes(spec: dict[str, Any], *, special: bool) -> dict[str, Any]:
    """The same tokenizer with its byte tokens among the added ones, as a trainer lists them that was given them as special."""
    first = len(SPECIAL)
    return {
        **spec,
        "added_tokens": spec["added_tokens"]
        + [added(first + i, text, special=special) for i, text in enumerate(BYTES)],
    }


def unigram_spec(*, byte_fallback: bool, scheme: str = "always", **parts: Any) -> dict[str, Any]:
    """Pieces with scores, of which the best sum wins."""
    pieces, _ = _pieces()
    rows: list[list[Any]] = [[text, 0.0] for text in SPECIAL]
    rows += [[text, 0.0] for text in BYTES] if byte_fallback else []
    rows += [[text, -3.0 - 0.01 * place] for place, text in enumerate(dict.fromkeys(pieces)) if "\n" not in text]
    model = {"type": "Unigram", "unk_id": 0, "vocab": rows, "byte_fallback": byte_fallback}
    specials = [added(i, text) for i, text in enumerate(SPECIAL)]
    pre = {**METASPACE, "prepend_scheme": scheme}
    usual = {"pre_tokenizer": pre, "decoder": SPACE_DECODER, "post_processor": with_bos(1, "<s>")}
    return spec_of(model, specials, **{**usual, **parts})


def wordpiece_spec() -> dict[str, Any]:
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "a": 1, "##b": 2},
    }
    pre = {"type": "BertPreTokenizer"}
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return spec_of(model, [added(0, "[UNK]")], pre_tokenizer=pre, decoder=decoder)


WORDS = (" the", " of", " and", "The", " cat", " dogs", " there", " answer")
SPECS = {
    "gpt-2": byte_level_spec,
    "llama-3": lambda: byte_level_spec(pre=sequence_of(split_by(LLAMA_3_PATTERN), PLAIN_BYTES), whole=WORDS),
    "qwen-2": lambda: byte_level_spec(
        pre=sequence_of(split_by(QWEN_2_PATTERN), PLAIN_BYTES), normalizer={"type": "NFC"}, post_processor=None
    ),
    "starcoder": lambda: byte_level_spec(pre=sequence_of({"type": "Digits", "individual_digits": True}, GPT_2)),
    "byte-prefix": lambda: byte_level_spec(pre={**GPT_2, "add_prefix_space": True}),
    "prepend": scores_spec,
    "prepend-special-bytes": lambda: with_listed_bytes(scores_spec(), special=True),
    "prepend-added-bytes": lambda: with_listed_bytes(scores_spec(), special=False),
    "always": lambda: scores_spec(scheme="always"),
    "first": lambda: scores_spec(scheme="first"),
    "never": lambda: scores_spec(scheme="never"),
    "unigram": lambda: unigram_spec(byte_fallback=True),
    "unigram-special-bytes": lambda: with_listed_bytes(unigram_spec(byte_fallback=True), special=True),
    "unigram-first": lambda: unigram_spec(byte_fallback=True, scheme="first"),
    "unigram-nfkc": lambda: unigram_spec(byte_fallback=True, normalizer={"type": "NFKC"}),
    "unigram-unknown": lambda: unigram_spec(byte_fallback=False),
}
"""One tokenizer of each kind."""


@cache
def made(name: str) -> Any:
    """The tokenizer of a name in `SPECS`."""
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    return tokenizer_of(SPECS[name](), **tokens)


# Rewritten from GGUF files

PRE_OF = {
    "gpt-2": GPT_2,
    "starcoder": sequence_of({"type": "Digits", "individual_digits": True}, GPT_2),
    "qwen2": sequence_of(split_by(QWEN_2_PATTERN), PLAIN_BYTES),
    "falcon": sequence_of(
        {"type": "Punctuation", "behavior": "Contiguous"}, GPT_2, split_by("[0-9][0-9][0-9]")
    ),
}  # fmt: skip


def rewritten(path: Path, pre: dict[str, Any] | None) -> dict[str, Any]:
    """The `tokenizer.json` of a GGUF file's vocabulary; pre: for byte-level ones, their pre-tokenizer."""
    vocabulary = vocabulary_of(path)
    control = set(vocabulary.control.tolist())
    specials = [added(i, vocabulary.texts[i]) for i in sorted(control)]
    more = [added(i, vocabulary.texts[i], special=False) for i in vocabulary.user_defined.tolist() if i not in control]
    tokens = list(vocabulary.texts)
    if pre is None:
        return _rewritten_scores(vocabulary, path, specials + more)
    merges = [
        (merge[: merge.find(" ", 1)], merge[merge.find(" ", 1) + 1 :])
        for merge in read_texts(path, "tokenizer.ggml.merges")
    ]
    decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return spec_of(bpe(tokens, merges), specials + more, pre_tokenizer=pre, decoder=decoder)


def _rewritten_scores(vocabulary: Vocabulary, path: Path, added_tokens: list[dict[str, Any]]) -> dict[str, Any]:
    """Merges in the order of the scores of what they make, as Transformers converts SentencePiece's files."""
    import gguf

    assert vocabulary.kind is TokenizerKind.SCORES
    field = gguf.GGUFReader(path).fields["tokenizer.ggml.scores"]
    scores = [float(field.parts[i][0]) for i in field.data]
    token_of = {text: token for token, text in enumerate(vocabulary.texts)}
    merges = []
    for text, token in token_of.items():
        pairs = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        local = [(one, other) for one, other in pairs if one in token_of and other in token_of]
        local.sort(key=lambda pair: (token_of[pair[0]], token_of[pair[1]]))
        merges += [(-scores[token], one, other) for one, other in local]
    merges.sort(key=lambda row: row[0])
    special = {entry["content"] for entry in added_tokens}
    kept = [(one, other) for _, one, other in merges if one + other not in special]
    model = bpe(list(vocabulary.texts), kept, **FALLBACK)
    own = {"normalizer": {"type": "Sequence", "normalizers": [PREPEND, TO_SIGN]}, "decoder": SPACE_DECODER}
    return spec_of(model, added_tokens, post_processor=with_bos(1, "<s>"), **own)
