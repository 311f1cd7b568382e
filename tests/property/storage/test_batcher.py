"""Whatever comes in, in whatever order, stands in the sealed objects once, in order, and is found by its ticket."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from protocol.types import ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.batcher import ENTRY_BYTES, Batcher, BatchGroup, BatchLimits, SealedIntake
from storage.chunk_format import check_chunk, read_footer

BATCHES_MAX = 12
ENTRY_BYTES_MAX = ENTRY_BYTES + 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    batch_bytes: int
    crc: int
    record_count: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool


rows = st.builds(
    Row,
    batch_bytes=st.integers(1, 40),
    crc=st.integers(0, (1 << 32) - 1),
    record_count=st.integers(1, 9),
    max_timestamp=st.integers(-1, 99),
    producer_id=st.integers(-1, 3),
    producer_epoch=st.integers(-1, 3),
    base_sequence=st.integers(-1, 99),
    is_transactional=st.booleans(),
)


@st.composite
def arrivals(draw: st.DrawFn) -> list[BatchGroup]:
    groups: list[BatchGroup] = []
    for ticket in range(draw(st.integers(1, 30))):
        headers = draw(st.lists(rows, min_size=1, max_size=4))
        overrides = [ticket] * len(headers) if draw(st.booleans()) else None
        records = bytes([ticket]) * sum(row.batch_bytes for row in headers)
        groups.append(
            BatchGroup(
                TopicId(bytes([draw(st.integers(0, 2))]) * 16),
                PartitionIndex(draw(st.integers(0, 2))),
                memoryview(records),
                headers,
                ticket,
                overrides,
            )
        )
    return groups


def gather(groups: list[BatchGroup]) -> list[SealedIntake]:
    intake = Batcher(
        BatchLimits(age_ns_max=5, object_bytes_target=150, batches_max=BATCHES_MAX, entry_bytes_max=ENTRY_BYTES_MAX)
    )
    objects: list[SealedIntake] = []

    def seal() -> None:
        objects.append(intake.seal(session=SessionId(1), number=ObjectNumber(len(objects))))

    for now_ns, group in enumerate(groups):
        if not intake.fits(group):
            seal()
        intake.add(group, now_ns)
        assert intake.entry_bytes_max <= ENTRY_BYTES_MAX
        if intake.should_seal(now_ns) is not None:
            seal()
    if not intake.is_empty:
        seal()
    return objects


@given(groups=arrivals())
def test_every_batch_is_found_by_its_ticket(groups: list[BatchGroup]) -> None:
    seen: dict[object, int] = {}
    for sealed in gather(groups):
        assert len(sealed.batch_record_bytes) <= BATCHES_MAX
        payload = b"".join(sealed.parts)
        batch_of_chunk = 0
        batch_bytes_before = 0
        for place in sealed.tickets:
            group = groups[int(str(place.ticket))]
            assert place.ticket not in seen
            seen[place.ticket] = 1
            if place.chunk == batch_of_chunk:
                byte_first = sealed.chunk_byte_firsts[place.chunk] + batch_bytes_before
            else:
                batch_of_chunk, byte_first = place.chunk, sealed.chunk_byte_firsts[place.chunk]
                batch_bytes_before = 0
            batch_bytes_before += len(group.records)
            assert payload[byte_first : byte_first + len(group.records)] == group.records
            assert sealed.topic_ids[sealed.chunk_topics[place.chunk]] == group.topic_id
            assert sealed.chunk_partitions[place.chunk] == group.partition
            batches = slice(place.batch_first, place.batch_first + place.batch_count)
            assert sealed.batch_record_bytes[batches] == [row.batch_bytes for row in group.headers]
            assert sealed.batch_base_sequences[batches] == [row.base_sequence for row in group.headers]
            expected = group.max_timestamps or [row.max_timestamp for row in group.headers]
            assert sealed.batch_max_timestamps[batches] == expected
    assert set(seen) == set(range(len(groups)))


@given(groups=arrivals())
def test_a_partition_is_one_chunk_of_an_object_and_keeps_its_order(groups: list[BatchGroup]) -> None:
    order: dict[tuple[TopicId, PartitionIndex], list[object]] = {}
    for sealed in gather(groups):
        payload = b"".join(sealed.parts)
        described = read_footer(payload, sealed.object_bytes)
        places = [(chunk.topic_id, chunk.partition) for chunk in described]
        assert len(set(places)) == len(places)
        assert sum(sealed.chunk_batch_counts) == len(sealed.batch_record_bytes)
        for chunk in described:
            check_chunk(payload[chunk.byte_first : chunk.byte_first + chunk.byte_count], chunk)
        for place in sealed.tickets:
            order.setdefault(places[place.chunk], []).append(place.ticket)
    expected: dict[tuple[TopicId, PartitionIndex], list[object]] = {}
    for group in groups:
        expected.setdefault((group.topic_id, group.partition), []).append(group.ticket)
    assert order == expected
