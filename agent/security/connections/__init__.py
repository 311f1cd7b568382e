"""Limits of the connections that one address, a listener and all clients may have, before anybody is known."""
