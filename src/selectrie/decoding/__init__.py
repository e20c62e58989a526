"""Ask/tell tasks: what to evaluate next, decided without a model, a clock or I/O."""
