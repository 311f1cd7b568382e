"""Headers, their checks, and changes in place."""

import pytest

from protocol.errors import ErrorCode, InvalidBatch, NotOneBatch
from protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    check_crc,
    check_crcs,
    checksum_of,
    encode_varint,
    is_transactional_at_sight,
    patch_offsets,
    read_header,
    records_at_sight,
    set_log_append_time,
    set_max_timestamp,
    split_batches,
    walk_batches,
)
from protocol.records.compression import Compression
from tests.support.records.record_batches import RECORDS, hand_made


def code_of(buffer: bytes) -> ErrorCode:
    with pytest.raises(InvalidBatch) as refused:
        split_batches(buffer)
    return refused.value.error_code


class TestHeaders:
    def test_every_field_is_read(self) -> None:
        batch = hand_made(
            base_offset=7,
            leader_epoch=3,
            attributes=0x1A,
            producer_id=9,
            producer_epoch=2,
            base_sequence=4,
            crc=0xFFFFFFFF,
        )
        header = read_header(b"ab" + batch, 2)
        assert header == BatchHeader(
            2, 61 + len(RECORDS), 7, 3, 2, 0xFFFFFFFF, 0x1A, 1, 1_000, 1_005, 9, 2, 4, 2
        )  # fmt: skip
        assert header.end == 2 + len(batch)
        assert header.compression is Compression.SNAPPY
        assert header.is_log_append_time
        assert header.is_transactional
        assert not header.is_control

    def test_a_transaction_is_seen_without_a_look_at_anything_else(self) -> None:
        transactional = hand_made(attributes=0x10, crc=1)
        assert is_transactional_at_sight(transactional)
        assert not is_transactional_at_sight(hand_made(attributes=0x2F))
        assert not is_transactional_at_sight(None)
        assert not is_transactional_at_sight(transactional[:60])
        assert not is_transactional_at_sight(transactional[:16] + b"\1" + transactional[17:])

    def test_records_are_counted_without_a_look_at_anything_else(self) -> None:
        batch = hand_made(crc=1)
        assert records_at_sight(batch) == read_header(batch).record_count == 2
        assert records_at_sight(memoryview(batch)[:61]) == 2
        assert records_at_sight(batch[:60]) == records_at_sight(b"") == 0

    def test_batches_follow_each_other(self) -> None:
        one = hand_made()
        assert [(h.position, h.batch_bytes) for h in split_batches(memoryview(one + one))] == [
            (0, len(one)),
            (len(one), len(one)),
        ]


class TestRefusals:
    """Codes as recorded from Apache Kafka 4.3.1, but for the two differences that the module names."""

    @pytest.mark.parametrize(
        "fields",
        [
            {"record_count": 0},
            {"record_count": -1, "last_offset_delta": 1},
            {"record_count": 3},
            {"last_offset_delta": 5},
            {"last_offset_delta": -1, "record_count": 0},
            {"base_offset": 700},
            {"attributes": 0x20},
            {"producer_id": 5, "base_sequence": -1},
        ],
        ids=str,
    )
    def test_invalid_record(self, fields: dict[str, int]) -> None:
        if fields == {"record_count": 3}:
            fields = {"record_count": 3, "last_offset_delta": 1}
        assert code_of(hand_made(**fields)) is ErrorCode.invalid_record

    @pytest.mark.parametrize("kept", [0, 1, 16, 17, 60, 61, -4, -1])
    def test_a_cut_first_batch_is_no_batch(self, kept: int) -> None:
        assert code_of(hand_made()[:kept]) is ErrorCode.invalid_record

    @pytest.mark.parametrize("kept", [1, 17, 61, -1])
    def test_a_cut_later_batch_is_corrupt(self, kept: int) -> None:
        assert code_of(hand_made() + hand_made()[:kept]) is ErrorCode.corrupt_message

    @pytest.mark.parametrize("magic", [0, 1])
    def test_old_formats(self, magic: int) -> None:
        assert code_of(hand_made(magic=magic)) is ErrorCode.unsupported_for_message_format

    @pytest.mark.parametrize("magic", [3, -1])
    def test_unknown_formats(self, magic: int) -> None:
        assert code_of(hand_made(magic=magic)) is ErrorCode.corrupt_message

    @pytest.mark.parametrize("length", [-1, 0, 48, -(1 << 31)])
    def test_a_length_below_the_header(self, length: int) -> None:
        assert code_of(hand_made(length=length)) is ErrorCode.corrupt_message

    @pytest.mark.parametrize("codec", [5, 6, 7])
    def test_an_unknown_codec(self, codec: int) -> None:
        assert code_of(hand_made(attributes=codec)) is ErrorCode.unsupported_compression_type

    @pytest.mark.parametrize(
        ("buffer", "is_no_batch"),
        [
            (b"", True),
            (hand_made()[:-1], True),
            (hand_made(magic=1), True),
            (hand_made(magic=3), True),
            (hand_made(base_offset=7), False),
            (hand_made(attributes=5), False),
        ],
    )
    def test_what_is_not_one_whole_batch_is_distinguished_from_what_the_log_refuses(
        self, buffer: bytes, is_no_batch: bool
    ) -> None:
        with pytest.raises(InvalidBatch) as refused:
            split_batches(buffer)
        assert isinstance(refused.value, NotOneBatch) is is_no_batch

    def test_append_time_is_the_brokers_to_set(self) -> None:
        assert code_of(hand_made(attributes=8)) is ErrorCode.invalid_timestamp

    def test_a_sequence_belongs_to_a_producer_id(self) -> None:
        assert split_batches(hand_made(producer_id=5, producer_epoch=0, base_sequence=0))[0].base_sequence == 0


class TestCrc:
    def test_a_right_one_passes_wherever_the_batch_lies(self) -> None:
        buffer = b"??" + hand_made() + b"??"
        check_crc(buffer, read_header(buffer, 2))

    def test_any_changed_byte_behind_it_is_found(self) -> None:
        for position in range(21, len(hand_made())):
            buffer = bytearray(hand_made())
            header = read_header(buffer)
            buffer[position] ^= 0x10
            with pytest.raises(InvalidBatch) as refused:
                check_crc(buffer, header)
            assert refused.value.error_code is ErrorCode.corrupt_message


class TestCrcsOfStoredBatches:
    def test_sound_batches_pass_whatever_their_offsets_are(self) -> None:
        stored = bytearray(hand_made() * 3)
        patch_offsets(stored, 77)
        check_crcs(stored)
        check_crcs(b"")

    def test_their_checksum_says_which_they_are_and_in_which_order(self) -> None:
        one, two, three = (hand_made(record_count=count, last_offset_delta=count - 1) for count in (1, 2, 3))
        assert check_crcs(b"") == 0
        assert check_crcs(one) == read_header(one).crc
        checksums = {check_crcs(b"".join(parts)) for parts in ((one, two, three), (two, one, three), (one, three))}
        assert len(checksums) == 3
        stored = bytearray(one + two + three)
        patch_offsets(stored, 77)
        assert check_crcs(stored) in checksums
        assert checksum_of(list(walk_batches(stored))) == check_crcs(stored)

    def test_every_other_bit_counts(self) -> None:
        batch = hand_made()
        for byte in set(range(2 * len(batch))) - {*range(8), *range(12, 16)}:
            stored = bytearray(batch * 2)
            stored[byte] ^= 1 << byte % 8
            if byte - len(batch) in {*range(8), *range(12, 16)}:
                check_crcs(stored)
            else:
                with pytest.raises(InvalidBatch):
                    check_crcs(stored)

    def test_a_batch_that_is_cut_does_not_pass(self) -> None:
        batch = hand_made()
        for cut in (1, HEADER_BYTES - 1, HEADER_BYTES, len(batch) - 1):
            with pytest.raises(NotOneBatch):
                check_crcs(batch + batch[:cut])


class TestOffsets:
    def test_batches_get_consecutive_offsets_and_keep_their_crc(self) -> None:
        buffer = bytearray(hand_made() + hand_made(record_count=3) + hand_made(record_count=1))
        assert patch_offsets(buffer, 1 << 40, 6) == (1 << 40) + 6
        headers = list(walk_batches(buffer))
        assert [h.base_offset - (1 << 40) for h in headers] == [0, 2, 5]
        assert [h.leader_epoch for h in headers] == [6, 6, 6]
        for header in headers:
            check_crc(buffer, header)

    def test_nothing_is_no_batch(self) -> None:
        assert patch_offsets(bytearray(), 5) == 5

    @pytest.mark.parametrize("kept", [5, 60, -1])
    def test_a_cut_batch_is_refused(self, kept: int) -> None:
        with pytest.raises(InvalidBatch):
            patch_offsets(memoryview(bytearray(hand_made() + hand_made()[:kept])), 0)

    def test_a_length_below_the_header_is_refused(self) -> None:
        with pytest.raises(InvalidBatch):
            patch_offsets(bytearray(hand_made(length=0)), 0)


class TestTimestamps:
    def test_s14_append_time_with_a_crc_equal_to_one_made_again(self) -> None:
        buffer = bytearray(hand_made() + hand_made(attributes=0x12))
        set_log_append_time(buffer, 1_700_000_000_123)
        for header in walk_batches(buffer):
            check_crc(buffer, header)
            assert header.is_log_append_time
            assert header.max_timestamp == 1_700_000_000_123
        assert [h.attributes for h in walk_batches(buffer)] == [8, 0x1A]

    def test_s14_damaged_records_do_not_get_a_valid_crc(self) -> None:
        buffer = bytearray(hand_made())
        buffer[-1] ^= 1
        set_log_append_time(buffer, 5)
        with pytest.raises(InvalidBatch):
            check_crc(buffer, read_header(buffer))

    def test_the_max_timestamp_alone(self) -> None:
        buffer = bytearray(b"?" + hand_made())
        set_max_timestamp(memoryview(buffer), read_header(buffer, 1), 77)
        header = read_header(buffer, 1)
        check_crc(buffer, header)
        assert (header.max_timestamp, header.attributes) == (77, 0)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (2**31 - 1, "feffffff0f")],
)
def test_varints(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded
