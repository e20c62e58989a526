"""Carries requests and responses: admission, bodies, errors, models, metrics."""
