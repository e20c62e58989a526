r"""What may stand between the quotes of a JSON string (RFC 8259, section 7), and how much of a text that was broken off
is that.

The RFC's rule lets `\ud83d` stand alone, which readers refuse or make a lone surrogate of; here a surrogate comes as one
of a pair.
"""

from __future__ import annotations

import re
from functools import cache

from selectrie.grammar import Grammar

_BODY = (
    r'([^"\\\x00-\x1F]'
    r'|\\["\\/bfnrt]'
    r"|\\u[0-9A-CE-Fa-ce-f][0-9A-Fa-f]{3}"
    r"|\\u[Dd][0-7][0-9A-Fa-f]{2}"
    r"|\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2})*"
)
_WHOLE = re.compile(_BODY)


@cache
def string_body() -> Grammar:
    """Contents of a JSON string, without its quotes."""
    return Grammar.from_regex(_BODY, name="json string")


def whole_length(text: str, start: int = 0) -> int:
    """Where the longest body that begins at `start` ends: before a quote, a control character, a wrong escape, or one
    that is not whole."""
    found = _WHOLE.match(text, start)
    return start if found is None else found.end()
