"""Faults that a plan draws for a simulated world, and how each is injected."""
