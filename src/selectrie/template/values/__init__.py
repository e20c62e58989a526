"""Values that templates are given, and the arguments of tags."""
