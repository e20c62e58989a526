"""Turns text into tokens: prompts, chats, token healing and paths of choices."""
