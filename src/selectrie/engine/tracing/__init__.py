"""Records the values that an engine's tasks read, and answers from such a recording."""
