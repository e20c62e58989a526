"""JSON Schema as a grammar, sound or refused: by llguidance, or by llama-cpp-python's converter where that is right."""
