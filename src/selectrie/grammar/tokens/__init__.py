"""From bytes to tokens: which tokens of a vocabulary a grammar allows next."""
