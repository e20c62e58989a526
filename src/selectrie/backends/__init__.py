"""Back ends that implement the model port of `selectrie.core.model`."""
