"""What both the reader and the printer of GBNF know."""

from __future__ import annotations

from selectrie.grammar.rules.expressions import LAST_CODE_POINT, SURROGATES, Characters

MOST_REPEATED = 2_000
"""Least number of times that `{m}` and `{m,n}` may ask for; llama.cpp's limit."""

ANY = Characters(((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, LAST_CODE_POINT)))
