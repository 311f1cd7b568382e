"""Cyclic GC tuning: a higher threshold, and `gc.freeze` after the start.

Reference counts free nearly all objects at once; Python's cyclic garbage collector frees the others. A full collection
visits every live object, and blocks all requests meanwhile. Objects of the start stay alive, so it skips them.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from protocol.limits import GC_OBJECTS_MIN


@contextmanager
def cyclic_gc_paused() -> Iterator[None]:
    """No cyclic collection in the block: for code that creates many long-lived objects and does not await."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def collect_rarely() -> None:
    """Raise the threshold of the youngest generation.

    A request of a thousand partitions creates several thousand objects, most of which are freed before a collection.
    """
    gc.set_threshold(GC_OBJECTS_MIN, *gc.get_threshold()[1:])


def pass_over_what_lives() -> None:
    """Exclude all live objects from future collections; reference counts still free them."""
    gc.freeze()
