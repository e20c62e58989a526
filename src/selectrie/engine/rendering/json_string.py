r"""The contents of a JSON string between its quotes (RFC 8259, section 7).

The RFC's rule allows `\ud83d` alone, which readers refuse or read as a lone surrogate;
here a surrogate is always one of a pair. The module also finds how much of a broken-off
text is valid.
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
    """Return the grammar of the contents of a JSON string, without its quotes."""
    return Grammar.from_regex(_BODY, name="json string")


def whole_length(text: str, start: int = 0) -> int:
    """Return where the longest valid contents of a JSON string from `start` on end.

    They end before a quote, a control character, or a wrong or incomplete escape.
    """
    match = _WHOLE.match(text, start)
    return start if match is None else match.end()
