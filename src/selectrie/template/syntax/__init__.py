"""Template text to an immutable tree with source positions."""
