"""Tags that name sequences at the beginning of their lines."""

from __future__ import annotations


def tag(prompt_index: int, index: int) -> str:
    """Return the tag of a sequence: the numbers of its prompt and of itself."""
    return f"{prompt_index}.{index}"


def tagged(prompt_index: int, index: int, text: str) -> str:
    """Return the lines of a text, each after the sequence's tag and a tab.

    The text's last line end is ignored.
    """
    begin = tag(prompt_index, index) + "\t"
    return "\n".join(begin + line for line in text.removesuffix("\n").split("\n"))
