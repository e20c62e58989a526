"""Renders templates: pages, their slots and joint blocks."""
