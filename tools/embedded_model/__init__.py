"""The embedded model: corpus, training, export, evaluation."""
