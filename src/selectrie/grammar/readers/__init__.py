"""From the notations of grammars to rules: GBNF, Lark, regular expressions, Python types."""
