"""Lays out drawings of results, and says in words what they show."""
