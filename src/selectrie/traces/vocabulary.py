"""A vocabulary as records of a trace, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

from selectrie.core.types import IntArray
from selectrie.core.vocabulary import ChatTemplate, Spacing, Tokenize, TokenizerKind, Tokenizing, Vocabulary
from selectrie.traces.reader import check_ids, require, split_array
from selectrie.traces.records import PayloadError, Specials, Tokens, TraceRecord

_TOKENS_A_PART = 1 << 14
"""Number of tokens of a `Tokens` record."""
_IDS = ("eog", "control", "strips_left", "strips_right", "user_defined")
"""The fields of `Vocabulary` and of `Specials` that are token ids."""
_FACTS: dict[str, tuple[type, ...]] = {
    "bos": (int, type(None)),
    "eos": (int, type(None)),
    "declared_bos": (int, type(None)),
    "space_prefix": (bool,),
    "bos_in_chats": (bool,),
    "chat_source": (str,),
    "white_space": (str,),
}
_MORE: dict[str, tuple[type, ...]] = {
    "spacing": (list, type(None)),
    "has_normalize": (bool,),
    "has_chat": (bool,),
    "kind": (str,),
    "is_altered_known": (bool,),
    "splits_locally": (bool,),
}
"""Types of the fields of `Specials.facts`: those of `Vocabulary`, and all others."""


@dataclass(frozen=True, slots=True)
class TextFunctions:
    """The functions of a `Vocabulary` that take texts, by the names of its fields."""

    tokenize: Tokenize
    encode_inside: Tokenize
    normalize: Callable[[str], str]
    chat_template: ChatTemplate


def vocabulary_records(vocabulary: Vocabulary) -> Iterator[TraceRecord]:
    """Yield the records of a vocabulary: several `Tokens`, then `Specials`."""
    for first in range(0, vocabulary.n_tokens, _TOKENS_A_PART):
        stop = first + _TOKENS_A_PART
        pieces = vocabulary.pieces[first:stop]
        texts = [text.encode("utf-8", "surrogatepass") for text in vocabulary.texts[first:stop]]
        yield Tokens(first, *_join(pieces), *_join(texts))
    own, spacing = vocabulary.tokenizing, vocabulary.spacing
    facts = {name: getattr(vocabulary, name) for name in _FACTS} | {
        "spacing": None if spacing is None else [spacing.after_control, spacing.before_space],
        "has_normalize": vocabulary.normalize is not None,
        "has_chat": vocabulary.chat_template is not None,
        "kind": own.kind.name,
        "is_altered_known": own.altered is not None,
        "splits_locally": own.splits_locally,
    }
    ambiguous, altered = _join(sorted(vocabulary.ambiguous)), _join(sorted(own.altered or ()))
    yield Specials(
        json.dumps(facts),
        **{name: np.asarray(getattr(vocabulary, name), dtype=np.int32) for name in _IDS},
        ambiguous_lengths=ambiguous[0],
        ambiguous=ambiguous[1],
        altered_lengths=altered[0],
        altered=altered[1],
    )


def _join(items: Iterable[bytes]) -> tuple[IntArray, Any]:
    """Return the lengths of byte strings, and all of their bytes as uint8."""
    several = list(items)
    return np.array([len(one) for one in several], dtype=np.int32), np.frombuffer(b"".join(several), dtype=np.uint8)


def vocabulary_of(tokens: Sequence[Tokens], specials: Specials, n_tokens: int, functions: TextFunctions) -> Vocabulary:
    """Return the vocabulary that `vocabulary_records` wrote.

    Args:
        tokens, specials: The records.
        n_tokens: Number of tokens that it must have.
        functions: The functions of the vocabulary, which are not in the records.

    Raises:
        PayloadError: If the records are not a valid vocabulary.
    """
    require(
        [one.first for one in tokens] == list(accumulate((len(one.piece_lengths) for one in tokens), initial=0))[:-1],
        "its vocabulary has a gap",
    )
    pieces = tuple(chain.from_iterable(_split(one.piece_lengths, one.pieces) for one in tokens))
    texts = tuple(
        text.decode("utf-8", "surrogatepass")
        for text in chain.from_iterable(_split(one.text_lengths, one.texts) for one in tokens)
    )
    require(len(pieces) == len(texts) == n_tokens, "its vocabulary has another number of tokens")
    facts = _read_facts(specials.facts, n_tokens)
    ids = {name: getattr(specials, name) for name in _IDS}
    for values in ids.values():
        check_ids(values, n_tokens)
    altered = frozenset(_split(specials.altered_lengths, specials.altered))
    tokenizing = Tokenizing(
        TokenizerKind[facts["kind"]], altered if facts["is_altered_known"] else None, facts["splits_locally"]
    )
    spacing = None if facts["spacing"] is None else Spacing(functions.encode_inside, *facts["spacing"])
    return Vocabulary(
        pieces=pieces,
        texts=texts,
        **{name: facts[name] for name in _FACTS},
        **ids,
        tokenize=functions.tokenize,
        spacing=spacing,
        normalize=functions.normalize if facts["has_normalize"] else None,
        chat_template=functions.chat_template if facts["has_chat"] else None,
        ambiguous=frozenset(_split(specials.ambiguous_lengths, specials.ambiguous)),
        examine=lambda _: tokenizing,
        encodes_together=False,
    )


def _split(lengths: IntArray, data: Any) -> list[bytes]:
    """Return the byte strings that `_join` joined; raise `PayloadError` if invalid."""
    flat = data.tobytes()
    split_array(lengths, data)
    return [flat[start:stop] for start, stop in pairwise([0, *np.cumsum(lengths, dtype=np.int64).tolist()])]


def _read_facts(text: str, n_tokens: int) -> Mapping[str, Any]:
    """Parse and check the plain fields of a vocabulary (`Specials.facts`)."""
    try:
        facts: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PayloadError("its vocabulary is not JSON") from error
    kinds = _FACTS | _MORE
    require(type(facts) is dict and facts.keys() == kinds.keys(), "its vocabulary has other facts")
    for name, types in kinds.items():
        require(type(facts[name]) in types, f"its vocabulary has a wrong {name}")
    for name in ("bos", "eos", "declared_bos"):
        require(facts[name] is None or 0 <= facts[name] < n_tokens, f"its vocabulary has a wrong {name}")
    require(facts["kind"] in TokenizerKind.__members__, "its vocabulary has an unknown kind")
    spacing = facts["spacing"]
    is_pair = spacing is None or [type(one) for one in spacing] == [bool, bool]
    require(is_pair, "its vocabulary has a wrong spacing")
    return facts
