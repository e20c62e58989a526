"""Reads TOML texts, whose size and keys are bounded by the caller and here."""

from __future__ import annotations

import re
import sys
from typing import Any

from selectrie.errors import InputFileError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_KEY_PARTS = 64
"""Maximum number of parts of a key, `a.b.c`."""
_STRINGS = re.compile(r'''"""(?:\\.|[^\\])*?"""|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*''', flags=re.DOTALL)
"""Matches texts and comments of TOML, which may contain anything."""
_BESIDE_KEYS = re.compile(r"[^\w\-. \t]+")


def parsed_toml(text: str, name: str) -> dict[str, Any]:
    """Return the table of a TOML text.

    Raises `InputFileError` with the file's `name` and, if known, the line.
    """
    _check_keys(text, name)
    try:
        table: dict[str, Any] = tomllib.loads(text)
    # ValueError: also for a number of thousands of digits.
    except (ValueError, RecursionError) as error:
        raise InputFileError(name, f"not TOML: {error}", line=getattr(error, "lineno", None)) from None
    return table


def _check_keys(text: str, name: str) -> None:
    """Raise `InputFileError` for keys of very many parts.

    The time and memory that `tomllib` takes grow with the square of the number of
    parts.
    """
    bare = _STRINGS.sub(lambda result: "k" + "\n" * result[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), start=1):
        if any(part.count(".") > MAX_KEY_PARTS for part in _BESIDE_KEYS.split(line)):
            raise InputFileError(name, f"a key has more than {MAX_KEY_PARTS} parts", line=number)
