"""The reports on a grammar and on a text tried on it, as lines."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

from selectrie.grammar.acceptance import Verdict
from selectrie.grammar.analysis import Report

_LABEL_CELLS = 11
_MAX_NAMES = 12
_MAX_EXPECTED = 16
_CONTEXT = 60
_COUNTED = 10**12
"""The smallest number that is rounded."""


def grammar_lines(name: str, report: Report) -> list[str]:
    """Return a line for each remarkable fact of a grammar's report.

    Texts are quoted as Python does.
    """
    lines = [_line("grammar", f"{name}, {report.n_rules} rule{'s' * (report.n_rules != 1)}")]
    if report.error is not None:
        lines.append(_line("refused", report.error.reason))
    elif report.finite is not None:
        lines.append(_line("language", _size(report)))
    for label, names, why in (
        ("undefined", report.undefined, "named, never defined"),
        ("unused", report.unreachable, "the root does not lead there"),
        ("no text", report.unproductive, "nothing matches"),
        ("empty", report.empty, "the empty text alone matches"),
    ):
        if names:
            lines.append(_line(label, f"{_names(names)} ({why})"))
    rewritten = "" if report.error else " (left recursion, rewritten)"
    lines += [_line("recursion", " -> ".join([*cycle, cycle[0]]) + rewritten) for cycle in report.left_recursion]
    if report.has_tokens:
        lines.append(_line("tokens", "it asks for tokens by name, so it has no texts to show"))
    if report.ambiguous is not None:
        lines.append(_line("ambiguous", f"the rules make {report.ambiguous!r} in two ways"))
    lines += [_line("texts" if i == 0 else "", repr(text)) for i, text in enumerate(report.samples)]
    return lines


def verdict_lines(text: str, verdict: Verdict) -> list[str]:
    """Return the verdict as lines.

    If the text is not accepted, or is unfinished, they give the position, the line with
    a caret, and the characters that are allowed there.
    """
    if verdict:
        return ["yes"]
    expected = " ".join(verdict.expected[:_MAX_EXPECTED]) + (" …" if len(verdict.expected) > _MAX_EXPECTED else "")
    if verdict.verdict == "unfinished":
        return [
            "unfinished: the text is allowed so far, and something must follow",
            *_marked(text, verdict.at, expected),
        ]
    refused = "the text should end here" if verdict.at == len(text) else f"{text[verdict.at]!r} is not allowed here"
    return [f"no: character {verdict.at + 1}: {refused}", *_marked(text, verdict.at, expected)]


def count_words(n: int) -> str:
    """Return a number in the form `39`, `3 652 059` or `about 2.9e+151`.

    It may have any size, although Python refuses to write numbers of more than 4300
    digits.
    """
    if n < _COUNTED:
        return f"{n:,}".replace(",", " ")
    exponent = int((n.bit_length() - 1) * log10(2))
    while (tenths := (n + 10 ** (exponent - 1) // 2) // 10 ** (exponent - 1)) >= 100:
        exponent += 1
    return f"about {tenths / 10:.1f}e+{exponent}"


def _size(report: Report) -> str:
    if not report.finite:
        return "infinitely many texts"
    if report.n_texts is None:
        return "finite" if report.has_tokens else "finite, too various to be counted here"
    return f"{count_words(report.n_texts)} text{'s' * (report.n_texts != 1)}"


def _marked(text: str, at: int, expected: str) -> list[str]:
    start = max(0, at - _CONTEXT)
    shown = "".join(
        c if c.isprintable() else "\N{SYMBOL FOR NEWLINE}" if c == "\n" else "·" for c in text[start : at + _CONTEXT]
    )
    return [f"  {shown}", f"  {' ' * (at - start)}^ expected {expected}"]


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")


def _line(label: str, value: str) -> str:
    return label.ljust(_LABEL_CELLS) + value
