"""Clients write and read while everything around agents is killed, paused, cut off and made to lie; see `__main__`."""
