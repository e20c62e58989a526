"""Serves endpoints whose answers are text: chats, completions, responses."""
