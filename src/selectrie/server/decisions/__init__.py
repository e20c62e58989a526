"""Serves typed decisions in the forms of OpenAI and TypeSafe, and labels."""
