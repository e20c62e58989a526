"""Warns of fields of a request that are not known."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from selectrie.errors import of_value

_MAX_NAMED = 8
"""Maximum number of unknown fields that warnings name."""


def unknown_fields(names: Iterable[str], known: Collection[str], of: str = "") -> list[str]:
    """Return a warning for each name of a field that is not known.

    The first few are named, because warnings are sent in a header.

    Args:
        names: The names in the request.
        known: All names that are known.
        of: What has the fields, with a space before it.
    """
    unknown = [name for name in names if name not in known]
    warnings = [f"the field {of_value(name[:40])}{of} is unknown and was ignored" for name in unknown[:_MAX_NAMED]]
    n_more = len(unknown) - len(warnings)
    return [*warnings, f"{n_more} more fields{of} are unknown and were ignored"] if n_more else warnings
