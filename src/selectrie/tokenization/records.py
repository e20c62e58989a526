"""The records that pass between a prompt, its choices and the trie."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.core.types import IntArray, OffsetArray


@dataclass(frozen=True, slots=True)
class PromptText:
    """A prompt before its last stretch of text is encoded.

    prefix: int32[], tokens that stand fixed (BOS, the template up to its last control token, given ids).
    text: bytes of plain text after them, encoded jointly with what follows.
    """

    prefix: IntArray
    text: bytes


@dataclass(frozen=True, slots=True, eq=False)
class EncodedChoices:
    """A prompt and its choices as tokens.

    context: int32[T], T >= 1, the shared context. tokens int32[], offsets int64[C+1]: path of choice c after the context is
    tokens[offsets[c]:offsets[c+1]] (with `following`, up to the fewest following bytes at which every encoding has a boundary).
    first_scored: int32[C], tokens of the path before this one are not part of the score (only lm-eval's rule: > 0).
    prompt_tokens: int32[], the prompt alone ("harness": without its trailing white space). healed: bytes of the prompt
    after the context that every score is conditional on, as tokens spell them: where they reach back to the beginning of a
    text they begin with the space that a `space_prefix` vocabulary puts there (b"" = nothing moved, or not "heal").
    boundary_shift: int32[C], prompt tokens that this choice's encoding changes (0 = the prompt's own tokens are kept).
    following_bytes: bytes of the following text in the paths. boundary: "heal", "split" or "harness", as used: "heal"
    becomes "split" where tokens would have to be moved whose bytes are not the text's (unknown tokens, lower-casing).
    """

    context: IntArray
    tokens: IntArray
    offsets: OffsetArray
    first_scored: IntArray
    prompt_tokens: IntArray
    healed: bytes
    boundary_shift: IntArray
    following_bytes: int
    boundary: str
