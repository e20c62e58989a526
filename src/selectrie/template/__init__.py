"""Templates: text with `<<tags>>` to immutable segments with source spans. No model, no Python evaluation."""
