"""The demand for intake objects: an object of which consumers need several parts is read whole, by one request.

An object is in shared demand where two of its chunks were requested that are OBJECT_PART_REQUESTED_MIN of it together,
or where that is so for an object shortly before it in the ledger's order: consumers read neighbouring objects alike. A
lone consumer of one partition among many reads its ranges alone. Nothing is read here, and the memory is bounded.
"""

from collections import OrderedDict

from coordinator.state.chunk_index import ChunkRef
from protocol.limits import OBJECT_PART_REQUESTED_MIN, OBJECTS_PER_NEIGHBOURHOOD, OBJECTS_REQUESTED_REMEMBERED_MAX
from protocol.types import ObjectId


class ObjectDemand:
    """The chunks that were lately requested and not in memory, by object."""

    def __init__(self) -> None:
        self._requested_chunks: OrderedDict[ObjectId, dict[int, int]] = OrderedDict()
        """The requested chunks of each object: their bytes by their first byte."""
        self._shared: OrderedDict[int, None] = OrderedDict()
        """Neighbourhoods with an object of which several chunks were requested."""

    def note(self, chunk: ChunkRef, object_bytes: int) -> None:
        """Note a request for `chunk`, which is not in memory. `object_bytes`: the size of its whole object."""
        neighbourhood = chunk.object_id // OBJECTS_PER_NEIGHBOURHOOD
        if neighbourhood in self._shared:
            return
        chunks = self._requested_chunks.setdefault(chunk.object_id, {})
        chunks[chunk.byte_first] = chunk.byte_count
        if len(chunks) > 1 and sum(chunks.values()) >= OBJECT_PART_REQUESTED_MIN * object_bytes:
            self._shared[neighbourhood] = None
            del self._requested_chunks[chunk.object_id]
        for memory in (self._requested_chunks, self._shared):
            if len(memory) > OBJECTS_REQUESTED_REMEMBERED_MAX:
                memory.popitem(last=False)

    def is_shared(self, object_id: ObjectId) -> bool:
        """Whether several parts of the object are likely to be requested."""
        neighbourhood = object_id // OBJECTS_PER_NEIGHBOURHOOD
        # The one before counts, too: else each new neighbourhood would begin with reads of ranges.
        return neighbourhood in self._shared or neighbourhood - 1 in self._shared
