"""Every bit of an archived file that has checksums: one that changed is an error, and no other value."""

import io
import random
from collections.abc import Callable

import pyarrow.parquet as pq
import pytest

from coordinator.commands.commands import ArchivedChunk
from iceberg_export.parquet.reader import BatchForm, check_place, encode_chunk, parse_footer
from iceberg_export.rows.checksums import FileChecksums, check_whole, sealed, tail_bytes
from iceberg_export.rows.footer import FileUnreadable, footer_bytes
from protocol.records.compression import Compression
from tests.support.lake.checksummed_files import KEY, RECORDS, archived
from tests.support.records.plain_records import Record, read_batches

FLIPS = 500


def read(data: bytes, chunks: list[ArchivedChunk], key: str = KEY) -> list[Record]:
    """As a fetch does it: the footer, then each row group."""
    footer = parse_footer(data, key=key, file_bytes=len(data))
    records = list[Record]()
    for chunk in chunks:
        check_place(footer, chunk)
        piece = data[chunk.byte_first : chunk.byte_first + chunk.byte_count]
        records += read_batches(encode_chunk(footer, piece, chunk, BatchForm(Compression.NONE))).records
    return records


def test_no_flipped_bit_is_served_or_seen_by_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Safety rule S20. In the row groups, the footer and the checksums; indexes for other engines are not read."""
    data, chunks = archived()
    assert read(data, chunks) == RECORDS
    rows_end = chunks[-1].byte_first + chunks[-1].byte_count
    block_first = len(data) - tail_bytes(data, len(data))
    bits = [8 * byte + bit for byte in [*range(4, rows_end), *range(block_first, len(data))] for bit in range(8)]
    for position in random.Random(20).sample(bits, FLIPS):
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(FileUnreadable):
            read(bytes(changed), chunks)
        with pytest.raises(FileUnreadable):
            check_whole(changed, KEY)


def test_a_flipped_bit_of_what_only_other_engines_read_is_found_by_reading_all() -> None:
    data, chunks = archived()
    rows_end = chunks[-1].byte_first + chunks[-1].byte_count
    block_first = len(data) - tail_bytes(data, len(data))
    assert rows_end < block_first
    for byte in (0, rows_end, block_first - 1):
        changed = bytearray(data)
        changed[byte] ^= 1
        with pytest.raises(FileUnreadable, match="are damaged"):
            check_whole(changed, KEY)
        assert read(bytes(changed), chunks) == RECORDS


@pytest.mark.parametrize("left", [0, 7, 8, 100, -100, -9, -1])
def test_a_file_that_was_cut_short_is_unreadable(left: int) -> None:
    data, chunks = archived()
    with pytest.raises(FileUnreadable):
        read(data[:left], chunks)


def test_bytes_in_the_middle_that_are_gone_or_twice_are_found() -> None:
    data, chunks = archived()
    for changed in (data[:50] + data[51:], data[:50] + data[49:]):
        with pytest.raises(FileUnreadable, match=f"the file has {len(changed)} bytes, and had {len(data)}"):
            read(changed, chunks)


def test_a_file_under_the_key_of_another_one_is_unreadable() -> None:
    other = [Record(offset=n, timestamp=n, key=b"k%d" % (n % 3), value=b"VALUE %d" % n) for n in range(60)]
    data, chunks = archived("lake/t/data/2.parquet", other)
    with pytest.raises(FileUnreadable, match=r"was written as lake/t/data/2\.parquet, but is stored under lake"):
        read(data, chunks)


def test_a_file_of_before_is_read_and_nothing_said_of_it() -> None:
    data, chunks = archived(None)
    assert read(data, chunks) == RECORDS
    assert not check_whole(data, KEY)


def test_a_file_that_lost_its_checksums_is_not_taken_for_one_of_before() -> None:
    data, chunks = archived()
    block_first = len(data) - tail_bytes(data, len(data))
    footer = data[len(data) - footer_bytes(data) :]
    with pytest.raises(
        FileUnreadable, match="the footer says that a block of checksums is before it, but there is none"
    ):
        read(data[:block_first] + footer, chunks)


def test_other_readers_of_parquet_read_a_file_with_checksums() -> None:
    data, _ = archived()
    table = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True).read()
    assert table["offset"].to_pylist() == list(range(60))


def test_no_flipped_bit_of_a_page_is_another_value_to_who_verifies_page_checksums() -> None:
    """Engines that read the table's files by themselves have Parquet's own checksums, where they look at them."""
    data, chunks = archived()
    expected = pq.ParquetFile(io.BytesIO(data)).read()
    bits = range(8 * 4, 8 * (chunks[-1].byte_first + chunks[-1].byte_count))
    found = 0
    for position in random.Random(20).sample(bits, FLIPS):
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
        try:
            table = pq.ParquetFile(io.BytesIO(changed), page_checksum_verification=True).read()
        except (OSError, ValueError):
            found += 1
            continue
        assert table.equals(expected), f"bit {position}"
    assert found > FLIPS * 0.9


@pytest.mark.parametrize("known_bytes", [8, 40, 10_000])
def test_how_much_of_the_end_is_needed_is_learnt_step_by_step(known_bytes: int) -> None:
    data, chunks = archived()
    tail = data[-known_bytes:]
    while (needed := tail_bytes(tail, len(data))) > len(tail):
        tail = data[-needed:]
    assert parse_footer(tail, key=KEY, file_bytes=len(data)).row_groups[0].byte_first == chunks[0].byte_first


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda ends: (ends[0] + 1, ends[1]), id="it begins within a stretch"),
        pytest.param(lambda ends: (ends[0], ends[1] - 1), id="it ends within a stretch"),
        pytest.param(lambda ends: (ends[1], ends[-1] + 9), id="it ends behind the last one"),
    ],
)
def test_what_is_no_stretch_cannot_be_checked(harm: Callable[[list[int]], tuple[int, int]]) -> None:
    data, _ = archived()
    checksums = parse_footer(data).checksums
    assert isinstance(checksums, FileChecksums)
    first, end = harm(list(checksums.ends))
    with pytest.raises(FileUnreadable, match="are not whole stretches"):
        checksums.check(first, bytes(end - first))


def test_a_file_in_parts_is_not_copied() -> None:
    data = b"PAR1" + bytes(20) + b"footer" + (6).to_bytes(4, "little") + b"PAR1"
    first, block, last = sealed(data, KEY, [4])
    assert (bytes(first), bytes(last)) == (data[:24], data[24:])
    assert first.obj is data  # type: ignore[union-attr]
    assert check_whole(bytes(first) + bytes(block) + bytes(last), KEY)
