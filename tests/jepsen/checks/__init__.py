"""Checks of a history for one kind of anomaly each, and the tests of these checks."""
