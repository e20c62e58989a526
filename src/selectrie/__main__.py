"""Run the command by `python -m selectrie`, without its script."""

from selectrie.cli import main

main()
