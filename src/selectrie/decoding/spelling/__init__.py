"""The probability of a text, summed over all token sequences that spell it."""
