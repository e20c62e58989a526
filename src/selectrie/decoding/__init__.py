"""Ask/tell tasks: they decide what to evaluate next, without a model, clock or I/O."""
