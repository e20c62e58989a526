"""From bytes to tokens: which tokens of a vocabulary a grammar lets come next."""
