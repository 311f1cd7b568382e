"""Drawn and mutated frames of clients that have not authenticated, at the table of states in this process."""
