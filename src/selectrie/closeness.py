"""Whether a small change of the logits could change a draw."""

from __future__ import annotations

TIE_DECIMALS = 9
"""Digits after the point to which distances from the entropy are compared."""
