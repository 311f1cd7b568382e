"""Every codec in its framings, damaged and hostile input."""

import gzip
from struct import pack

import cramjam
import pytest

from protocol.compression import Compression, compress, decompress
from protocol.errors import ErrorCode, InvalidBatch

DATA = b"penstock " * 20_000
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
XERIAL_HEADER = bytes.fromhex("82534e4150505900 00000001 00000001")


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def block(data: bytes) -> bytes:
    return pack(">i", len(raw_snappy(data))) + raw_snappy(data)


def assert_malformed(kind: Compression, data: bytes, bytes_max: int = 1 << 20) -> None:
    with pytest.raises(InvalidBatch) as refused:
        decompress(kind, data, bytes_max)
    assert refused.value.error_code is ErrorCode.invalid_record


@pytest.mark.parametrize("kind", Compression)
@pytest.mark.parametrize("data", [b"", b"a", DATA, bytes(3_000_000)])
def test_what_was_compressed_comes_out(kind: Compression, data: bytes) -> None:
    assert decompress(kind, compress(kind, data), len(data)) == data


@pytest.mark.parametrize("kind", Compression)
def test_any_buffer_is_taken(kind: Compression) -> None:
    packed = bytearray(compress(kind, memoryview(DATA)))
    assert decompress(kind, memoryview(packed), len(DATA)) == DATA


@pytest.mark.parametrize("kind", Compression)
def test_output_beyond_the_limit_is_refused(kind: Compression) -> None:
    assert_malformed(kind, bytes(compress(kind, DATA)), len(DATA) - 1)


@pytest.mark.parametrize("kind", [Compression.GZIP, Compression.ZSTD, Compression.LZ4])
def test_a_bomb_stops_at_the_limit(kind: Compression) -> None:
    bomb = bytes(compress(kind, bytes(200_000_000)))
    assert len(bomb) < 1_000_000
    assert_malformed(kind, bomb, 1_000_000)


def test_a_snappy_bomb_is_refused_by_what_it_declares() -> None:
    assert_malformed(Compression.SNAPPY, bytes.fromhex("ffffffff0f"), 1_000_000)


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        (kind, damage)
        for kind in CODECS
        for damage in ("empty", "cut", "garbage", "trailing")
        # No member at all is nothing to gzip; the count of records then refuses the batch.
        if (kind, damage) != (Compression.GZIP, "empty")
    ],
)
def test_malformed_input_is_refused(kind: Compression, damage: str) -> None:
    packed = bytes(compress(kind, DATA))
    damaged = {"empty": b"", "cut": packed[:-9], "garbage": b"\xff" * 40, "trailing": packed + b"\x00\x01"}[damage]
    assert_malformed(kind, damaged)


def test_xerial_is_written_in_blocks() -> None:
    packed = bytes(compress(Compression.SNAPPY, DATA[:40_000]))
    assert packed == XERIAL_HEADER + block(DATA[: 32 * 1024]) + block(DATA[32 * 1024 : 40_000])


def test_a_raw_snappy_block_is_read() -> None:
    assert decompress(Compression.SNAPPY, raw_snappy(DATA), len(DATA)) == DATA


def test_several_xerial_streams_are_read_as_one() -> None:
    packed = XERIAL_HEADER + block(b"one") + XERIAL_HEADER + block(b"two")
    assert decompress(Compression.SNAPPY, packed, 6) == b"onetwo"


@pytest.mark.parametrize(
    "tail",
    [b"\x00\x00", pack(">i", -1), pack(">i", 100) + b"short", pack(">i", 3) + b"\xff\xff\xff"],
    ids=["cut length", "negative length", "cut block", "garbage block"],
)
def test_a_damaged_xerial_block_is_refused(tail: bytes) -> None:
    assert_malformed(Compression.SNAPPY, XERIAL_HEADER + block(b"one") + tail)


def test_gzip_of_another_writer_is_read() -> None:
    packed = gzip.compress(DATA[:50]) + gzip.compress(DATA[50:])
    assert decompress(Compression.GZIP, packed, len(DATA)) == DATA


def test_lz4_is_written_in_independent_blocks() -> None:
    assert compress(Compression.LZ4, DATA)[4] & 0x20


def test_lz4_blocks_that_refer_to_each_other_are_refused_as_java_does() -> None:
    assert_malformed(Compression.LZ4, bytes(cramjam.lz4.compress(DATA)))
