r"""Vocabularies without a model: one small enough to check by hand, and plain numbers.

The tokens of the small one are:

```
id    0      1      2    3    4    5    6    7    8    9    10   11   12
      <bos>  <eos>  " "  "a"  "b"  "c"  "r"  "s"  "t"  "u"  "."  ":"  "\n"
id    13    14    15    16    17    18     19      20     21      22      23
      " a"  " c"  " b"  "ca"  "at"  "cat"  " cat"  "bat"  " bat"  " car"  "\xc3"
id    24      25
      "\xa9"  "é"
```

Text becomes tokens by longest match from the left, so text can change the tokens before
it. `"a c" + "at"` is ` cat` after `a` and no longer ` c`; `"a " + "cat"` loses its lone
space; both heal. `cat`, `cats` and `cart` share text but not always tokens. `é` is one
token of two bytes, each of which is a token too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from selectrie.core.vocabulary import TokenizerKind, Tokenizing, Vocabulary
from selectrie.errors import TextError
from selectrie.options import at_least

DEFAULT_PIECES: tuple[bytes, ...] = (
    *(b" ", b"a", b"b", b"c", b"r", b"s", b"t", b"u", b".", b":", b"\n"),
    *(b" a", b" c", b" b", b"ca", b"at", b"cat", b" cat", b"bat", b" bat", b" car", b"\xc3", b"\xa9", "é".encode()),
)
"""Pieces of the vocabulary above, without the control tokens."""

BOS, EOS = 0, 1


def make_vocabulary(pieces: Iterable[bytes] = DEFAULT_PIECES) -> Vocabulary:
    """Return a vocabulary of `<bos>`, `<eos>` and then `pieces`.

    Text becomes tokens by longest match from the left. The tokenizer raises `TextError`
    if no piece matches. The chat template writes each message as the first letter of
    its role, a colon, its content, `<eos>` and a newline. It ends with `a:` unless
    `add_generation_prompt=False`.
    """
    all_pieces = (b"", b"", *pieces)
    texts = ("<bos>", "<eos>", *(piece.decode("utf-8", "backslashreplace") for piece in all_pieces[2:]))
    return Vocabulary(
        pieces=all_pieces,
        texts=texts,
        bos=BOS,
        eos=EOS,
        eog=np.array([EOS], dtype=np.int32),
        control=np.array([BOS, EOS], dtype=np.int32),
        space_prefix=False,
        tokenize=_longest_match(all_pieces),
        chat_template=_chat,
        examine=lambda _: Tokenizing(TokenizerKind.LONGEST, frozenset()),
    )


def numbered_vocabulary(n_tokens: int) -> Vocabulary:
    """Return a vocabulary whose tokens are spelt `<0>`, `<1>` and so on.

    It serves models with random weights, whose prompts are token ids. BOS is 1 and EOS
    is 2, and no token is a control token. The tokenizer raises `TextError` for a text
    that is not a sequence of such tokens. There is no chat template.

    Args:
        n_tokens: Number of tokens, at least 3; fewer raise `OptionError`.
    """
    at_least("n_tokens", n_tokens, 3, optional=False)
    pieces = tuple(b"<%d>" % i for i in range(n_tokens))
    return Vocabulary(
        pieces=pieces,
        texts=tuple(piece.decode() for piece in pieces),
        bos=1,
        eos=2,
        eog=np.array([2], dtype=np.int32),
        control=np.array([], dtype=np.int32),
        space_prefix=False,
        tokenize=_longest_match(pieces),
    )


def _longest_match(pieces: Sequence[bytes]) -> Callable[[bytes], list[int]]:
    """Return the tokenizer that takes the longest piece from the left each time."""
    by_piece = {piece: token for token, piece in enumerate(pieces) if piece}
    longest = max(map(len, pieces))

    def tokenize(text: bytes) -> list[int]:
        tokens, at = [], 0
        while at < len(text):
            stop = next((s for s in range(at + longest, at, -1) if text[at:s] in by_piece), None)
            if stop is None:
                raise TextError("text", f"no token of this vocabulary begins at byte {at} of {text!r}")
            tokens.append(by_piece[text[at:stop]])
            at = min(stop, len(text))
        return tokens

    return tokenize


def spell(vocabulary: Vocabulary, pieces: Sequence[str]) -> tuple[int, ...]:
    """Return the token ids of pieces given by their spelling, `<eos>` included."""
    ids = {text: token for token, text in enumerate(vocabulary.texts)}
    return tuple(ids[piece] for piece in pieces)


def _chat(messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
    turns = "".join(f"{str(m['role'])[0]}:{m['content']}<eos>\n" for m in messages)
    return turns + ("a:" if template_args.get("add_generation_prompt", True) else "")
