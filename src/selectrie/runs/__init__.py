"""Long runs on disk: units of work, a log of the finished ones, and actors."""
