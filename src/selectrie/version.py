"""The version of selectrie, its one source; every score signature carries it."""

from __future__ import annotations

__version__ = "0.1.0"
