"""An object of any chunks is read back from its footer alone; damage anywhere is noticed."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.types import ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.chunk_format import (
    HEADER_BYTES,
    ChunkFormatError,
    ChunkParts,
    TailTooShort,
    check_chunk,
    check_header,
    describe_object,
    encode_object,
)

chunks = st.lists(
    st.builds(
        ChunkParts,
        topic_id=st.binary(min_size=16, max_size=16).map(TopicId),
        partition=st.integers(0, 2**31 - 1).map(PartitionIndex),
        parts=st.lists(st.binary(max_size=50) | st.binary(max_size=50).map(bytearray), max_size=5),
    ),
    max_size=8,
)
sessions = st.integers(0, 2**63 - 1).map(SessionId)
numbers = st.integers(0, 2**63 - 1).map(ObjectNumber)


@given(session=sessions, number=numbers, written=chunks, tail_bytes=st.integers(0, 600))
def test_the_footer_describes_the_object_from_any_tail(
    session: SessionId, number: ObjectNumber, written: list[ChunkParts], tail_bytes: int
) -> None:
    encoded = encode_object(session, number, written)
    payload = b"".join(encoded.parts)
    assert len(payload) == encoded.object_bytes
    tail = payload[max(0, len(payload) - tail_bytes) :]
    try:
        described = describe_object(tail, len(payload))
    except TailTooShort as error:
        bytes_needed = error.bytes_needed
        described = describe_object(payload[len(payload) - bytes_needed :], len(payload))
    else:
        bytes_needed = 0
    assert bytes_needed == 0 or len(tail) < bytes_needed <= len(payload)
    assert (described.session, described.number) == (session, number)
    assert check_header(payload[:HEADER_BYTES]) == described.version
    assert [chunk.byte_first for chunk in described.chunks] == encoded.byte_firsts
    for chunk, given_chunk in zip(described.chunks, written, strict=True):
        run = payload[chunk.byte_first : chunk.byte_first + chunk.byte_count]
        assert (chunk.topic_id, chunk.partition) == (given_chunk.topic_id, given_chunk.partition)
        assert run == b"".join(given_chunk.parts)
        check_chunk(run, chunk)


@given(written=chunks, data=st.data())
def test_a_changed_byte_is_noticed_somewhere(written: list[ChunkParts], data: st.DataObject) -> None:
    payload = bytearray(b"".join(encode_object(SessionId(1), ObjectNumber(2), written).parts))
    position = data.draw(st.integers(0, len(payload) - 1))
    payload[position] ^= data.draw(st.integers(1, 255))
    try:
        is_header_changed = check_header(payload[:HEADER_BYTES]) != 1
        for chunk in describe_object(payload, len(payload)).chunks:
            check_chunk(memoryview(payload)[chunk.byte_first : chunk.byte_first + chunk.byte_count], chunk)
    except ChunkFormatError:
        return
    assert is_header_changed


@given(hostile=st.binary(max_size=300), more_bytes=st.integers(0, 100))
def test_hostile_bytes_raise_nothing_else(hostile: bytes, more_bytes: int) -> None:
    for tail in (hostile, hostile + b"PNSTKOBJ"):
        try:
            describe_object(tail, len(tail) + more_bytes)
        except ChunkFormatError:
            pass
        else:
            raise AssertionError("random bytes are no object")
