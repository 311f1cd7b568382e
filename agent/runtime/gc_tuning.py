"""When Python's collector of reference cycles works.

Rule: reference counts free nearly everything here, and at once; the collector is for the rest. It goes through all that
lives, again and again where much is made, and nobody is served meanwhile. What a start makes stays: it is passed over.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from protocol.limits import GC_OBJECTS_MIN


@contextmanager
def cyclic_gc_paused() -> Iterator[None]:
    """No collection within the block, which makes much that stays and does not await."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def collect_rarely() -> None:
    """Let so many objects gather before the youngest are looked at that most of them are gone by then: a request of a
    thousand partitions makes several thousand."""
    gc.set_threshold(GC_OBJECTS_MIN, *gc.get_threshold()[1:])


def pass_over_what_lives() -> None:
    """Whatever lives now is never looked at again; reference counts free it all the same."""
    gc.freeze()
