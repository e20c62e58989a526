"""The version of selectrie, defined only here; every score signature carries it."""

from __future__ import annotations

__version__ = "0.1.0"
