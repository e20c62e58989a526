"""Vocabularies that the suite writes itself, one of each kind of tokenizer that llama.cpp has; of a GGUF the header alone."""

from __future__ import annotations

import re
from pathlib import Path

import gguf

import byte_bpe

KINDS = ("merges", "whole-words", "scores", "longest-match", "wordpiece")
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
USER_DEFINED, UNUSED = 4, 5
_SIZE = 900
_WORDS = tuple(dict.fromkeys(re.findall(r"[a-z]+", byte_bpe.TEXT.lower())))


def make(kind: str, path: Path) -> Path:
    """Write the vocabulary of this kind."""
    {
        "merges": lambda writer: _byte_level(writer, "gpt-2", ()),
        "whole-words": lambda writer: _byte_level(writer, "llama-bpe", [f" {word}" for word in _WORDS]),
        "scores": _scores,
        "longest-match": _longest_match,
        "wordpiece": _wordpiece,
    }[kind](writer := _begin(path))
    return _end(writer, path)


def make_byte_level(path: Path, pre: str, tokens: list[str], merges: list[str], more: tuple[str, ...] = ()) -> Path:
    """A byte-level vocabulary: the bytes, then `tokens` spelled in its characters, then control tokens `more`."""
    writer = _begin(path)
    _add(writer, "gpt2", [*byte_bpe.byte_characters(), *tokens, *byte_bpe.CONTROL, *more], len(more) + 4, pre=pre)
    writer.add_token_merges(merges)
    return _end(writer, path)


Typed = tuple[str, float, int]
"""A token's spelling, score and type."""


def make_scored(path: Path, tokens: list[Typed], *, space_prefix: bool, name: str = "") -> Path:
    """A SentencePiece vocabulary: `<unk>`, BOS, EOS, byte tokens, then `tokens`. name: of the model."""
    writer = _begin(path)
    rows = [("<unk>", 0.0, _UNKNOWN), ("<s>", 0.0, _CONTROL), ("</s>", 0.0, _CONTROL)]
    rows += [(one, 0.0, _BYTE) for one in _BYTES]
    _add_typed(writer, "llama", rows + tokens, name)
    writer.add_token_scores([score for _, score, _ in rows + tokens])
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(space_prefix)
    return _end(writer, path)


def make_merged(path: Path, pre: str, tokens: list[Typed], merges: list[str], *, dropped: str = "") -> Path:
    """A byte-level vocabulary: what ends a text, BOS and EOS, the bytes without the characters `dropped`, then `tokens`."""
    writer = _begin(path)
    rows = [("<e>", 0.0, _CONTROL), ("<s>", 0.0, _CONTROL), ("</s>", 0.0, _CONTROL)]
    rows += [(one, 0.0, _NORMAL) for one in byte_bpe.byte_characters() if one not in dropped]
    writer.add_tokenizer_pre(pre)
    _add_typed(writer, "gpt2", rows + tokens, "")
    writer.add_token_merges(merges)
    return _end(writer, path)


def _add_typed(writer: gguf.GGUFWriter, model: str, rows: list[Typed], name: str) -> None:
    if name:
        writer.add_name(name)
    writer.add_tokenizer_model(model)
    writer.add_token_list([text for text, _, _ in rows])
    writer.add_token_types([kind for _, _, kind in rows])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)


def _begin(path: Path) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_feed_forward_length(8)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    return writer


def _end(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, model: str, tokens: list[str], n_control: int, *, pre: str | None = None) -> None:
    writer.add_tokenizer_model(model)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([_NORMAL] * (len(tokens) - n_control) + [_CONTROL] * n_control)
    writer.add_bos_token_id(len(tokens) - n_control)
    writer.add_eos_token_id(len(tokens) - n_control + 1)
    writer.add_add_bos_token(True)


def _byte_level(writer: gguf.GGUFWriter, pre: str, whole: list[str] | tuple[()]) -> None:
    """Merges of the text in `byte_bpe`; `whole`: tokens that no merge makes."""
    made = byte_bpe.build(_SIZE - len(whole))
    kept = made.tokens[: made.n_real]
    spelled = [word for word in map(byte_bpe.spell, whole) if word not in kept]
    _add(writer, "gpt2", [*kept, *spelled, *byte_bpe.CONTROL], len(byte_bpe.CONTROL), pre=pre)
    writer.add_token_merges(made.merges)


def _pieces() -> list[str]:
    """What the merges of `byte_bpe` make of ASCII text, in their order."""
    made = byte_bpe.build(_SIZE)
    characters = {character: byte for byte, character in enumerate(byte_bpe.byte_characters())}
    spelled = [bytes(characters[c] for c in token) for token in made.tokens[256 : made.n_real]]
    return [piece.decode() for piece in spelled if piece.isascii()]


def make_scores(path: Path, merged: tuple[str, ...] = (), user_defined: tuple[str, ...] = ()) -> Path:
    """The vocabulary that merges by score with more pieces, and tokens that are looked up before any merge."""
    writer = _begin(path)
    _scores(writer, merged, user_defined)
    return _end(writer, path)


def _scores(writer: gguf.GGUFWriter, merged: tuple[str, ...] = (), user_defined: tuple[str, ...] = ()) -> None:
    """SentencePiece: merges by score, bytes for what has no piece, a space put before a text."""
    characters = [chr(code) for code in range(32, 127)]
    spelled = dict.fromkeys(piece for piece in (*characters, *merged, *_pieces()) if piece not in user_defined)
    pieces = [piece.replace(" ", "\u2581") for piece in spelled]
    n_merged = len(pieces)
    pieces += user_defined
    tokens = ["<unk>", "<s>", "</s>", *_BYTES, *pieces]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-float(rank) for rank in range(len(pieces))])
    writer.add_token_types(
        [_UNKNOWN, _CONTROL, _CONTROL] + [_BYTE] * 256 + [_NORMAL] * n_merged + [USER_DEFINED] * len(user_defined)
    )
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)


def _longest_match(writer: gguf.GGUFWriter) -> None:
    """RWKV's: the longest token from the left, bytes and pieces that go over the ends of words."""
    pieces = [*_pieces(), *(f"{word} " for word in _WORDS[:40]), ". ", ", and ", "e of", "s, ", "\n\n"]
    spelled = [f"\\x{byte:02x}" for byte in range(256)]
    tokens = ["<s>", *spelled, *(piece.replace("\\", "\\\\").replace("\n", "\\n") for piece in dict.fromkeys(pieces))]
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list(tokens)
    writer.add_token_types([_CONTROL] + [_NORMAL] * (len(tokens) - 1))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)


def make_wordpiece(path: Path, starts: list[str], inner: list[str]) -> Path:
    """A vocabulary of BERT's kind: special tokens, then beginnings of words, then what goes on within one."""
    writer = _begin(path)
    _add_wordpiece(writer, [f"\u2581{one}" for one in starts] + inner)
    return _end(writer, path)


def _wordpiece(writer: gguf.GGUFWriter) -> None:
    """BERT's: the longest part of a word from the left, words apart from what goes on within one."""
    letters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    parts = [piece.strip() for piece in _pieces() if piece.strip().islower()]
    starts = dict.fromkeys(["\u2581" + one for one in (*letters, *parts, *_WORDS[:150])])
    inner = dict.fromkeys((*letters, *parts[:200]))
    _add_wordpiece(writer, [*starts, *inner])


def _add_wordpiece(writer: gguf.GGUFWriter, spellings: list[str]) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *spellings]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(tokens)
    writer.add_token_types([_CONTROL, _UNKNOWN, _CONTROL, _CONTROL, _CONTROL] + [_NORMAL] * (len(tokens) - 5))
    writer.add_token_type_count(2)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    writer.add_unk_token_id(1)
    writer.add_sep_token_id(3)
    writer.add_pad_token_id(0)
