"""The endpoints, a module for each group."""
