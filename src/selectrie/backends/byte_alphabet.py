"""The alphabet in which byte-level vocabularies spell bytes (GPT-2)."""

from __future__ import annotations


def _byte_characters() -> dict[str, int]:
    """Return the characters of byte-level vocabularies and their bytes.

    Printable characters of Latin-1 stand for themselves; the others are represented by
    characters from U+0100 on.
    """
    themselves = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
    others = [byte for byte in range(256) if byte not in themselves]
    return {chr(byte): byte for byte in themselves} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


BYTE_CHARACTERS = _byte_characters()
