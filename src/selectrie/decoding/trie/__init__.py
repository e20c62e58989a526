"""Searches over a set of choices that is held in one token trie."""
