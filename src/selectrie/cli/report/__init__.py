"""The reports for people at a terminal; `cli.show` writes results for programs."""
