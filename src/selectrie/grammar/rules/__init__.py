"""Rules of texts: expressions, what is known about them, and GBNF written out."""
