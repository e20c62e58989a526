"""Models that servers evaluate, asked over HTTP behind the port `PathModel`."""
