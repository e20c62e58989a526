"""Render templates: pages, their slots and joint blocks."""
