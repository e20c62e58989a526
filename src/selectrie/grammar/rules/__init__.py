"""Grammar rules as data: expressions, facts about them, and GBNF output."""
