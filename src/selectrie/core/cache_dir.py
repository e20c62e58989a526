"""The folder of the files that selectrie keeps between runs, and JSON files in it.

The files survive a crash and a second process that writes them. Everything in the
folder may be deleted at any time. Failing to write is not an error.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from selectrie.core.whole_files import write_whole

logger = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return `~/.cache/selectrie`, whether or not it exists."""
    try:
        home = Path.home()
    except RuntimeError:  # no HOME and a user without an account, as in some containers
        home = Path(os.devnull)  # nothing can be read or written below it
    return home / ".cache" / "selectrie"


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    The result is empty if the file is missing, cannot be read, or holds anything else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write_object(path: Path, value: dict[str, Any]) -> None:
    """Replace a file by the JSON object `value`.

    A reader sees the old object or the new one. If the new one cannot be written, the
    old one stays.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(value, indent=1))
    except OSError as error:
        logger.debug("cannot write %s: %s", path, error)
