"""Grammar rules as data: expressions, what can be said about them, and GBNF output."""
