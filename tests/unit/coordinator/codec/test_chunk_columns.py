"""Entries that commit chunks: their columns must agree with each other and with the object's size."""

from array import array

import pytest

from coordinator.ledger.port import LedgerCorrupt
from tests.support.commands.commands import TOPIC
from tests.support.commands.entries import decode, plain

CHUNK_COLUMNS = {"topic": ("H", [0]), "partition": ("I", [0]), "byte_first": ("I", [0]), "batch_count": ("H", [1])}
BATCH_COLUMNS = {
    "record_bytes": ("I", [100]),
    "record_count": ("I", [1]),
    "max_timestamp": ("q", [5]),
    "producer_id": ("q", [-1]),
    "producer_epoch": ("h", [-1]),
    "base_sequence": ("i", [-1]),
    "is_transactional": ("B", [0]),
}


def commit_entry(object_bytes: int = 100, **changed: bytes | list[int]) -> bytes:
    """An entry of one chunk with one batch, but for the changed columns."""

    def columns(table: dict[str, tuple[str, list[int]]]) -> list[bytes]:
        written: list[bytes] = []
        for name, (typecode, values) in table.items():
            value = changed.get(name, values)
            written.append(value if isinstance(value, bytes) else array(typecode, value).tobytes())
        return written

    return plain([None, [7, 1, 0, object_bytes, [TOPIC], columns(CHUNK_COLUMNS), columns(BATCH_COLUMNS)]])


class TestColumns:
    def test_the_entry_that_is_varied_below_is_sound(self) -> None:
        assert decode(commit_entry()).time_ms is None

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            (plain([None, [7, 1, 0, 100, [TOPIC], [b""] * 3, [b""] * 7]]), "have lengths"),
            (plain([None, [7, 1, 0, 100, [TOPIC], [b""] * 4, [b""] * 6]]), "6 columns of batches where 7"),
            (commit_entry(record_bytes=b"\0\0\0"), "ends inside a value"),
            (commit_entry(record_count=[1, 1]), "have lengths"),
            (commit_entry(100, **dict.fromkeys(BATCH_COLUMNS, b"")), "have lengths"),
            (commit_entry(record_bytes=[0]), "without records"),
            (commit_entry(record_count=[0]), "without records"),
            (commit_entry(record_count=[1 << 31]), "without records"),
            (commit_entry(producer_id=[-2]), "producer id below -1"),
            (commit_entry(topic=[1]), "topic 1 where 1 are listed"),
            (commit_entry(batch_count=[0]), "chunks of 0 batches"),
            (commit_entry(batch_count=[2]), "chunks of 2 batches where 1"),
            (commit_entry(partition=[1 << 31]), "beyond 31 bits"),
            (commit_entry(byte_first=[1]), "ends at byte 101 of an object of 100"),
            (commit_entry(object_bytes=99), "ends at byte 100 of an object of 99"),
        ],
    )
    def test_whatever_points_outside_is_refused(self, entry: bytes, message: str) -> None:
        with pytest.raises(LedgerCorrupt, match=message):
            decode(entry)

    def test_the_end_of_a_chunk_of_several_batches_is_checked(self) -> None:
        entry = commit_entry(
            object_bytes=199,
            batch_count=[2],
            **{name: values * 2 for name, (_, values) in BATCH_COLUMNS.items()},
        )
        with pytest.raises(LedgerCorrupt, match="ends at byte 200 of an object of 199"):
            decode(entry)
