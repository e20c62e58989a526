"""Analyse templates before they are rendered."""
