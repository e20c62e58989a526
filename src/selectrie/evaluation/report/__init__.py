"""The HTML page of an evaluation."""
