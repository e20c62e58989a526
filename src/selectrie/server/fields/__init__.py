"""Declares what bodies of requests share: fields, messages, tools, constraints."""
