"""Encodes a prompt and its choices as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from selectrie.core.types import OffsetArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import OptionError, PromptError, ways, words
from selectrie.tokenization.encoding import encode_prompt, encode_rests, find_tail, is_aligned, shortened
from selectrie.tokenization.flat_paths import cut_following, shared_prefix, without_first
from selectrie.tokenization.records import EncodedChoices, PromptText


def encode_choices(
    vocabulary: Vocabulary, prompt: PromptText, choices: Sequence[bytes], following: bytes = b"", boundary: str = "heal"
) -> EncodedChoices:
    """Encode a prompt and each choice after it.

    Boundaries:

    - "heal": prompt + choice + following are encoded jointly. The context is the
      longest token prefix common to the prompt alone and all these encodings.
    - "split": prompt and choice (+ following) are encoded separately, and no space is
      added before the choice.
    - "harness": as `_encode_pair` of lm-evaluation-harness does. White space that ends
      the prompt moves to the choice, and the joint encoding is cut at the length of the
      prompt's own.

    `following` is text after every choice. Each path includes the fewest of its bytes
    (at least one) after which every encoding has a token boundary. If token bytes are
    not those of the text, paths include all of it.

    Equal choices are encoded once. After a long prompt only its tail is encoded again
    (see `Tail`). If no token of the prompt would be left as context, "heal" becomes
    "split". Raises `PromptError` if "harness" leaves none, and `OptionError` for an
    unknown boundary.
    """
    if boundary not in ("heal", "split", "harness"):
        raise OptionError("boundary", boundary, "one of 'heal', 'split', 'harness'")
    index_of = {choice: i for i, choice in enumerate(dict.fromkeys(choices))}
    which = np.fromiter(map(index_of.__getitem__, choices), dtype=np.int64, count=len(choices))
    distinct = list(index_of)
    part = shortened(vocabulary, following)
    encoded, aligned = _encode(vocabulary, prompt, distinct, part, boundary)
    if not aligned and part != following:
        encoded, aligned = _encode(vocabulary, prompt, distinct, following, boundary)
    if not aligned and encoded.healed:
        encoded, aligned = _encode(vocabulary, prompt, distinct, following, "split")
    return encoded if len(distinct) == len(choices) else spread(encoded, which)


def _encode(
    vocabulary: Vocabulary, prompt: PromptText, distinct: list[bytes], following: bytes, boundary: str
) -> tuple[EncodedChoices, bool]:
    """Encode distinct choices.

    The second value is whether token bytes are those of the text in all encodings.
    """
    moved = b""
    if boundary == "harness":
        kept = prompt.text.decode("utf-8", "surrogateescape").rstrip().encode("utf-8", "surrogateescape")
        moved, prompt = prompt.text[len(kept) :], replace(prompt, text=kept)
    elif boundary == "split":
        prompt = replace(prompt, prefix=encode_prompt(vocabulary, prompt), text=b"")
    rests = [moved + choice + following for choice in distinct]
    tail = find_tail(vocabulary, prompt, rests)
    tail, tokens, offsets = encode_rests(vocabulary, prompt, tail, rests)
    aligned = is_aligned(vocabulary, prompt, tail, rests, tokens)
    following_bytes = len(following)
    if following and distinct and aligned:
        tokens, offsets, following_bytes = cut_following(vocabulary, tokens, offsets, following_bytes)

    own = tail.own
    shared = shared_prefix(tokens, offsets, own)
    n_kept = int(shared.min(initial=len(own)))
    context = np.concatenate([tail.before, own[:n_kept]])
    if not len(context) and boundary == "heal" and len(own):
        return _encode(vocabulary, prompt, distinct, following, "split")
    if not len(context):
        raise PromptError(
            words(
                "no token of the prompt stays the same before every choice, so there is nothing to predict the first "
                "one from; {}",
                ways("begin the prompt with more text or a control token", "use `boundary='split'`"),
            )
        )
    n_own = np.minimum(np.diff(offsets), len(own)) if boundary == "harness" else np.full(len(distinct), n_kept)
    tokens, offsets = without_first(tokens, offsets, n_kept)
    encoded = EncodedChoices(
        context=context,
        tokens=tokens,
        offsets=offsets,
        first_scored=(n_own - n_kept).astype(np.int32),
        prompt_tokens=np.concatenate([tail.before, own]),
        healed=vocabulary.decode(own[n_kept:]) if boundary == "heal" else b"",
        boundary_shift=(len(own) - shared).astype(np.int32),
        following_bytes=following_bytes,
        boundary=boundary,
    )
    return encoded, aligned


def spread(encoded: EncodedChoices, which: OffsetArray) -> EncodedChoices:
    """Return the encoding of all choices, given that of the distinct choices.

    `which`, int64[C], is the index of each choice's distinct choice.
    """
    lengths = np.diff(encoded.offsets)[which]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    source = np.repeat(encoded.offsets[which] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return replace(
        encoded,
        tokens=encoded.tokens[source],
        offsets=offsets,
        first_scored=encoded.first_scored[which],
        boundary_shift=encoded.boundary_shift[which],
    )
