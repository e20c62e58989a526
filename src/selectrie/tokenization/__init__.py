"""Text to tokens: prompts, chats, healing and the token paths of choices."""
