"""Texts that a server and a vocabulary must encode alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import TextError, UnsupportedModelError

N_TEXTS = 200
"""Number of texts that are compared."""
_N_CONTROL = 12
_WORDS = (
    *("The capital of France is Paris.", "don't we'll I'M", "HTTPServer", "x == y[0] != z", "1234567.89 + 1e-7"),
    *("def f(a):\n    return a\n", "\t\tif x:\r\n", "a\n\n\nb", "  two  spaces  ", " a", "a ", " ", "  ", "\n", "\n\n"),
    *("naïve café Ünïcödé", "e\u0301 n\u0303", "ﬁ ﬂ ½ ①", "日本語の文章です。", "한국어 문장", "Привет, мир!"),
    *("مرحبا بالعالم", "שלום", "नमस्ते दुनिया", "สวัสดี", "\u00a0\u2003\u3000", "\u200b\u200d\ufeff", "\u2581a\u2581"),
    *("🤗", "👩‍👩‍👧‍👦 🇫🇷", "🏳️‍🌈a", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "a<0x0A>b", "<|x|>", "</s>", "[INST]", "{{x}}", '{"a": [1, null]}'),
)
_LEADING = "".join(
    chr(point)
    for point in (0x80, 0x100, 0x7FF, 0x800, 0xFFF, 0x1000, 0x8000, 0xD7FF, 0xE000, 0xFFFD, 0x10000, 0x40000, 0x10FFFF)
)
"""Characters whose UTF-8 begins with different bytes."""


def fixed_texts(vocabulary: Vocabulary) -> list[str]:
    """Return the texts: words, other bytes, control spellings, ASCII characters."""
    texts = list(dict.fromkeys(_WORDS))
    texts += [f"a{character}" for character in _LEADING]
    spellings = [vocabulary.texts[token] for token in vocabulary.control.tolist() if vocabulary.texts[token]]
    texts += [f"a {spelling}b" for spelling in spellings[:_N_CONTROL] if _is_plain(spelling)]
    texts += [f"x{chr(code)}y" for code in range(128)]
    more = (f"number {n} of {n * n}" for n in range(N_TEXTS))
    texts += [next(more) for _ in range(N_TEXTS - len(texts))]
    return texts[:N_TEXTS]


def own_texts(vocabulary: Vocabulary) -> list[str]:
    """Return a tenth of the texts, some of each kind.

    Where the tokenizer is the server's own, only how its texts are joined can differ.
    """
    return fixed_texts(vocabulary)[::10]


def compare_texts(
    name: str, vocabulary: Vocabulary, texts: Iterable[str], encoded: Callable[[list[str]], list[list[int] | None]]
) -> int:
    """Return how many texts were compared.

    A text that the vocabulary cannot write is left out.

    Args:
        name: What serves the model, for errors.
        vocabulary: The vocabulary.
        texts: The texts.
        encoded: Returns the server's tokens of texts, None where it does not say.

    Raises `UnsupportedModelError` for the first text with other tokens.
    """
    known = [(text, own) for text in texts if (own := _own_tokens(vocabulary, text)) is not None]
    found = encoded([text for text, _ in known])
    n_compared = 0
    for (text, own), theirs in zip(known, found, strict=True):
        if theirs is None:
            continue
        if own != theirs:
            raise UnsupportedModelError(
                name,
                f"the text {text!r} is the tokens {_shown(theirs)} there, and {_shown(own)} with this tokenizer; "
                "give the tokenizer of the model that is served",
            )
        n_compared += 1
    return n_compared


def _own_tokens(vocabulary: Vocabulary, text: str) -> list[int] | None:
    try:
        tokens, rest = vocabulary.encode_spans([(text.encode(), True)])
        last = int(tokens[-1]) if len(tokens) else None
        return [*tokens.tolist(), *vocabulary.encode_run(rest, after=last)]
    except TextError:
        return None


def _is_plain(spelling: str) -> bool:
    try:
        return bool(spelling.encode())
    except UnicodeEncodeError:
        return False


def _shown(tokens: list[int]) -> str:
    return f"{tokens[:12]}" if len(tokens) <= 12 else f"{tokens[:12]} and {len(tokens) - 12} more"
