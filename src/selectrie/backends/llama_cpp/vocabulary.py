"""Reads the vocabulary of a llama.cpp model or file, and the rules of its tokenizer."""

from __future__ import annotations

import ctypes
import os
import re
import threading
import weakref
from codecs import charmap_decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from selectrie.backends.chat.template import JinjaTemplate
from selectrie.backends.llama_cpp.gguf_header import NORMAL, TokenTable, read_texts, require_magic, require_sound
from selectrie.backends.llama_cpp.library import delay_interrupt, log, metadata_of
from selectrie.core.types import IntArray
from selectrie.core.vocabulary import (
    BYTE_CHARACTERS,
    ChatTemplate,
    Tokenize,
    TokenizerKind,
    Tokenizing,
    Vocabulary,
    is_found,
    spans_words,
)
from selectrie.errors import ModelFileError, TextError, UnsupportedModelError

_SIGN_BYTES = "\u2581".encode()
"""The character that SentencePiece writes for a space."""
_CHARACTERS = re.compile(rb"[\xc0-\xdf].?|[\xe0-\xef].{0,2}|[\xf0-\xff].{0,3}|.", re.DOTALL)
"""Cuts bytes into characters as llama.cpp does (`unicode_len_utf8`)."""


def guard_tokenizer(
    tokenize: Tokenize, model: llama_cpp.llama_model_p, spelled: frozenset[bytes], pieces: Iterable[bytes]
) -> Tokenize:
    """Return a tokenizer that raises `TextError` for a text without tokens.

    It raises the error before calling llama.cpp where that would end the process or
    hang, and after it where a part of the text has no token.

    Args:
        tokenize: The tokenizer to guard.
        model: The loaded model.
        spelled: The texts of all tokens.
        pieces: The bytes of every token, control tokens included.
    """
    kind = llama_cpp.llama_vocab_type(llama_cpp.llama_model_get_vocab(model))
    fault: Callable[[bytes], bytes | None] | None = None
    if kind == llama_cpp.LLAMA_VOCAB_TYPE_SPM:
        has_prefix = metadata_of(model, "tokenizer.ggml.add_space_prefix") != "false"
        fault = _make_byte_check(spelled, has_prefix=has_prefix)
    elif kind == llama_cpp.LLAMA_VOCAB_TYPE_RWKV:
        fault = _make_beginning_check(frozenset(pieces))

    def guard(text: bytes, /) -> list[int]:
        character = None if fault is None else fault(text)
        if character is not None:
            raise _no_token_error(character)
        ids = tokenize(text)
        if ids and min(ids) < 0:
            raise TextError("text", "the model's vocabulary has no token for a part of it; leave that out")
        return ids

    return guard


def _no_token_error(character: bytes) -> TextError:
    """Return the error for a character that has no token."""
    shown = character.replace(_SIGN_BYTES, b" ").decode("utf-8", "backslashreplace")
    return TextError("text", f"the model's vocabulary has no token for {shown!r}; leave it out, or use another model")


def _make_byte_check(spelled: frozenset[bytes], *, has_prefix: bool) -> Callable[[bytes], bytes | None] | None:
    """Return a function that finds a character that SentencePiece cannot encode.

    Such a character has neither a token nor tokens for its bytes. Returns None if the
    vocabulary has every byte.

    A user-defined token is matched before the text is cut, so a character that occurs
    only as a part of one is refused although it need not be.

    Args:
        spelled: The texts of all tokens.
        has_prefix: Whether the tokenizer writes a space before a text.
    """
    missing = frozenset(byte for byte in range(256) if not {b"<0x%02X>" % byte, bytes([byte])} & spelled)
    if not missing:
        return None
    always = {_SIGN_BYTES} if has_prefix else set()

    def find(text: bytes) -> bytes | None:
        characters = always.union(_CHARACTERS.findall(text.replace(b" ", _SIGN_BYTES)))
        return min((one for one in characters - spelled if not missing.isdisjoint(one)), default=None)

    return find


def _make_beginning_check(pieces: frozenset[bytes]) -> Callable[[bytes], bytes | None] | None:
    """Return a function that finds a byte that begins a token but is not one.

    Returns None if there is no such byte.
    """
    bare = frozenset(piece[:1] for piece in pieces if piece) - pieces
    if not bare:
        return None
    pattern = re.compile(b"|".join(map(re.escape, sorted(bare))))

    def find(text: bytes) -> bytes | None:
        match = pattern.search(text)
        return None if match is None else match[0]

    return find


_MODEL, _PRE_TOKENIZER, _MERGES = "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.merges"
MERGING = frozenset(
    {
        *(
            "default",
            "gpt-2",
            "phi-2",
            "qwen2",
            "deepseek-r1-qwen",
            "megrez",
            "hunyuan",
            "stablelm2",
            "starcoder",
            "refact",
        ),
        *("command-r", "smollm", "codeshell", "exaone", "exaone4", "mpt", "olmo", "jais", "falcon", "deepseek-coder"),
        *("deepseek-llm", "dbrx", "smaug-bpe", "chatglm-bpe", "jina-v2-code", "roberta-bpe", "modern-bert", "grok-2"),
    }
)
"""Pre-tokenizers that merge byte pairs and take no word as a whole.

For these names llama.cpp does not set its `ignore_merges`, which no function of its
interface reports, and runs of ASCII letters stay together. A test makes a vocabulary
for each and asks llama.cpp.
"""
_BYTE_LEVEL = "gpt2"
_ALPHABET = "".join(sorted(BYTE_CHARACTERS, key=BYTE_CHARACTERS.__getitem__))
"""The characters of byte-level vocabularies in the order of their bytes."""
_SIGN = "\u2581"
"""The character that SentencePiece writes for a space."""
_WHITE = b" \t\n\v\f\r"


def examiner(model: llama_cpp.llama_model_p, path: Path | None) -> Callable[[Vocabulary], Tokenizing]:
    """Return a function that finds out how the tokenizer of `model` works.

    Takes up to 0.5 s for a vocabulary of 150 000 tokens, because the merges are read
    from the file.

    Args:
        model: The loaded model.
        path: The model's file; None if its metadata may differ from the model's.
    """
    kind = llama_cpp.llama_vocab_type(llama_cpp.llama_model_get_vocab(model))
    if kind == llama_cpp.LLAMA_VOCAB_TYPE_SPM:
        return _examine_by_score
    if kind == llama_cpp.LLAMA_VOCAB_TYPE_RWKV:
        return _examine_by_length
    if kind == llama_cpp.LLAMA_VOCAB_TYPE_BPE and metadata_of(model, _MODEL) == _BYTE_LEVEL:
        return partial(_examine_by_rank, metadata_of(model, _PRE_TOKENIZER) or "default", path)
    return lambda _: Tokenizing()


def _examine_by_score(vocabulary: Vocabulary) -> Tokenizing:
    """Describe a SentencePiece tokenizer, with the texts that it alters.

    These are its character for a space, bytes without a token, and the results of
    merges that are tokens with other bytes or none (control tokens, unused ones). A
    merge joins only two parts that are tokens or single characters.
    """
    spelled = frozenset(vocabulary.texts)
    no_space = () if _SIGN in spelled else (b" ",)
    meant = "\0".join(vocabulary.texts).replace(_SIGN, " ").encode("utf-8", "surrogatepass").split(b"\0")
    made = {
        data
        for text, data, piece in zip(vocabulary.texts, meant, vocabulary.pieces, strict=True)
        if data != piece and text and _is_mergeable(text, spelled)
    }
    return Tokenizing(
        TokenizerKind.SCORES,
        frozenset({_SIGN.encode(), *no_space, *made, *_unspelled_bytes(vocabulary), *_texts_set_apart(vocabulary)}),
    )


def _is_mergeable(text: str, spelled: frozenset[str]) -> bool:
    """Return whether a token can be the result of a merge, or is one character."""
    pairs = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
    return len(text) == 1 or any(all(len(one) == 1 or one in spelled for one in pair) for pair in pairs)


def _examine_by_length(vocabulary: Vocabulary) -> Tokenizing:
    """Describe a longest-match tokenizer, with the texts that it alters.

    These are bytes without a token, and the texts of tokens that have no bytes.
    """
    control = set(vocabulary.control.tolist())
    silent = [
        text
        for token, (text, piece) in enumerate(zip(vocabulary.texts, vocabulary.pieces, strict=True))
        if text and not piece and token not in control
    ]
    if any("\\" in text for text in silent):
        return Tokenizing(TokenizerKind.LONGEST)
    altered = {text.encode("utf-8", "surrogatepass") for text in silent}
    return Tokenizing(
        TokenizerKind.LONGEST, frozenset({*altered, *_unspelled_bytes(vocabulary), *_texts_set_apart(vocabulary)})
    )


def _examine_by_rank(name: str, path: Path | None, vocabulary: Vocabulary) -> Tokenizing:
    """Describe a tokenizer that merges byte pairs, with the texts that it alters.

    The result of a merge is a token, or is taken apart again; the parts have the same
    bytes if its characters stand for themselves. Merges stay inside words, so a result
    that no word contains is never made (`</s>`, which llama.cpp declares a control
    token).
    """
    merge_results = None if path is None else _merge_results(path)
    if merge_results is None:
        return Tokenizing()
    token_of = {text: token for token, text in enumerate(vocabulary.texts)}
    # Every merge makes a token, and nothing but merges makes tokens.
    is_plain = name in MERGING and merge_results <= token_of.keys()
    ends = np.cumsum(vocabulary.lengths, dtype=np.int64).tolist()
    spelled = charmap_decode(b"".join(vocabulary.pieces), "strict", _ALPHABET)[0]
    meant = {
        text for text, start, end in zip(vocabulary.texts, [0, *ends], ends, strict=False) if spelled[start:end] == text
    }
    altered = {
        data
        for text in {*(merge_results - meant), *BYTE_CHARACTERS}
        if (data := _bytes_of(text)) is not None
        and (vocabulary.pieces[token_of[text]] != data if text in token_of else not (text.isascii() and len(text) > 1))
        and not (text in token_of and spans_words(vocabulary, token_of[text], data))
    }
    if name not in MERGING:
        altered.update(_words_taken_whole(vocabulary))
    return Tokenizing(
        TokenizerKind.MERGES if is_plain else TokenizerKind.UNKNOWN,
        frozenset({*altered, *_texts_set_apart(vocabulary)}),
    )


def _words_taken_whole(vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield words that the tokenizer turns into one token with other or no bytes.

    They are found by running the tokenizer on each candidate.
    """
    user_defined = set(vocabulary.user_defined.tolist())
    for token, (text, piece) in enumerate(zip(vocabulary.texts, vocabulary.pieces, strict=True)):
        data = None if token in user_defined and text.encode() == piece else _bytes_of(text)
        if data and data != piece and is_found(vocabulary, token, data):
            yield data


def _bytes_of(text: str) -> bytes | None:
    """Return the bytes that byte-level text stands for; None if it is not such text."""
    try:
        return bytes(BYTE_CHARACTERS[character] for character in text)
    except KeyError:
        return None


def _unspelled_bytes(vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield the bytes that no single token spells."""
    yield from (one for one in map(bytes, zip(range(256), strict=True)) if not vocabulary.has_bytes(one))


def _texts_set_apart(vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield texts of user-defined tokens, if these alter the text beside them.

    White space beside such a token is removed, or a space is added before the text that
    follows. Text with such white space is yielded too.
    """
    strips_left, strips_right = set(vocabulary.strips_left.tolist()), set(vocabulary.strips_right.tolist())
    for token in np.setdiff1d(vocabulary.user_defined, vocabulary.control).tolist():
        text = vocabulary.texts[token].encode("utf-8", "surrogatepass")
        if vocabulary.space_prefix or text != vocabulary.pieces[token]:
            yield text
        if token in strips_left:
            yield from (bytes([white]) + text for white in _WHITE)
        if token in strips_right:
            yield from (text + bytes([white]) for white in _WHITE)


def _merge_results(path: Path) -> frozenset[str] | None:
    """Return the results of all merges in a file; None if it cannot be read."""
    try:
        merges = read_texts(path, _MERGES)
    except (OSError, ModelFileError):
        return None
    cuts = [(merge, merge.find(" ", 1)) for merge in merges]  # cut as llama.cpp does
    return frozenset(merge[:cut] + merge[cut + 1 :] for merge, cut in cuts if cut > 0)


_USUAL_PIECE_BYTES = 256
"""Size of the buffer for a token's bytes; longer ones are read again into a larger one.

GLM-4, for example, has a token of 1024 spaces.
"""
_USUAL_TEXT_TOKENS = 1024
_MAX_TEXT_BYTES = 2**31 - 1
_ABSENT = ("functions", "function_call", "tools", "tool_choice")
"""Arguments of a template that are None unless given, as llama-cpp-python has them."""
_ADD_SPECIAL = _PARSE_SPECIAL = _SPELL_SPECIAL = _REMOVE_SPECIAL = False
"""Switches of llama.cpp.

No BOS or EOS is added or removed, no control token is recognised in text, and none is
spelled out.
"""
_LAST_BYTE = (b"<0xFF>", "ÿ".encode(), b"\\xff")
"""Texts of the token for the byte 0xFF: of SentencePiece, byte-level, and RWKV's."""


def read_vocabulary(model: llama_cpp.llama_model_p, path: Path | None, tokens: TokenTable | None = None) -> Vocabulary:
    """Return the vocabulary of `model`.

    The result holds the pointer to llama.cpp's vocabulary, so it must not outlive the
    model's memory.

    Args:
        model: The loaded model.
        path: The model's file; None if its metadata may differ from the model's.
        tokens: The tokens of the file's header; None to ask llama.cpp about every one.

    Raises:
        UnsupportedModelError: If the model has no vocabulary, or one without a token
            for any letter.
    """
    vocab = llama_cpp.llama_model_get_vocab(model)
    if llama_cpp.llama_vocab_type(vocab) == llama_cpp.LLAMA_VOCAB_TYPE_NONE:
        raise UnsupportedModelError("this model", "it has no vocabulary, so it cannot read text")
    n_tokens = llama_cpp.llama_vocab_n_tokens(vocab)
    if tokens is None or len(tokens.spellings) != n_tokens:
        spellings = [one or b"" for one in map(llama_cpp.llama_vocab_get_text, repeat(vocab), range(n_tokens))]
        asked: Sequence[int] = range(n_tokens)
        joined, spelled = b"\0".join([*spellings, b""]), frozenset(spellings)
    else:
        spellings, asked = tokens.spellings, _unusual_tokens(tokens, vocab)
        joined, spelled = tokens.joined, tokens.spelled
    pieces = _pieces_at_once(vocab, spellings) or _pieces(vocab, n_tokens)
    texts = tuple(joined.decode("utf-8", "replace").split("\0")[:-1])
    attributes = np.full(n_tokens, llama_cpp.LLAMA_TOKEN_ATTR_NORMAL, dtype=np.int32)
    attributes[asked] = list(map(llama_cpp.llama_vocab_get_attr, repeat(vocab), asked))
    eog = [token for token in asked if llama_cpp.llama_vocab_is_eog(vocab, token)]
    control = _tokens_with(attributes, llama_cpp.LLAMA_TOKEN_ATTR_CONTROL)
    names = {token: _piece(vocab, token, _USUAL_PIECE_BYTES, special=True) for token in control.tolist()}
    tokenize = guard_tokenizer(_tokenizer(vocab), model, spelled, [*pieces, *names.values()])
    if llama_cpp.llama_vocab_type(vocab) == llama_cpp.LLAMA_VOCAB_TYPE_SPM:
        names = {token: name for token, name in names.items() if _name_is_mergeable(name, spelled)}
    reachable = _control_tokens_of_text(names, tokenize)
    for token, piece in reachable.items():
        pieces[token] = piece
    bos, eos = llama_cpp.llama_vocab_bos(vocab), llama_cpp.llama_vocab_eos(vocab)
    adds_bos = llama_cpp.llama_vocab_get_add_bos(vocab) and bos >= 0
    first = _tokens_of_a_letter(tokenize)
    source = (llama_cpp.llama_model_chat_template(model, None) or b"").decode("utf-8", "replace")
    return Vocabulary(
        pieces=tuple(pieces),
        texts=texts,
        bos=bos if adds_bos else None,
        eos=eos if eos >= 0 else None,
        eog=np.asarray(eog, dtype=np.int32),
        control=np.setdiff1d(control, np.asarray(list(reachable), dtype=np.int32)),
        # The tokenizer is asked instead of `tokenizer.ggml.add_space_prefix`, because
        # only some kinds of vocabulary heed that key.
        space_prefix=bool(first) and pieces[first[0]].startswith(b" "),
        tokenize=tokenize,
        chat_template=_chat_template(source, bos=_name(texts, bos), eos=_name(texts, eos)),
        chat_source=source,
        strips_left=_tokens_with(attributes, llama_cpp.LLAMA_TOKEN_ATTR_LSTRIP),
        strips_right=_tokens_with(attributes, llama_cpp.LLAMA_TOKEN_ATTR_RSTRIP),
        user_defined=_tokens_with(attributes, llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED),
        examine=examiner(model, path),
    )


def _tokens_of_a_letter(tokenize: Tokenize) -> list[int]:
    """Return the tokens of the first ASCII character that can be encoded."""
    for letter in (b"a", *map(bytes, zip(range(0x21, 0x7F), strict=True))):
        with suppress(TextError):
            return tokenize(letter)
    raise UnsupportedModelError(
        "this model", "its vocabulary has no token for any letter, so it is of another kind than its file says"
    )


def _unusual_tokens(tokens: TokenTable, vocab: llama_cpp.llama_vocab_p) -> Sequence[int]:
    """Return the ids of the tokens that llama.cpp may not treat as normal ones.

    These are tokens of other types, tokens that the header names, and those with a
    bracket, because llama.cpp knows some special tokens by their text and all of these
    have one.
    """
    joined = np.frombuffer(tokens.joined, dtype=np.uint8)
    is_bracket = (joined == ord("<")) | (joined == ord("["))
    bracketed = np.searchsorted(np.flatnonzero(joined == 0), np.flatnonzero(is_bracket)).tolist()
    named = {*tokens.special, llama_cpp.llama_vocab_bos(vocab), llama_cpp.llama_vocab_eos(vocab)}
    unusual = {*np.flatnonzero(tokens.types != NORMAL).tolist(), *bracketed, *named}
    return sorted(token for token in unusual if 0 <= token < len(tokens.spellings))


def _tokens_with(attributes: IntArray, attribute: int) -> IntArray:
    return np.flatnonzero(attributes & attribute).astype(np.int32)


def _name(texts: tuple[str, ...], token: int) -> str:
    return texts[token] if 0 <= token < len(texts) else ""


def _pieces_at_once(vocab: llama_cpp.llama_vocab_p, spellings: Sequence[bytes]) -> list[bytes] | None:
    """Return the bytes of every token, read in one call; None if that is not possible.

    llama.cpp decodes all tokens with one between them that spells the byte 0xFF, which
    is in no UTF-8. The call is of no use if other pieces have that byte, or if spaces
    are removed from the text (`clean_spaces`), which makes it shorter than its pieces.
    """
    between = next((spellings.index(one) for one in _LAST_BYTE if one in spellings), -1)
    if between < 0 or _piece(vocab, between, _USUAL_PIECE_BYTES, special=False) != b"\xff":
        return None
    n_tokens = len(spellings)
    tokens = np.full(2 * n_tokens, between, dtype=np.int32)
    # The separator comes before each token, so the parts are its pieces.
    tokens[1::2] = np.arange(n_tokens)
    pointer = tokens.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token))
    size = -llama_cpp.llama_detokenize(vocab, pointer, len(tokens), b"", 0, _REMOVE_SPECIAL, _SPELL_SPECIAL)
    buffer = ctypes.create_string_buffer(size)
    n_bytes = llama_cpp.llama_detokenize(vocab, pointer, len(tokens), buffer, size, _REMOVE_SPECIAL, _SPELL_SPECIAL)
    parts = buffer.raw.split(b"\xff")
    if n_bytes != size or len(parts) != n_tokens + 2:
        return None
    return [*parts[1 : between + 1], b"\xff", *parts[between + 3 :]]


def _pieces(vocab: llama_cpp.llama_vocab_p, n_tokens: int) -> list[bytes]:
    """Return the bytes of every token.

    They are b"" for control, unknown and unused tokens (`special=False`).
    """
    read = llama_cpp.llama_token_to_piece
    buffer = ctypes.create_string_buffer(_USUAL_PIECE_BYTES)
    pieces: list[bytes] = []
    for token in range(n_tokens):
        length = read(vocab, token, buffer, _USUAL_PIECE_BYTES, 0, _SPELL_SPECIAL)
        pieces.append(buffer.raw[:length] if length >= 0 else _piece(vocab, token, -length, special=False))
    return pieces


def _piece(vocab: llama_cpp.llama_vocab_p, token: int, size: int, *, special: bool) -> bytes:
    """Return the bytes of a token, or with `special` the text of a control token.

    `size` is the length of the buffer for them.
    """
    buffer = ctypes.create_string_buffer(size)
    length = llama_cpp.llama_token_to_piece(vocab, token, buffer, size, 0, special)
    return buffer.raw[:length] if length >= 0 else _piece(vocab, token, -length, special=special)


def _control_tokens_of_text(names: Mapping[int, bytes], tokenize: Tokenize) -> dict[int, bytes]:
    """Return the control tokens that plain text can become, mapped to their bytes.

    An example is RWKV's id 0, the byte NUL. `names` has the tokens to try, with their
    bytes.
    """
    result = {}
    for token, name in names.items():
        with suppress(TextError):  # no text can contain it
            if name and token in tokenize(name):
                result[token] = name
    return result


def _name_is_mergeable(name: bytes, spelled: frozenset[bytes]) -> bool:
    """Return whether SentencePiece may turn plain text into the token with this text.

    A merge joins two parts that are tokens or single characters. With this check, the
    6 000 control tokens of Gemma 3 need not be tokenized, which takes 6 µs each.
    """
    if not name.isascii() or len(name) == 1 or b" " in name or name.startswith(b"<0x"):
        return True  # a space is another character in the vocabulary
    last = len(name) - 1
    return any((i == last or name[i:] in spelled) and (i == 1 or name[:i] in spelled) for i in range(1, len(name)))


def _tokenizer(vocab: llama_cpp.llama_vocab_p) -> Tokenize:
    """Return the function from plain text to ids.

    The function holds only the pointer, not the model object. It has one buffer for
    each thread.
    """
    call = llama_cpp.llama_tokenize
    local = threading.local()

    def tokenize(text: bytes, /) -> list[int]:
        n_bytes = len(text)
        if n_bytes > _MAX_TEXT_BYTES // 4:  # a space may take four: U+2581's three bytes and a prefix
            raise TextError("text", f"{n_bytes} bytes are more than the tokenizer takes; shorten it")
        try:
            buffer = local.buffer
        except AttributeError:
            buffer = local.buffer = (llama_cpp.llama_token * _USUAL_TEXT_TOKENS)()
        if n_bytes > _USUAL_TEXT_TOKENS:  # a call that lacks room has encoded the whole text in vain
            buffer = (llama_cpp.llama_token * (n_bytes + 1))()
        count = call(vocab, text, n_bytes, buffer, len(buffer), _ADD_SPECIAL, _PARSE_SPECIAL)
        if count < 0:
            buffer = (llama_cpp.llama_token * -count)()
            count = call(vocab, text, n_bytes, buffer, len(buffer), _ADD_SPECIAL, _PARSE_SPECIAL)
        ids: list[int] = buffer[:count]
        return ids

    return tokenize


def _chat_template(source: str, *, bos: str, eos: str) -> ChatTemplate | None:
    """Return the chat template with this source; None if it is ""."""
    return JinjaTemplate(source, {"bos_token": bos, "eos_token": eos}, absent=_ABSENT) if source else None


class _Tokenizer:
    """A tokenizer that keeps the `llama_model *` alive whose memory it reads."""

    __slots__ = ("__weakref__", "_encode")

    def __init__(self, pointer: Any, encode: Tokenize) -> None:
        self._encode = encode
        weakref.finalize(self, llama_cpp.llama_model_free, pointer)

    def __call__(self, text: bytes, /) -> list[int]:
        return self._encode(text)


def open_vocabulary(path: Path) -> Vocabulary:
    """Return the vocabulary of a GGUF file, which needs no weights.

    Raises:
        ModelFileError: If the file cannot be loaded.
        UnsupportedModelError: If it holds no vocabulary.
    """
    log.install()
    require_magic(path)
    tokens = require_sound(path)
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    with delay_interrupt(), log.our_calls(verbose=False):
        llama_cpp.llama_backend_init()
        log.forget()
        pointer = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        reason = log.reason("llama.cpp cannot load it")
    if not pointer:
        raise ModelFileError(str(path), f"{reason}; get the file again")
    vocabulary = read_vocabulary(pointer, path, tokens)
    return replace(vocabulary, tokenize=_Tokenizer(pointer, vocabulary.tokenize))
