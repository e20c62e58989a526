"""What every room may know: types, numerics, the vocabulary, token tries and the two ports."""
