"""Ask/tell tasks decide what to evaluate next, without a model, a clock or I/O."""
