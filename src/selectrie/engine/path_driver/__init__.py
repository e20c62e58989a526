"""Runs tasks on rows that are read by their token path, in the background."""
