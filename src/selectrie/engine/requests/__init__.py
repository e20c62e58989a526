"""What an engine does for each kind of request."""
