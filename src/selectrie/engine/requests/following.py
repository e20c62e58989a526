"""Ends the texts of a grammar with the text that is known to follow them."""

from __future__ import annotations

import re
from dataclasses import replace

from selectrie.core.vocabulary import Vocabulary
from selectrie.grammar import Grammar
from selectrie.results import Selection, Signature
from selectrie.tokenization.canonical import encode_inside

MAX_ENDING = 32
"""Maximum characters of following text that end a text of a grammar."""
_BEGINNING = re.compile(r"[^\n]*\n*")


def beginning_of(vocabulary: Vocabulary, following: str) -> str:
    """Return the part of the following text that is appended to a grammar's texts.

    It is as short as possible, because it is evaluated after every text: the fewest
    tokens that hold more than spaces and tabs. It has at most `MAX_ENDING` characters
    and does not go beyond the first line ends.
    """
    beginning = _BEGINNING.match(following)
    whole = (beginning[0][:MAX_ENDING] if beginning else "").encode()
    # Tokens of a text that goes on: "\n\n" is one only at the end of a text.
    data, stop = following[: 2 * MAX_ENDING].encode(), 0
    for token in encode_inside(vocabulary, data):
        stop += int(vocabulary.lengths[token])
        if stop >= len(whole):
            break
        if data[stop] & 0xC0 != 0x80 and data[:stop].strip(b" \t"):
            return data[:stop].decode()
    return whole.decode()


def without_following(selection: Selection, grammar: Grammar, text: str) -> Selection:
    """Return a selection without `text` at the end of each text, under `grammar`.

    The selection is among the texts of `grammar.followed_by(text)`.
    """
    if not text:
        return selection
    texts = tuple(one.removesuffix(text) for one in selection.choices.texts)
    facts = selection.grammar
    return replace(
        selection,
        choices=replace(selection.choices, texts=texts),
        terminator="text",
        signature=followed(selection.signature, text),
        grammar=None if facts is None else replace(facts, name=grammar.name, digest=grammar.digest),
    )


def followed(signature: Signature, text: str) -> Signature:
    """Return the signature of scores of texts that `text` ends."""
    return replace(signature, terminator="text", following_bytes=len(text.encode()))
