"""Records for a prompt and its choices as tokens."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.core.types import IntArray, OffsetArray


@dataclass(frozen=True, slots=True)
class PromptText:
    """A prompt as fixed tokens and the text after them, which is not encoded yet.

    Attributes:
        prefix: int32[], the fixed tokens (BOS, the template up to its last control
            token, given ids).
        text: Bytes of plain text after them, to be encoded jointly with the text that
            follows the prompt.
        continues: Whether the text continues other text although only BOS precedes it,
            because a text or a chat template spelled that. A tokenizer that adds a
            space at the beginning of everything alone then adds none.
        is_normalized: Whether the text was changed as the tokenizer normalises it.
        time: The time that the chat template was told, in ISO 8601, or "".
        spelled: Control tokens that a plain text spells, which are read as text.
        skips_template: Whether this is a plain text for a model with a chat template.
    """

    prefix: IntArray
    text: bytes
    continues: bool = False
    is_normalized: bool = False
    time: str = ""
    spelled: tuple[str, ...] = ()
    skips_template: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class EncodedChoices:
    """A prompt and its choices as tokens.

    Attributes:
        context: int32[T], T >= 1, the shared context.
        tokens: int32[], the paths of all choices: choice c after the context is
            tokens[offsets[c]:offsets[c+1]]. With following text, each path includes the
            fewest following bytes after which every encoding has a boundary.
        offsets: int64[C+1].
        first_scored: int32[C], index of the first token of the path that is part of the
            score (> 0 only for lm-eval's rule).
        prompt_tokens: int32[], the tokens of the prompt alone ("harness": without its
            trailing white space).
        healed: Bytes of the prompt after the context on which every score is
            conditional, as tokens spell them. If they reach back to the beginning of a
            text, they begin with the space that a `space_prefix` vocabulary adds there.
            b"" if no prompt token is encoded again, or if the boundary is not "heal".
        boundary_shift: int32[C], number of prompt tokens that this choice's encoding
            changes (0 = the prompt's own tokens are kept).
        following_bytes: Number of bytes of the following text in the paths.
        boundary: The boundary used: "heal", "split" or "harness". "heal" becomes
            "split" if the bytes of the prompt's tokens are not those of its text
            (unknown tokens, lower-casing).
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
