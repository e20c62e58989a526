"""Readers that turn notations of grammars into rules.

The notations are GBNF, Lark, regular expressions and Python types.
"""
