"""`python -m selectrie.cli`: the command without its script."""

from selectrie.cli import main

main()
