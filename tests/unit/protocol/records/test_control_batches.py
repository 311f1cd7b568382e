"""Markers and bridges, byte for byte as Apache Kafka 4.3.1 wrote them to a partition's log."""

import pytest

from protocol.errors import ErrorCode, InvalidBatch
from protocol.records.batch import check_crc, read_header, walk_batches
from protocol.records.control_batches import ControlRecordType, Marker, empty_control_batch, marker_batch, read_marker
from protocol.records.records import decode_records
from protocol.types import Milliseconds, Offset, ProducerEpoch, ProducerId
from tests.support.records.plain_records import Record, make_batch

COMMIT_V1 = bytes.fromhex(
    "0000000000000001000000420000000002cd735e8a003000000000000001a20400e6e3000001a20400e6e300000000000000060000"
    "ffffffff000000012000000008000000010c00000000000000"
)
ABORT_V1 = bytes.fromhex(
    "000000000000000100000042000000000201517811003000000000000001a20400e95f000001a20400e95f00000000000000070000"
    "ffffffff000000012000000008000000000c00000000000000"
)
COMMIT_V2 = bytes.fromhex(
    "000000000000000100000042000000000205984da2003000000000000001a20400ebf7000001a20400ebf700000000000000080001"
    "ffffffff000000012000000008000000010c00000000000000"
)
ABORT_V2 = bytes.fromhex(
    "000000000000000100000042000000000292d95e94003000000000000001a20400eed3000001a20400eed300000000000000090001"
    "ffffffff000000012000000008000000000c00000000000000"
)
"""Each from offset 1 of a log, behind one record. V1: the transaction's own epoch, 0; V2: the one after."""

WRITTEN_BY_KAFKA = [
    pytest.param(COMMIT_V1, 6, 0, True, 1795363497699, id="commit-v1"),
    pytest.param(ABORT_V1, 7, 0, False, 1795363498335, id="abort-v1"),
    pytest.param(COMMIT_V2, 8, 1, True, 1795363498999, id="commit-v2"),
    pytest.param(ABORT_V2, 9, 1, False, 1795363499731, id="abort-v2"),
]


def marker(*, epoch: int = 0, coordinator_epoch: int = 0, leader_epoch: int = 0) -> bytes:
    return marker_batch(
        offset=Offset(5),
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(epoch),
        is_commit=True,
        timestamp_ms=Milliseconds(1_000),
        coordinator_epoch=coordinator_epoch,
        leader_epoch=leader_epoch,
    )


class TestMarkers:
    @pytest.mark.parametrize(("written", "producer_id", "epoch", "is_commit", "time_ms"), WRITTEN_BY_KAFKA)
    def test_a_marker_has_the_bytes_that_kafka_writes(
        self, written: bytes, producer_id: int, epoch: int, is_commit: bool, time_ms: int
    ) -> None:
        made = marker_batch(
            offset=Offset(1),
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(epoch),
            is_commit=is_commit,
            timestamp_ms=Milliseconds(time_ms),
        )
        assert made.hex() == written.hex()

    @pytest.mark.parametrize(("written", "producer_id", "epoch", "is_commit", "time_ms"), WRITTEN_BY_KAFKA)
    def test_a_marker_of_kafka_is_read(
        self, written: bytes, producer_id: int, epoch: int, is_commit: bool, time_ms: int
    ) -> None:
        header = read_header(written)
        check_crc(written, header)
        assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (producer_id, epoch, time_ms)
        assert read_marker(written, header) == Marker(is_commit=is_commit, coordinator_epoch=0)

    def test_a_marker_carries_every_epoch(self) -> None:
        batch = marker(epoch=32767, coordinator_epoch=(1 << 31) - 1, leader_epoch=3)
        header = read_header(b"before" + batch, 6)
        check_crc(b"before" + batch, header)
        assert (header.base_offset, header.producer_epoch, header.leader_epoch) == (5, 32767, 3)
        assert read_marker(b"before" + batch, header).coordinator_epoch == (1 << 31) - 1


class TestWhatIsNoMarker:
    @pytest.mark.parametrize(
        "batch",
        [make_batch([Record(offset=0, timestamp=1_000, value=b"v")]), empty_control_batch(0, 5)],
        ids=["records", "bridge"],
    )
    def test_batches_that_end_no_transaction_are_refused(self, batch: bytes) -> None:
        with pytest.raises(InvalidBatch, match="no transaction's marker") as caught:
            read_marker(batch, read_header(batch))
        assert caught.value.error_code == ErrorCode.invalid_record

    def test_a_cut_record_is_refused(self) -> None:
        batch = bytearray(marker())
        batch[11] -= 1
        with pytest.raises(InvalidBatch, match="the marker at 5 is cut") as caught:
            read_marker(batch[:-1], read_header(batch[:-1]))
        assert caught.value.error_code == ErrorCode.corrupt_message

    def test_a_control_record_of_another_type_is_refused(self) -> None:
        batch = bytearray(marker())
        batch[69] = 2
        with pytest.raises(InvalidBatch, match="is of type 2"):
            read_marker(batch, read_header(batch))

    def test_types_are_kafkas(self) -> None:
        assert [(kind.name, kind.value) for kind in ControlRecordType] == [("ABORT", 0), ("COMMIT", 1)]


class TestBridges:
    @pytest.mark.parametrize(
        ("first", "end"), [(0, 1), (5, 1005), (1 << 40, (1 << 40) + 100_000), (3, 3 + (1 << 31) - 1)]
    )
    def test_s5_one_control_batch_covers_the_range(self, first: int, end: int) -> None:
        batch = empty_control_batch(first, end)
        header = read_header(batch)
        check_crc(batch, header)
        assert header.end == len(batch)
        assert (header.base_offset, header.base_offset + header.last_offset_delta + 1) == (first, end)
        assert header.is_control
        assert not header.is_transactional
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)

    def test_its_one_record_is_a_commit_marker_at_the_last_offset(self) -> None:
        batch = empty_control_batch(10, 20)
        columns = decode_records(batch, read_header(batch))
        assert columns.offset_delta.tolist() == [9]
        assert columns.timestamp.tolist() == [-1]
        payload = columns.payload.tobytes()
        assert payload[columns.key_first[0] :][: columns.key_bytes[0]] == b"\x00\x00\x00\x01"
        assert payload[columns.value_first[0] :][: columns.value_bytes[0]] == bytes(6)

    def test_a_longer_range_takes_several(self) -> None:
        headers = list(walk_batches(empty_control_batch(0, 1 << 32)))
        assert [(h.base_offset, h.last_offset_delta) for h in headers] == [
            (0, (1 << 31) - 2),
            ((1 << 31) - 1, (1 << 31) - 2),
            ((1 << 32) - 2, 1),
        ]

    def test_an_empty_range_takes_none(self) -> None:
        assert empty_control_batch(5, 5) == b""
