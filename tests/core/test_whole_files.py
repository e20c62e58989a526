"""Files that are replaced as a whole."""

from __future__ import annotations

from selectrie.core.files import is_temporary


def test_temporary_files_of_long_names_are_recognised():
    """Their names hold the first 32 characters only."""
    name = 40 * "n" + ".json"
    assert is_temporary(f".{name[:32]}-{16 * '0'}.tmp", (name,))
    assert not is_temporary(f".{name[:31]}-{16 * '0'}.tmp", (name,))
