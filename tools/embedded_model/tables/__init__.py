"""Tables that are too long to stand in the module that reads them."""
