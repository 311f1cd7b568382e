"""Stored objects are damaged, and an agent goes on over them: no wrong byte, no end, the other topics served."""
