"""Drawn and mutated frames of clients that have not authenticated: in this process, and over sockets."""
