"""Limits and names that the reader and the printer of GBNF share."""

from __future__ import annotations

from selectrie.grammar.rules.expressions import LAST_CODE_POINT, SURROGATES, Characters

MAX_REPEATED = 2_000
"""Maximum lower bound of `{m}` and `{m,n}`; llama.cpp has the same limit."""

ANY = Characters(((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, LAST_CODE_POINT)))
