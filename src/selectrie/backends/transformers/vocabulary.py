"""Reads the vocabulary of a fast tokenizer of Transformers, and its chat templates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from selectrie.backends.chat.template import JinjaTemplate
from selectrie.backends.transformers.checkpoint import CONFIG, GENERATION, TOKENIZER, check_tokenizer, read_json
from selectrie.backends.transformers.tokenizer_rules import SIGN, WHITE_SPACE, TokenizerJson, examiner
from selectrie.core.types import IntArray
from selectrie.core.vocabulary import ChatTemplate, Spacing, Tokenize, Vocabulary
from selectrie.errors import PromptError, TextError, UnsupportedModelError, clip, words

logger = logging.getLogger(__name__)

_TEXTS = (
    *("a", "a b", " a", "  a", "a ", "a\nb", "\n", "a\n\n b", "\t", "a\r\nb"),
    *(
        "Don't we'll",
        "the answer is 42",
        "1234567.89",
        "x == y[0]",
        "HTTPServer",
        "Ünïcödé ﬁ",
        "e\u0301",
        "日本語",
        "🤗",
    ),
    *("a<0x0A>b", "\u2581a", "\u00a0", "  two  spaces  "),
)
"""Texts of many kinds, so that two different tokenizers differ on some of them."""
_MAX_ADDED = 16
"""Maximum number of added tokens that are tried within a text."""


def compare_with_file(folder: Path, tokenizer: Any) -> None:
    """Log a warning if a loaded tokenizer encodes texts differently than its file.

    The file is the `tokenizer.json` of the folder. The warning names the first of
    several fixed texts with other tokens. Nothing is compared if there is no file, or
    if the tokenizer is not a fast one.

    Raises `UnsupportedModelError` if an added token has another id in the tokenizer
    than in the file.
    """
    path = folder / TOKENIZER
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not path.is_file() or not isinstance(backend, Tokenizer):
        return
    try:
        added = read_json(path).get("added_tokens") or []
        own = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - tokenizers raises nothing more specific
        logger.debug("%s is not compared: %s", path, error)
        return
    _check_ids(folder, backend, added)
    own.no_truncation()
    own.no_padding()
    for text in _texts_to_compare([str(token["content"]) for token in added]):
        ids, ids_of_file = list(tokenizer(text).input_ids), own.encode(text).ids
        if ids != ids_of_file:
            tokens = [backend.id_to_token(one) for one in ids]
            tokens_of_file = [own.id_to_token(one) for one in ids_of_file]
            logger.warning(
                "%s: Transformers opens the tokenizer as %s, which encodes %r as %s; its %s says %s. The tokens of "
                "Transformers are used; pass tokenizer=PreTrainedTokenizerFast(tokenizer_file=…) for those of the file",
                *(folder, type(tokenizer).__name__, text, tokens, TOKENIZER, tokens_of_file),
            )
            return


def _check_ids(folder: Path, backend: Tokenizer, added: list[dict[str, Any]]) -> None:
    """Raise `UnsupportedModelError` if an added token of the file has another id."""
    for token in added:
        given, own = token["id"], backend.token_to_id(token["content"])
        if own is not None and own != given:
            other = backend.id_to_token(given)
            holder = "no token has" if other is None else f"{other!r} has"
            raise UnsupportedModelError(
                str(folder),
                f"its {TOKENIZER} gives its added token {token['content']!r} the id {given}, which {holder} in the "
                f"tokenizer; that uses id {own} instead, so it is not known which one the model was trained with",
            )


def _texts_to_compare(added: list[str]) -> Iterator[str]:
    """Yield fixed texts, and texts with added tokens."""
    yield from _TEXTS
    for content in added[:_MAX_ADDED]:
        yield from (content, f"a{content}b", f"a {content} b", f"{content}\n")


_ABSENT = ("tools", "documents")
_DEFAULT, _TOOL_USE = "default", "tool_use"


def chat_template_of(tokenizer: Any) -> ChatTemplate | None:
    """Return the chat template of a tokenizer, or None if it has none.

    If a tokenizer has several named templates, the template argument `chat_template`
    chooses one. Without it, "tool_use" renders chats with `tools`, and "default" the
    others.
    """
    source, tokens = tokenizer.chat_template, dict(tokenizer.special_tokens_map)
    if not source:
        return None
    if isinstance(source, str):
        return JinjaTemplate(source, tokens, absent=_ABSENT, aliases_reasoning=True)
    return _NamedTemplates(
        {name: JinjaTemplate(text, tokens, absent=_ABSENT, aliases_reasoning=True) for name, text in source.items()}
    )


@dataclass(frozen=True, slots=True)
class _NamedTemplates:
    """Several templates of one tokenizer, of which an argument chooses one."""

    templates: Mapping[str, ChatTemplate]

    def __call__(self, messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
        args = dict(template_args)
        usual = _TOOL_USE if args.get("tools") is not None and _TOOL_USE in self.templates else _DEFAULT
        name = args.pop("chat_template", usual)
        if name not in self.templates:
            names = ", ".join(map(repr, sorted(self.templates)))
            raise PromptError(
                words(
                    "the model has no chat template named {}; give `template_args` 'chat_template' as one of {}",
                    repr(str(name)),
                    names,
                )
            )
        return self.templates[str(name)](messages, **args)


def chat_source_of(tokenizer: Any) -> str:
    """Return the source of a tokenizer's chat template, the default one of several."""
    source = tokenizer.chat_template or ""
    return str(source if isinstance(source, str) else source.get(_DEFAULT, ""))


_LETTERS = ("a", *map(chr, range(0x21, 0x7F)))
_PROBES = ("a b", "the answer is 42", "yes, no.")
"""Texts that the bytes of their tokens must spell, for any supported tokenizer."""


def open_tokenizer(folder: Path) -> Any:
    """Open the tokenizer of a model's folder with `AutoTokenizer`.

    A warning is logged if it encodes texts differently than the folder's
    `tokenizer.json` (see `compare_with_file`). No code of the folder is run, and
    nothing is downloaded.

    Raises:
        ModelFileError: If its files are missing or damaged.
        UnsupportedModelError: If Transformers cannot read them, or if it gives an added
            token another id.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        check_tokenizer(folder)
        said = clip(" ".join(str(error).split()), 300)
        reason = f"Transformers cannot read its tokenizer: {type(error).__name__}: {said}; get tokenizer.json again"
        raise UnsupportedModelError(str(folder), reason) from error
    compare_with_file(folder, tokenizer)
    return tokenizer


def read_vocabulary(
    tokenizer: Any, *, n_tokens: int, eos_token_ids: int | Iterable[int] | None = None, name: str = "this model"
) -> Vocabulary:
    """Return the vocabulary of a tokenizer.

    Args:
        tokenizer: A fast tokenizer of Transformers (`PreTrainedTokenizerFast`). It is
            not changed.
        n_tokens: Number of logits of the model, V. Ids that the tokenizer does not have
            become control tokens with an empty text.
        eos_token_ids: `eos_token_id` of the model's generation configuration. These
            tokens end a generation, and so does the tokenizer's own.
        name: Name of the model in errors.

    Raises:
        UnsupportedModelError: The tokenizer is not a fast one; the bytes of its tokens
            are not known, or do not spell ordinary texts; or it has more tokens than
            the model.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise UnsupportedModelError(
            name, f"its tokenizer is a {type(tokenizer).__name__}, not a fast one with a tokenizer.json"
        )
    json = TokenizerJson.of(name, backend)
    n_own = 1 + max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
    if n_own > n_tokens:
        raise UnsupportedModelError(name, f"its tokenizer has ids up to {n_own - 1}, the model only {n_tokens} logits")
    texts = [backend.id_to_token(token) or "" for token in range(n_own)] + [""] * (n_tokens - n_own)
    pieces = _pieces(json, texts)
    unknown = json.unknown if not json.is_byte_level and not json.has_every_byte else None
    starting = json.copy(adds_space=True)
    begin = inside = _tokenizer(json, _encoder(starting), unknown)
    if json.may_add_space:
        inside = _tokenizer(json, _inner_encoder(json, starting, json.copy(adds_space=False)), unknown)
    special = {token.id: token.content for token in json.added if token.special}
    for token in special:
        pieces[token] = _piece_from_text(json, token, texts[token], begin)
    ambiguous = [
        content.encode()
        for token, content in special.items()
        if texts[token] != content
        or (pieces[token] and (pieces[token] != content.encode() or _tokens(inside, content) != [token]))
    ]
    control = [token for token, (text, piece) in enumerate(zip(texts, pieces, strict=True)) if not (text and piece)]
    bos = _find_bos(name, starting, begin, n_tokens)
    eos, declared = tokenizer.eos_token_id, tokenizer.bos_token_id
    spacing = _find_spacing(json, begin, inside, pieces)
    user_defined = [token.id for token in json.added if not token.special]
    normalizer = json.normalizer()
    vocabulary = Vocabulary(
        pieces=tuple(pieces),
        texts=tuple(texts),
        bos=bos,
        eos=eos,
        eog=_end_tokens(name, eos_token_ids, eos, n_tokens),
        control=_ids(control),
        space_prefix=spacing is not None,
        tokenize=begin,
        spacing=spacing,
        normalize=None if normalizer is None else normalizer.normalize_str,
        declared_bos=declared if bos is None and declared is not None and 0 <= declared < n_tokens else None,
        bos_in_chats=False,
        chat_template=chat_template_of(tokenizer),
        chat_source=chat_source_of(tokenizer),
        strips_left=_ids([token.id for token in json.added if token.lstrip]),
        strips_right=_ids([token.id for token in json.added if token.rstrip]),
        white_space=WHITE_SPACE,
        user_defined=_ids(user_defined),
        ambiguous=frozenset(ambiguous),
        examine=examiner(json),
    )
    _check_spellings(name, vocabulary)
    return vocabulary


def _pieces(json: TokenizerJson, texts: list[str]) -> list[bytes]:
    """Return the bytes of every token.

    They are b"" for special tokens, for the unknown token and for ids without a token.
    Added tokens are never written in the alphabet of bytes, except those of the byte
    fallback.
    """
    added = {token.id: token for token in json.added}
    pieces = []
    for token, text in enumerate(texts):
        if token == json.unknown:
            piece = b""
        elif byte := json.fallback(text):
            piece = byte
        elif token in added:
            plain = text if json.is_byte_level else text.replace(SIGN, " ")
            piece = b"" if added[token].special else plain.encode()
        else:
            meaning = json.meaning(text)
            piece = text.encode() if meaning is None else meaning
        pieces.append(piece)
    return pieces


def _piece_from_text(json: TokenizerJson, token: int, text: str, tokenize: Tokenize) -> bytes:
    """Return the bytes of a special token if plain text can also become it, else b"".

    Such a token may be the result of a merge, or belong to the byte fallback.
    """
    if token == json.unknown or text not in json.vocab:
        return b""
    data = json.meaning(text) or b""
    is_byte = json.is_byte_level and not json.is_unigram and len(data) == 1
    if is_byte or json.fallback(text):  # a byte may be no text alone
        return data
    for plain in {text.encode(), data} - {b""}:
        with suppress(TextError):
            if token in tokenize(plain):
                return data
    return b""


_Encode = Callable[[str], tuple[list[int], list[tuple[int, int]]]]
"""Returns the ids of a text, and for each where it begins and ends in the text."""


def _encoder(copy: Tokenizer) -> _Encode:
    """Return the function that encodes text without adding special tokens."""

    def encode(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        encoding = copy.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    return encode


def _inner_encoder(json: TokenizerJson, starting: Tokenizer, inner: Tokenizer) -> _Encode:
    """Return the encoder of text that continues other text.

    It adds no space before the text. But a tokenizer that adds a space after control
    tokens also adds one after added tokens within the text.

    Args:
        json: The tokenizer's file.
        starting: A tokenizer that adds a space before a text.
        inner: A tokenizer that adds none.
    """
    encode, begin = _encoder(inner), _encoder(starting)
    # The added tokens after which a space is added. Plain text has no control tokens.
    apart = frozenset() if json.adds_space_once else frozenset(token.id for token in json.added if not token.special)

    def encode_inner(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        ids, offsets = encode(text)
        if apart.isdisjoint(ids):
            return ids, offsets
        # From the first added token on, `starting` adds the spaces. If it also adds one
        # before that token, the text cannot be split there: the next one is tried.
        for token, (start, _) in zip(ids, offsets, strict=True):
            if token in apart:
                behind, positions = begin(text[start:])
                if behind[:1] == [token]:
                    first, before = encode(text[:start])
                    return first + behind, before + [(start + a, start + b) for a, b in positions]
        return ids, offsets

    return encode_inner


def _tokenizer(json: TokenizerJson, encode: _Encode, unknown: int | None) -> Tokenize:
    """Return the function that encodes plain text.

    Bytes that are not UTF-8 are read as U+FFFD, so their tokens have other bytes. The
    function raises `TextError` for a character without a token.
    """
    missing = _missing_bytes(json)

    def tokenize(text: bytes, /) -> list[int]:
        if not missing.isdisjoint(text):
            raise _no_token_error(bytes([min(missing.intersection(text))]).decode("utf-8", "backslashreplace"))
        read = text.decode("utf-8", "replace")
        ids, offsets = encode(read)
        if unknown is not None and unknown in ids:
            start, stop = offsets[ids.index(unknown)]
            raise _no_token_error(read[start:stop])
        return ids

    return tokenize


def _missing_bytes(json: TokenizerJson) -> frozenset[int]:
    """Return the bytes that have no token, if the tokenizer is byte-level."""
    if not json.is_byte_level:
        return frozenset()
    return frozenset(range(256)) - {data[0] for data in map(json.meaning, json.vocab) if data and len(data) == 1}


def _no_token_error(part: str) -> TextError:
    return TextError("text", f"the model's vocabulary has no token for {part!r}; leave it out, or use another model")


def _find_bos(name: str, copy: Tokenizer, tokenize: Tokenize, n_tokens: int) -> int | None:
    """Return the id that the post-processor puts before a text, or None.

    `copy` must neither pad nor truncate, because one token of padding on the left would
    look like BOS.
    """
    plain = _tokens_of_a_letter(name, tokenize)
    letter = next(one for one in _LETTERS if _tokens(tokenize, one) == plain)
    whole = copy.encode(letter, add_special_tokens=True).ids
    starts = (start for start in range(len(whole)) if whole[start : start + len(plain)] == plain)
    start = next(starts, None)
    if start is None or start > 1:
        put = whole if start is None else whole[:start]
        raise UnsupportedModelError(name, f"its tokenizer puts the tokens {put} before a text; one is supported")
    if start and whole[0] >= n_tokens:
        raise UnsupportedModelError(name, f"its tokenizer puts token {whole[0]} first, the model has {n_tokens} logits")
    return int(whole[0]) if start else None


def _tokens(tokenize: Tokenize, text: str) -> list[int] | None:
    """Return the tokens of a text, or None if it cannot be encoded."""
    with suppress(TextError):
        return tokenize(text.encode())
    return None


def _tokens_of_a_letter(name: str, tokenize: Tokenize) -> list[int]:
    """Return the tokens of the first ASCII character that can be encoded."""
    for letter in _LETTERS:
        ids = _tokens(tokenize, letter)
        if ids:
            return ids
    raise UnsupportedModelError(name, "its vocabulary has no token for any letter")


def _find_spacing(json: TokenizerJson, begin: Tokenize, inside: Tokenize, pieces: list[bytes]) -> Spacing | None:
    """Return how the tokenizer adds a space before a text; None if it never does.

    Args:
        json: The tokenizer's file.
        begin: Returns the tokens of a text at the beginning of a context.
        inside: Returns the tokens of a text that continues another one.
        pieces: The bytes of every token.
    """
    letter = next(one.encode() for one in _LETTERS if _tokens(begin, one))
    if begin(letter) == inside(letter):
        return None
    spaced = b"".join(pieces[token] for token in begin(b" " + letter))
    return Spacing(inside, after_control=not json.adds_space_once, before_space=spaced == b"  " + letter)


def _end_tokens(name: str, configured: int | Iterable[int] | None, eos: int | None, n_tokens: int) -> IntArray:
    """Return the ids that end a generation, as int32[].

    They are `configured`, from the generation configuration, and `eos`, of the
    tokenizer. Raises `UnsupportedModelError` if one is not a token of the model.
    """
    several = [configured] if isinstance(configured, int) else list(configured or ())
    ids = sorted({*several, *([] if eos is None else [eos])})
    if ids and not 0 <= ids[0] <= ids[-1] < n_tokens:
        raise UnsupportedModelError(name, f"eos_token_id = {ids}: the model has {n_tokens} tokens")
    return _ids(ids)


def _check_spellings(name: str, vocabulary: Vocabulary) -> None:
    """Raise `UnsupportedModelError` if tokens of ordinary texts have other bytes."""
    encoders: list[Callable[[bytes], list[int]]] = [vocabulary.tokenize]
    if vocabulary.spacing is not None:
        encoders.append(vocabulary.spacing.encode_inside)
    for text in map(str.encode, _PROBES):
        for encode in encoders:
            try:
                spelled = vocabulary.decode(encode(text))
            except TextError as error:
                raise UnsupportedModelError(name, f"its tokenizer cannot write {text.decode()!r}: {error}") from error
            expected = vocabulary.with_added_space(text) if encode is vocabulary.tokenize else text
            if spelled != expected:
                shown = spelled.decode("utf-8", "backslashreplace")
                raise UnsupportedModelError(name, f"its tokenizer writes {text.decode()!r} as {shown!r}")
        if vocabulary.spacing is not None and encoders[0](text) != encoders[1](vocabulary.with_added_space(text)):
            raise UnsupportedModelError(name, f"its tokenizer adds more than a space before {text.decode()!r}")


def _ids(values: Iterable[int]) -> IntArray:
    return np.asarray(list(values), dtype=np.int32)


def open_vocabulary(folder: Path, n_tokens: int | None = None) -> Vocabulary:
    """Return the vocabulary of a folder, which needs no weights.

    Args:
        folder: The folder.
        n_tokens: Number of logits of the model. None: the number in `config.json`, or
            else the number of tokens of the tokenizer.

    Raises:
        ModelFileError: If a file is missing or damaged.
        UnsupportedModelError: If the tokenizer is not a fast one, or the bytes of its
            tokens are not known.
    """
    tokenizer = open_tokenizer(folder)
    config, generation = (_read_json_or_empty(folder / name) for name in (CONFIG, GENERATION))
    inner = config.get("text_config")
    text: dict[str, Any] = inner if isinstance(inner, dict) else config
    if n_tokens is None:
        said = text.get("vocab_size")
        n_tokens = said if type(said) is int and said > 0 else len(tokenizer)
    ends = generation.get("eos_token_id", config.get("eos_token_id", text.get("eos_token_id")))
    return read_vocabulary(tokenizer, n_tokens=n_tokens, eos_token_ids=_folder_ids(ends), name=str(folder))


def _read_json_or_empty(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _folder_ids(value: object) -> list[int] | None:
    """Return the ids in a value of a configuration: an id, a list or null."""
    several = value if isinstance(value, list) else [value]
    return [one for one in several if type(one) is int] or None
