"""Scripts that run clients of others, in the environment of `make build/clients`."""
