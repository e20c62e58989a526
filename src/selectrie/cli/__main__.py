"""The entry point of `python -m selectrie.cli`, which runs the `selectrie` command."""

from selectrie.cli import main

main()
