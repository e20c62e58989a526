"""Records what the tasks of an engine were told, and answers from such a recording."""
