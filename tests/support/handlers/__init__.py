"""Requests to a single handler, as a client's bytes."""
