"""Searches of a set of choices, held in one token trie."""
