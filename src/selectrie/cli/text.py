"""Generated text as it is written to people."""

from __future__ import annotations

import sys

_CONTROLS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
_CONTROLS |= dict.fromkeys(range(0x7F, 0xA0), "\N{REPLACEMENT CHARACTER}")


def visible(text: str) -> str:
    """The text with what a terminal would obey as something to look at (U+2400, control pictures); line ends and tabs stay."""
    return text.translate(_CONTROLS)


def shown(text: str) -> str:
    """The text for standard output: as it is, on a terminal `visible`."""
    return visible(text) if sys.stdout.isatty() else text


def tag(prompt_index: int, index: int) -> str:
    """What names a sequence among many."""
    return f"{prompt_index}.{index}"


def tagged(prompt_index: int, index: int, text: str) -> str:
    """Each line of a text, its last line end aside, behind the sequence's tag and a tab."""
    begin = tag(prompt_index, index) + "\t"
    return "\n".join(begin + line for line in text.removesuffix("\n").split("\n"))
