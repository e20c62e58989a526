"""Text to tokens: prompts, chats, token healing and the token paths of choices."""
