"""`python -m selectrie`: the command without its script."""

from selectrie.cli import main

main()
