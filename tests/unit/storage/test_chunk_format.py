"""The bytes of intake objects. The golden files are what version N wrote: they are never written again."""

from pathlib import Path
from struct import pack, pack_into

import pytest
from crc32c import crc32c

from protocol.types import ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.chunk_format import (
    FOOTER_BYTES_PER_CHUNK,
    HEADER_BYTES,
    MAGIC,
    TAIL_BYTES_HINT,
    TRAILER_BYTES,
    ChunkFormatError,
    ChunkParts,
    FooterChunk,
    ObjectDescription,
    TailTooShort,
    check_chunk,
    check_header,
    describe_object,
    encode_object,
    read_footer,
)
from storage.object_store import Buffer

GOLDEN = Path(__file__).parent / "golden"
TOPIC_A = TopicId(bytes(range(16)))
TOPIC_B = TopicId(b"\xff" * 16)
CHUNKS = (
    ChunkParts(topic_id=TOPIC_A, partition=PartitionIndex(5), parts=[b"first ", b"run"]),
    ChunkParts(topic_id=TOPIC_B, partition=PartitionIndex(0), parts=[memoryview(b"123456789")]),
)
DESCRIPTION = ObjectDescription(
    version=1,
    session=SessionId(7),
    number=ObjectNumber(3),
    chunks=[
        FooterChunk(
            topic_id=TOPIC_A, partition=PartitionIndex(5), byte_first=12, byte_count=9, crc32c=crc32c(b"first run")
        ),
        FooterChunk(topic_id=TOPIC_B, partition=PartitionIndex(0), byte_first=21, byte_count=9, crc32c=0xE3069283),
    ],
)


def whole(session: int = 7, number: int = 3, chunks: tuple[ChunkParts, ...] = CHUNKS) -> bytes:
    return b"".join(encode_object(SessionId(session), ObjectNumber(number), chunks).parts)


def resealed(payload: bytearray, footer_bytes: int) -> bytes:
    """The object with a checksum that fits its changed footer."""
    footer_first = len(payload) - TRAILER_BYTES - footer_bytes
    pack_into(">I", payload, len(payload) - 12, crc32c(payload[footer_first : len(payload) - 12]))
    return bytes(payload)


FOOTER_BYTES = 20 + 2 * FOOTER_BYTES_PER_CHUNK
FOOTER_FIRST = HEADER_BYTES + 18


class TestEncoding:
    def test_the_bytes_are_those_of_version_1(self) -> None:
        footer = (
            pack(">qqI", 7, 3, 2)
            + pack(">16siQQI", TOPIC_A, 5, 12, 9, crc32c(b"first run"))
            + pack(">16siQQI", TOPIC_B, 0, 21, 9, 0xE3069283)
        )
        trailer = pack(">II", len(footer), 1)
        expected = b"PNSTKOBJ\0\0\0\1first run123456789" + footer + trailer
        expected += pack(">I", crc32c(footer + trailer)) + b"PNSTKOBJ"
        assert whole() == expected

    def test_the_bytes_are_those_of_the_golden_file(self) -> None:
        assert whole() == (GOLDEN / "intake_object_v1.bin").read_bytes()

    def test_payloads_are_handed_on_as_they_came(self) -> None:
        parts: list[Buffer] = [b"a", bytearray(b"b"), memoryview(b"c")]
        encoded = encode_object(
            SessionId(1), ObjectNumber(0), [ChunkParts(topic_id=TOPIC_A, partition=PartitionIndex(0), parts=parts)]
        )
        assert all(given is sent for given, sent in zip(parts, encoded.parts[1:-1], strict=True))

    def test_it_says_where_chunks_begin_and_how_large_the_object_is(self) -> None:
        encoded = encode_object(SessionId(7), ObjectNumber(3), CHUNKS)
        assert encoded.byte_firsts == [12, 21]
        assert encoded.object_bytes == len(whole())


class TestReading:
    @pytest.mark.parametrize("golden", sorted(GOLDEN.glob("intake_object_v*.bin")), ids=lambda path: path.name)
    def test_objects_of_every_version_are_readable(self, golden: Path) -> None:
        payload = golden.read_bytes()
        assert describe_object(payload, len(payload)) == DESCRIPTION

    def test_the_footer_is_enough(self) -> None:
        payload = whole()
        tail = payload[-(FOOTER_BYTES + TRAILER_BYTES) :]
        assert describe_object(memoryview(tail), len(payload)) == DESCRIPTION
        assert read_footer(tail, len(payload)) == DESCRIPTION.chunks

    def test_an_object_may_hold_no_chunk(self) -> None:
        payload = whole(chunks=())
        assert read_footer(payload, len(payload)) == []

    @pytest.mark.parametrize("tail_bytes", [TRAILER_BYTES, FOOTER_BYTES + TRAILER_BYTES - 1])
    def test_a_tail_without_the_whole_footer_says_what_it_takes(self, tail_bytes: int) -> None:
        payload = whole()
        with pytest.raises(TailTooShort) as caught:
            describe_object(payload[-tail_bytes:], len(payload))
        assert caught.value.bytes_needed == FOOTER_BYTES + TRAILER_BYTES

    @pytest.mark.parametrize("tail_bytes", [0, TRAILER_BYTES - 1])
    def test_a_tail_without_the_whole_trailer_asks_for_a_usual_one(self, tail_bytes: int) -> None:
        with pytest.raises(TailTooShort) as caught:
            describe_object(bytes(tail_bytes), 1 << 20)
        assert caught.value.bytes_needed == TAIL_BYTES_HINT
        with pytest.raises(TailTooShort) as caught:
            describe_object(bytes(tail_bytes), len(whole()))
        assert caught.value.bytes_needed == len(whole())


class TestDamage:
    @pytest.mark.parametrize("object_bytes", [0, 1, HEADER_BYTES + 20 + TRAILER_BYTES - 1])
    def test_what_is_too_small_is_no_object(self, object_bytes: int) -> None:
        with pytest.raises(ChunkFormatError, match="too small"):
            describe_object(bytes(object_bytes), object_bytes)

    def test_a_tail_longer_than_its_object_is_refused(self) -> None:
        with pytest.raises(ChunkFormatError, match="longer than its object"):
            describe_object(whole(), len(whole()) - 1)

    def test_another_file_is_distinguished(self) -> None:
        with pytest.raises(ChunkFormatError, match=r"ends with b'PAR1PAR1'"):
            describe_object(whole()[:-8] + b"PAR1PAR1", len(whole()))

    def test_a_newer_version_is_refused(self) -> None:
        payload = bytearray(whole())
        pack_into(">I", payload, len(payload) - 16, 2)
        with pytest.raises(ChunkFormatError, match="version 2"):
            describe_object(payload, len(payload))

    @pytest.mark.parametrize("footer_bytes", [0, 19, FOOTER_BYTES - 1, FOOTER_BYTES + 40, 0xFFFFFFFF])
    def test_an_impossible_footer_is_refused(self, footer_bytes: int) -> None:
        payload = bytearray(whole())
        pack_into(">I", payload, len(payload) - 20, footer_bytes)
        with pytest.raises(ChunkFormatError, match="impossible"):
            describe_object(payload, len(payload))

    def test_every_flipped_bit_of_footer_and_trailer_is_noticed(self) -> None:
        payload = whole()
        for bit in range(FOOTER_FIRST * 8, len(payload) * 8):
            damaged = bytearray(payload)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(ChunkFormatError):
                describe_object(damaged, len(damaged))

    def test_a_count_that_does_not_fit_is_refused(self) -> None:
        payload = bytearray(whole())
        pack_into(">I", payload, FOOTER_FIRST + 16, 3)
        with pytest.raises(ChunkFormatError, match="3 chunks do not fill 80 bytes"):
            describe_object(resealed(payload, FOOTER_BYTES), len(payload))

    def test_chunks_that_do_not_touch_are_refused(self) -> None:
        payload = bytearray(whole())
        pack_into(">Q", payload, FOOTER_FIRST + 20 + 40 + 20, 22)
        with pytest.raises(ChunkFormatError, match="chunk 1 begins at byte 22, not at 21"):
            describe_object(resealed(payload, FOOTER_BYTES), len(payload))

    def test_chunks_that_do_not_reach_the_footer_are_refused(self) -> None:
        payload = bytearray(whole())
        pack_into(">Q", payload, FOOTER_FIRST + 20 + 40 + 28, 8)
        with pytest.raises(ChunkFormatError, match="end at byte 29, the footer begins at 30"):
            describe_object(resealed(payload, FOOTER_BYTES), len(payload))


class TestChecks:
    def test_the_header_says_the_version(self) -> None:
        assert check_header(whole()[:HEADER_BYTES]) == 1

    def test_a_header_is_not_guessed_from_fewer_bytes(self) -> None:
        with pytest.raises(ChunkFormatError, match="too few"):
            check_header(MAGIC)

    def test_another_header_is_refused(self) -> None:
        with pytest.raises(ChunkFormatError, match="begins with b'notours!'"):
            check_header(b"notours!\0\0\0\1")

    def test_a_chunk_passes_with_its_own_bytes(self) -> None:
        check_chunk(memoryview(whole())[12:21], DESCRIPTION.chunks[0])

    def test_a_chunk_with_other_bytes_is_refused(self) -> None:
        with pytest.raises(ChunkFormatError, match="checksum"):
            check_chunk(b"first ruN", DESCRIPTION.chunks[0])

    def test_a_chunk_of_another_length_is_refused(self) -> None:
        with pytest.raises(ChunkFormatError, match="has 8 bytes, not 9"):
            check_chunk(b"first ru", DESCRIPTION.chunks[0])
