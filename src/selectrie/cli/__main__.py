"""Runs the command as `python -m selectrie.cli`, without its script."""

from selectrie.cli import main

main()
