"""The history of a run: what clients called and what the broker answered, as a file."""
