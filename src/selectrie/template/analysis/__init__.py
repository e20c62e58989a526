"""Analyses templates before they are rendered."""
