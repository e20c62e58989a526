"""Load models of Hugging Face Transformers."""
