"""Which intake objects several consumers want parts of: those are read whole and once, not range by range.

Rule: two different chunks of an object were wanted that are not next to nothing of it, or the same is true of an object
shortly before it in the ledger's order: what partitions had in common then, they have in common now. So a lone consumer
of one partition of many reads no more than its ranges. Nothing is read here; what is remembered has a bound.
"""

from collections import OrderedDict

from coordinator.state.chunk_index import ChunkRef
from protocol.limits import OBJECT_PART_WANTED_MIN, OBJECTS_PER_NEIGHBOURHOOD, OBJECTS_WANTED_REMEMBERED_MAX
from protocol.types import ObjectId


class ObjectDemand:
    """The chunks that fetches asked for lately, by object."""

    def __init__(self) -> None:
        self._wanted: OrderedDict[ObjectId, dict[int, int]] = OrderedDict()
        """The wanted chunks of each object: their bytes by their first byte."""
        self._shared: OrderedDict[int, None] = OrderedDict()
        """Neighbourhoods with an object of which several chunks were wanted."""

    def note(self, chunk: ChunkRef, object_bytes: int) -> None:
        """Somebody wants `chunk`, and it is not in memory. `object_bytes`: the size of its whole object."""
        neighbourhood = chunk.object_id // OBJECTS_PER_NEIGHBOURHOOD
        if neighbourhood in self._shared:
            return
        wanted = self._wanted.setdefault(chunk.object_id, {})
        wanted[chunk.byte_first] = chunk.byte_count
        if len(wanted) > 1 and sum(wanted.values()) >= OBJECT_PART_WANTED_MIN * object_bytes:
            self._shared[neighbourhood] = None
            del self._wanted[chunk.object_id]
        for remembered in (self._wanted, self._shared):
            if len(remembered) > OBJECTS_WANTED_REMEMBERED_MAX:
                remembered.popitem(last=False)

    def is_shared(self, object_id: ObjectId) -> bool:
        """Whether several will want parts of it."""
        neighbourhood = object_id // OBJECTS_PER_NEIGHBOURHOOD
        return neighbourhood in self._shared or neighbourhood - 1 in self._shared
