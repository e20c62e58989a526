"""Compare the tokenizer that Transformers opens with its file, `tokenizer.json`.

Transformers may build a tokenizer from its class and take only the vocabulary from the
file. Models are run with that tokenizer, so it is the one that is used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from selectrie.backends.transformers.checkpoint import TOKENIZER, read_json
from selectrie.errors import UnsupportedModelError

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
"""Texts of many kinds. Where two tokenizers differ in a part, some text shows it."""
_MAX_ADDED = 16
"""Maximum number of added tokens that are tried within a text."""


def compare_with_file(folder: Path, tokenizer: Any) -> None:
    """Warn if a folder's tokenizer gives other tokens than its file.

    Texts of many kinds are tried. The warning is logged; it names the first text with
    other tokens, and both. Nothing is compared if there is no file, or if the tokenizer
    is not a fast one.

    Raises `UnsupportedModelError` if the tokenizer gives an added token of the file
    another id than the file: such an id has two texts.
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
    for text in _texts([str(token["content"]) for token in added]):
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


def _texts(added: list[str]) -> Iterator[str]:
    yield from _TEXTS
    for content in added[:_MAX_ADDED]:
        yield from (content, f"a{content}b", f"a {content} b", f"{content}\n")
