"""The names of sequences in front of their lines."""

from __future__ import annotations


def tag(prompt_index: int, index: int) -> str:
    """What names a sequence among many."""
    return f"{prompt_index}.{index}"


def tagged(prompt_index: int, index: int, text: str) -> str:
    """Each line of a text, its last line end aside, behind the sequence's tag and a tab."""
    begin = tag(prompt_index, index) + "\t"
    return "\n".join(begin + line for line in text.removesuffix("\n").split("\n"))
