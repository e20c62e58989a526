"""Render chat templates, which come with a model, within bounds."""
