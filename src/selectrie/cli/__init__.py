"""The command line, which turns arguments into calls of the library.

Exit codes: 0 done; 1 a grammar does not accept the text; 2 a mistake of the caller
(also a tie under `--strict`) or a system that cannot do it; 3 an error of the model or
its back end; 70 a bug in selectrie; 130 interrupted; 143 terminated. A result goes to
stdout, everything else to stderr. After an error stdout is empty.
"""

from __future__ import annotations

# As in typing, which takes time to import: until `listen`, Ctrl-C shows a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from selectrie.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the `selectrie` command."""
    from selectrie.cli.signals import listen

    listen()
    from selectrie.cli.entry import run

    run()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'selectrie.cli' has no attribute {name!r}")
    from selectrie.cli.commands import app

    return app
