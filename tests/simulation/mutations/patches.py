"""Puts something else in the place of a name of the real code, for the length of a block."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def patched(owner: object, name: str, value: object) -> Iterator[None]:
    """`owner.name` is `value` within the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
