"""Refuses fields of a request that are not offered, and warns of unknown ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from selectrie.errors import OptionError, of_value
from selectrie.server.http_errors import unsupported

MAX_TOKENIZED_BYTES = 1 << 20
"""Maximum size of texts that are encoded in whole, whatever the context holds."""
_MAX_NAMED = 8
"""Maximum number of unknown fields that warnings name."""
_NO_REMEDIES: Mapping[str, str] = MappingProxyType({})


def check_tokenized(name: str, n_bytes: int) -> None:
    """Raise `OptionError` for a text that would be encoded whole and is too long.

    Encoding cannot be stopped when the client leaves.
    """
    if n_bytes > MAX_TOKENIZED_BYTES:
        raise OptionError(name, f"{n_bytes} bytes", f"at most {MAX_TOKENIZED_BYTES} bytes of text; send it in parts")


def refuse_fields(
    body: Mapping[str, Any], refused: Mapping[str, tuple[object, ...]], remedies: Mapping[str, str] = _NO_REMEDIES
) -> None:
    """Raise `HttpError` for the first known field that is not offered.

    Args:
        body: The request.
        refused: The fields, in the order in which they are looked for. Each has the
            values, beside null, that ask for nothing.
        remedies: What to do, where it is not to leave the field out.
    """
    for name, neutral in refused.items():
        value = body.get(name)
        if value is not None and value not in neutral:
            remedy = remedies.get(name, "leave the field out")
            raise unsupported(name, f"{of_value(value)} is not offered; {remedy}")


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
