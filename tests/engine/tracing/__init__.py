"""Tests of recording an engine, and of replaying what was recorded."""
