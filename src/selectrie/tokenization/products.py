"""Encodes a product of alternatives, in chunks that do not affect each other's tokens.

A product is the set of all texts that consist of one alternative of each part. This is
for products with too many texts to list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import prod
from typing import TypeAlias

import numpy as np

from selectrie.core.numerics import common_length
from selectrie.core.types import IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.tokenization.encoding import EncodedChoices, PromptText, encode_choices, encode_prompt, shorten_following

TextAlternatives: TypeAlias = bytes | tuple[bytes, ...]
"""A literal, or its alternatives: distinct texts, at least one, UTF-8 each."""

MAX_TEXTS_IN_CHUNK = 20_000
"""Maximum number of texts of a chunk with several alternatives.

If more belong together, the product is not cut.
"""
MAX_ROUNDS = 16
"""Maximum number of attempts to cut; each joins chunks that proved dependent."""


@dataclass(frozen=True, slots=True, eq=False)
class ProductContext:
    """The context of a product's texts.

    Each text is encoded jointly with the prompt before it and the following text after
    it.

    Attributes:
        prompt: The prompt.
        following: The following text.
        tokens: int32[T], T >= 1, the prompt's first tokens, which no text of the
            product changes.
        healed: Bytes of the prompt after these tokens.
        space_prefix: Bytes that tokens spell between `healed` and the text (the space
            that the tokenizer adds).
        tail: The following text up to a position where every encoding has a token
            boundary.
        boundary: As in `EncodedChoices`.
        prompt_tokens: As in `EncodedChoices`.
    """

    prompt: PromptText
    following: bytes
    tokens: IntArray
    healed: bytes
    space_prefix: bytes
    tail: bytes
    boundary: str
    prompt_tokens: IntArray

    def text_of(self, spelled: bytes) -> bytes:
        """Return the text of the product within `spelled`, the bytes of a path.

        The path follows the context, so it also spells `healed`, `space_prefix` and
        `tail`.
        """
        return spelled[len(self.healed) + len(self.space_prefix) : len(spelled) - len(self.tail)]

    def extend_unchanged(self, vocabulary: Vocabulary, paths: Iterable[Sequence[int]]) -> ProductContext:
        """Return the context extended by the prompt tokens that no path changes.

        `paths` follow the context.
        """
        own = self.prompt_tokens[len(self.tokens) :]
        n = min((common_length(own, np.array(path, dtype=np.int32)) for path in paths), default=len(own))
        size = len(vocabulary.decode(own[:n]))
        if size > len(self.healed):  # it reaches into what the tokenizer adds before a text
            return self
        return replace(self, tokens=self.prompt_tokens[: len(self.tokens) + n], healed=self.healed[size:])

    def paths_of(self, vocabulary: Vocabulary, texts: Sequence[bytes]) -> list[tuple[int, ...]] | None:
        """Return the tokens of each text after the context, up to the end of the tail.

        Returns None if a text changes the context.
        """
        following = shorten_following(vocabulary, self.following)
        encoded = encode_choices(vocabulary, self.prompt, [text + following for text in texts])
        n = len(self.tokens)
        paths = []
        for own in np.split(encoded.tokens, encoded.offsets[1:-1]):
            whole = np.concatenate([encoded.context, own])
            left = np.cumsum(vocabulary.lengths[whole[::-1]], dtype=np.int64)[::-1] - vocabulary.lengths[whole]
            if not np.array_equal(whole[:n], self.tokens):
                return None
            paths.append(tuple(whole[n:][left[n:] >= len(following) - len(self.tail)].tolist()))
        return paths


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedProduct:
    """A product cut into chunks whose tokens do not depend on each other's texts.

    The tokens of a chunk depend only on its own text, not on the texts of other chunks.

    Attributes:
        context: The context that `encode_choices` would find for all texts of the
            product.
        paths: For each chunk, the tokens of each of its texts. Tokens of the first
            chunk begin after the context; those of the last chunk end with the tail of
            the following text.
    """

    context: ProductContext
    paths: tuple[tuple[tuple[int, ...], ...], ...]


def cut_product(
    vocabulary: Vocabulary, prompt: PromptText, parts: Sequence[TextAlternatives], following: bytes
) -> ChunkedProduct | None:
    """Cut the product of `parts` into chunks.

    Returns None if it cannot be cut finely enough, or if tokens do not spell the texts.

    Chunks meet at positions that no token of the vocabulary spans and where tokenizers
    that split text into words always split it: before a space or line end after another
    character, and after a line end. Each text of each chunk is encoded between the
    first texts of all others. Chunks whose tokens turn out to depend on one another are
    joined.
    """
    chunks = _propose_chunks(vocabulary, parts)
    for _ in range(MAX_ROUNDS):
        if any(_n_texts(chunk) > MAX_TEXTS_IN_CHUNK and _n_slots(chunk) > 1 for chunk in chunks):
            return None
        texts = [_texts(chunk) for chunk in chunks]
        encoded = encode_choices(vocabulary, prompt, _vary_each(texts), following)
        context = _find_context(vocabulary, prompt, encoded, b"".join(of_chunk[0] for of_chunk in texts), following)
        if context is None:
            return None
        paths = _chunk_paths(vocabulary, context, encoded, texts)
        if not isinstance(paths, tuple):
            return None if paths is None else ChunkedProduct(context, tuple(paths))
        first, last = paths
        chunks = [*chunks[:first], _concatenate(chunks[first : last + 1]), *chunks[last + 1 :]]
    return None


def _n_texts(chunk: list[TextAlternatives]) -> int:
    """Return the number of combinations of alternatives in a chunk."""
    return prod(len(part) for part in chunk if isinstance(part, tuple))


def _n_slots(chunk: list[TextAlternatives]) -> int:
    """Return the number of parts with alternatives in a chunk."""
    return sum(isinstance(part, tuple) for part in chunk)


def vary_each_part(parts: Sequence[TextAlternatives]) -> list[bytes]:
    """Return the texts of a product in which at most one part varies.

    All other parts have the first of their alternatives.
    """
    return _vary_each([[part] if isinstance(part, bytes) else list(part) for part in parts])


def spellings(parts: Sequence[TextAlternatives], text: bytes, max_spellings: int) -> list[tuple[int, ...]]:
    """Return the ways in which alternatives of the parts spell a text.

    A way is the index of an alternative for every part that has several. At most
    `max_spellings` are returned, in lexicographic order.
    """
    rests = [{len(text)}]  # ends from which later parts can spell the rest
    for part in reversed(parts):
        spelled = [part] if isinstance(part, bytes) else part
        rests.append({end - len(one) for end in rests[-1] for one in spelled if text.endswith(one, 0, end)})
    rests.reverse()
    result: list[tuple[int, ...]] = []
    waiting: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())] if 0 in rests[0] else []
    while waiting and len(result) < max_spellings:
        n, at, picked = waiting.pop()
        if n == len(parts):
            result.append(picked)
            continue
        part = parts[n]
        if isinstance(part, bytes):
            waiting.append((n + 1, at + len(part), picked))
            continue
        for index in range(len(part) - 1, -1, -1):
            end = at + len(part[index])
            if end in rests[n + 1] and text.startswith(part[index], at):
                waiting.append((n + 1, end, (*picked, index)))
    return result


def neighbours(parts: Sequence[TextAlternatives], text: bytes) -> list[bytes]:
    """Return the texts of a product that differ from `text` in one alternative.

    If the text has several spellings, the first one counts.
    """
    [picked] = spellings(parts, text, 1)
    which = iter(picked)
    now = [part if isinstance(part, bytes) else part[next(which)] for part in parts]
    others = (
        b"".join([*now[:index], one, *now[index + 1 :]])
        for index, part in enumerate(parts)
        if isinstance(part, tuple)
        for one in part
    )
    return [other for other in dict.fromkeys(others) if other != text]


def _texts(chunk: list[TextAlternatives]) -> list[bytes]:
    """Return the distinct texts of a chunk."""
    choices = ([part] if isinstance(part, bytes) else part for part in chunk)
    return list(dict.fromkeys(b"".join(picked) for picked in product(*choices)))


def _concatenate(chunks: Iterable[list[TextAlternatives]]) -> list[TextAlternatives]:
    """Return the parts of all chunks as one chunk."""
    return [part for chunk in chunks for part in chunk]


def _vary_each(texts: list[list[bytes]]) -> list[bytes]:
    """Return every text of every chunk between the first texts of the other chunks.

    They come chunk by chunk. The text of all first texts therefore occurs several
    times.
    """
    firsts = [of_chunk[0] for of_chunk in texts]
    return [
        b"".join([*firsts[:index], text, *firsts[index + 1 :]])
        for index, of_chunk in enumerate(texts)
        for text in of_chunk
    ]


def _find_context(
    vocabulary: Vocabulary, prompt: PromptText, encoded: EncodedChoices, text: bytes, following: bytes
) -> ProductContext | None:
    """Return the context of encoded texts, of which `text` is the first.

    Returns None if the tokens of `text` do not spell it.
    """
    tail = following[: encoded.following_bytes]
    spelled = vocabulary.decode(encoded.tokens[: encoded.offsets[1]])
    lead = spelled[: len(spelled) - len(text + tail)]
    if not spelled.endswith(text + tail) or not lead.startswith(encoded.healed):
        return None
    # The tokenizer's space before the text, if it adds one.
    put = lead[len(encoded.healed) :]
    return ProductContext(
        prompt=prompt,
        following=following,
        tokens=encoded.context,
        healed=encoded.healed,
        space_prefix=put,
        tail=tail,
        boundary=encoded.boundary,
        prompt_tokens=encoded.prompt_tokens,
    )


def _chunk_paths(
    vocabulary: Vocabulary, context: ProductContext, encoded: EncodedChoices, texts: list[list[bytes]]
) -> list[tuple[tuple[int, ...], ...]] | tuple[int, int] | None:
    """Return for each chunk the tokens of its texts.

    If some chunks depend on one another, returns the indices of the first and the last
    of them. Returns None if tokens do not spell the texts.
    """
    paths = np.split(encoded.tokens, encoded.offsets[1:-1])
    firsts = [of_chunk[0] for of_chunk in texts]
    base: list[tuple[int, ...]] | None = None
    result: list[tuple[tuple[int, ...], ...]] = []
    which = iter(paths)
    for index, of_chunk in enumerate(texts):
        own = []
        for text in of_chunk:
            path, varied = next(which), [*firsts[:index], text, *firsts[index + 1 :]]
            if vocabulary.decode(path) != context.healed + context.space_prefix + b"".join(varied) + context.tail:
                return None
            pieces = _split_path(vocabulary, path, [*map(len, varied[:-1]), len(varied[-1]) + len(context.tail)])
            if isinstance(pieces, int):
                return pieces - 1, pieces
            base = pieces if base is None else base
            # Only this chunk's text differs from the first path, so no other chunk may
            # change.
            other = next((i for i, piece in enumerate(pieces) if i != index and piece != base[i]), None)
            if other is not None:
                return min(index, other), max(index, other)
            own.append(pieces[index])
        result.append(tuple(own))
    return result


def open_context(
    vocabulary: Vocabulary, prompt: PromptText, parts: Sequence[TextAlternatives], following: bytes
) -> ProductContext | None:
    """Return the context of a product that cannot be cut.

    Its tokens end before the prompt's last word, so no text can change them. Its tail
    ends at the first word end of the following text, so no text's tokens reach beyond
    it. Returns None if tokens do not spell the texts.
    """
    firsts = b"".join(part if isinstance(part, bytes) else part[0] for part in parts)
    tail = following[: _first_boundary(vocabulary, following)]
    encoded = encode_choices(vocabulary, prompt, [firsts + tail])
    own = encode_prompt(vocabulary, prompt)
    n = len(encoded.context)
    while n > max(1, len(prompt.prefix)) and not _begins_word(vocabulary, own, n):
        n -= 1
    moved = vocabulary.decode(encoded.context[n:])
    spelled = moved + vocabulary.decode(encoded.tokens)
    lead = spelled[: len(spelled) - len(firsts + tail)]
    healed = vocabulary.decode(own[n:])
    if not spelled.endswith(firsts + tail) or not lead.startswith(healed):
        return None
    return ProductContext(
        prompt=prompt,
        following=following,
        tokens=encoded.context[:n],
        healed=healed,
        space_prefix=lead[len(healed) :],
        tail=tail,
        boundary=encoded.boundary,
        prompt_tokens=own,
    )


def _first_boundary(vocabulary: Vocabulary, following: bytes) -> int:
    """Return the first position in the following text at which `_is_apart` holds.

    If there is none, it is the end of the text.
    """
    text = following.decode()
    for position in range(1, len(text)):
        if _is_apart(vocabulary, frozenset(text[position - 1]), frozenset(text[position])):
            return len(text[:position].encode())
    return len(following)


def _begins_word(vocabulary: Vocabulary, tokens: IntArray, n: int) -> bool:
    """Return whether token n begins a word.

    That is, it begins with a space, the token before it does not end with white space,
    and no token spans that position.
    """
    if n >= len(tokens):
        return False
    left, right = vocabulary.pieces[tokens[n - 1]][-1:], vocabulary.pieces[tokens[n]][:1]
    return right == b" " and bool(left) and not left.isspace() and not vocabulary.joins(left[0], right[0])


def _split_path(vocabulary: Vocabulary, path: IntArray, sizes: list[int]) -> list[tuple[int, ...]] | int:
    """Return the tokens of each chunk of a path, given the chunks' sizes in bytes.

    Sizes are counted from the end of the path. If a chunk begins within a token,
    the chunk's index is returned instead.
    """
    ends = np.cumsum(vocabulary.lengths[path], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    stops = total - (sum(sizes) - np.cumsum(sizes))
    cuts = [0]
    for index, stop in enumerate(stops[:-1].tolist(), start=1):
        cut = int(np.searchsorted(ends, stop)) + 1 if stop else 0
        if stop and (cut > len(ends) or ends[cut - 1] != stop):
            return index
        cuts.append(max(cut, cuts[-1]))
    cuts.append(len(path))
    tokens = path.tolist()
    return [tuple(tokens[start:stop]) for start, stop in pairwise(cuts)]


def _propose_chunks(vocabulary: Vocabulary, parts: Sequence[TextAlternatives]) -> list[list[TextAlternatives]]:
    """Cut the parts into chunks at all positions where `_is_apart` holds."""
    chunks: list[list[TextAlternatives]] = [[]]
    before: frozenset[str] = frozenset()
    for part in parts:
        if isinstance(part, tuple):
            options = tuple(dict.fromkeys(part))
            if all(options) and _is_apart(vocabulary, before, _first_characters(options)):
                chunks.append([])
            chunks[-1].append(options)
            lasts = frozenset(option.decode()[-1] for option in options if option)
            before = lasts if all(options) else lasts | before
            continue
        text = part.decode()
        at = 0
        for position in range(len(text)):
            left = frozenset(text[position - 1]) if position else before
            if _is_apart(vocabulary, left, frozenset(text[position])):
                if position > at:
                    chunks[-1].append(text[at:position].encode())
                chunks.append([])
                at = position
        if text:
            chunks[-1].append(text[at:].encode())
            before = frozenset(text[-1])
    return _merge_without_slots(chunks)


def _merge_without_slots(chunks: list[list[TextAlternatives]]) -> list[list[TextAlternatives]]:
    """Join each chunk without alternatives to a neighbour.

    That is the chunk before it; the first chunk is joined to the one after it.
    """
    result: list[list[TextAlternatives]] = []
    for chunk in chunks:
        has_slot = any(isinstance(part, tuple) for part in chunk)
        if result and (not has_slot or not any(isinstance(part, tuple) for part in result[-1])):
            result[-1] = result[-1] + chunk
        else:
            result.append(chunk)
    return result


def _first_characters(options: tuple[bytes, ...]) -> frozenset[str]:
    """Return the characters with which the alternatives begin."""
    return frozenset(option.decode()[0] for option in options)


def _is_apart(vocabulary: Vocabulary, left: frozenset[str], right: frozenset[str]) -> bool:
    """Return whether the text on both sides of a position is always encoded separately.

    `left` and `right` are the characters that may be next to the position; it must hold
    for each pair of them. `right` is never empty. An empty `left` means that nothing
    precedes the position in the parts, so there is nothing to separate: False.
    """
    if not left:
        return False
    for before in left:
        for after in right:
            word_ends = not before.isspace() and after in " \n"
            line_ends = before == "\n" and not after.isspace()
            if not (word_ends or line_ends) or vocabulary.joins(before.encode()[-1], after.encode()[0]):
                return False
    return True
