"""An object is read whole where several chunks of it, or of those before it, were wanted; a lone one says nothing."""

from agent.fetch.object_demand import ObjectDemand
from coordinator.state.chunk_index import ChunkIndex, ChunkRef
from protocol.limits import OBJECTS_PER_NEIGHBOURHOOD, OBJECTS_REQUESTED_REMEMBERED_MAX
from protocol.types import ObjectId

OBJECT_BYTES = 6_400


def chunk(object_id: int, number: int, byte_count: int = 64) -> ChunkRef:
    index = ChunkIndex()
    index.append(10, object_id, number * byte_count, byte_count, 1_000, -1)
    return index.row(0)


def noted(*chunks: ChunkRef) -> ObjectDemand:
    wants = ObjectDemand()
    for each in chunks:
        wants.note(each, OBJECT_BYTES)
    return wants


def test_two_chunks_of_an_object_make_it_a_shared_one_and_one_that_is_wanted_twice_does_not() -> None:
    assert not noted(chunk(1, 0), chunk(1, 0)).is_shared(ObjectId(1))
    assert noted(chunk(1, 0), chunk(1, 1)).is_shared(ObjectId(1))


def test_chunks_that_are_next_to_nothing_of_an_object_do_not_have_it_read_whole() -> None:
    assert not noted(chunk(1, 0, 49), chunk(1, 1, 49)).is_shared(ObjectId(1))
    assert noted(chunk(1, 0, 50), chunk(1, 1, 50)).is_shared(ObjectId(1))
    assert noted(*(chunk(1, number, 25) for number in range(4))).is_shared(ObjectId(1))


def test_objects_shortly_after_a_shared_one_are_taken_for_shared_and_others_are_not() -> None:
    wants = noted(chunk(OBJECTS_PER_NEIGHBOURHOOD, 0), chunk(OBJECTS_PER_NEIGHBOURHOOD, 1))
    shared = [ObjectId(n) for n in range(4 * OBJECTS_PER_NEIGHBOURHOOD) if wants.is_shared(ObjectId(n))]
    assert shared == list(range(OBJECTS_PER_NEIGHBOURHOOD, 3 * OBJECTS_PER_NEIGHBOURHOOD))


def test_what_is_remembered_has_a_bound() -> None:
    wants = noted(*(chunk(n, 0) for n in range(OBJECTS_REQUESTED_REMEMBERED_MAX + 1)))
    wants.note(chunk(0, 1), OBJECT_BYTES)
    wants.note(chunk(OBJECTS_REQUESTED_REMEMBERED_MAX, 1), OBJECT_BYTES)
    assert not wants.is_shared(ObjectId(0))
    assert wants.is_shared(ObjectId(OBJECTS_REQUESTED_REMEMBERED_MAX))
