"""What the model is to know, a module a topic.

Each has `documents(rng)`: training documents without end, every entry of its tables equally often, and `held_out(rng)`: questions
in words that the documents never use.
"""
