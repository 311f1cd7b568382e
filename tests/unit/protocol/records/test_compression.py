"""Every codec in its framings, damaged and hostile input."""

import gzip
from struct import pack

import cramjam
import pytest

from protocol.errors import DoesNotUnpack, ErrorCode
from protocol.records.compression import Compression, compress, decompress
from tests.support.records.record_batches import LZ4_HEAD, lz4_frame

DATA = b"penstock " * 20_000
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
XERIAL_HEADER = bytes.fromhex("82534e4150505900 00000001 00000001")


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def block(data: bytes) -> bytes:
    return pack(">i", len(raw_snappy(data))) + raw_snappy(data)


def assert_malformed(kind: Compression, data: bytes, bytes_max: int = 1 << 20) -> None:
    with pytest.raises(DoesNotUnpack) as refused:
        decompress(kind, data, bytes_max)
    assert refused.value.error_code is ErrorCode.invalid_record


@pytest.mark.parametrize("kind", Compression)
@pytest.mark.parametrize("data", [b"", b"a", DATA, bytes(3_000_000)])
def test_what_was_compressed_comes_out(kind: Compression, data: bytes) -> None:
    assert decompress(kind, compress(kind, data), len(data)) == data


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("output_bytes", [0, len(DATA) - 1, len(DATA), len(DATA) + 1, 2 * len(DATA)])
def test_the_output_is_used_where_it_suffices(kind: Compression, output_bytes: int) -> None:
    output = memoryview(bytearray(output_bytes))
    found = decompress(kind, compress(kind, DATA), 2 * len(DATA), output=output)
    assert found == DATA
    assert (bytes(output[: len(DATA)]) == DATA) is (output_bytes >= len(DATA))
    if output_bytes >= len(DATA):
        found[0] = 0
        assert output[0] == 0


@pytest.mark.parametrize("behind", [b"", b"garbage!", gzip.compress(b"more", mtime=0), b"\x1f\x8b\x08\0"])
def test_members_of_gzip_are_the_same_in_an_output(behind: bytes) -> None:
    packed = gzip.compress(DATA) + behind
    output = memoryview(bytearray(2 * len(DATA)))
    expected = decompress(Compression.GZIP, packed, 2 * len(DATA))
    assert decompress(Compression.GZIP, packed, 2 * len(DATA), output=output) == expected


@pytest.mark.parametrize("kind", CODECS)
def test_damage_is_refused_in_an_output_too(kind: Compression) -> None:
    packed = bytes(compress(kind, DATA))
    with pytest.raises(DoesNotUnpack):
        decompress(kind, packed[: len(packed) // 2], len(DATA), output=memoryview(bytearray(len(DATA))))


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
        if (kind, damage) != (Compression.GZIP, "empty") and (damage != "trailing" or kind is Compression.ZSTD)
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
    [pack(">i", 0), pack(">i", -1), pack(">i", 100) + b"short", pack(">i", 3) + b"\xff\xff\xff"],
    ids=["empty block", "negative length", "cut block", "garbage block"],
)
def test_a_damaged_xerial_block_is_refused(tail: bytes) -> None:
    assert_malformed(Compression.SNAPPY, XERIAL_HEADER + block(b"one") + tail)


@pytest.mark.parametrize("behind", [b"\0", b"\0\0", b"abc"])
def test_fewer_bytes_than_a_length_behind_xerial_blocks_are_skipped_as_java_does(behind: bytes) -> None:
    assert decompress(Compression.SNAPPY, XERIAL_HEADER + block(b"one") + behind, 3) == b"one"


@pytest.mark.parametrize("behind", [b"g", b"garbage!", bytes(40), b"\x1f\x8b\x08\0", b"\x1f\x8b\x07" + bytes(40)])
def test_what_is_no_member_behind_gzip_is_skipped_as_java_does(behind: bytes) -> None:
    for packed in (gzip.compress(DATA), gzip.compress(DATA[:50]) + gzip.compress(b"") + gzip.compress(DATA[50:])):
        assert decompress(Compression.GZIP, packed + behind, len(DATA)) == DATA
        assert_malformed(Compression.GZIP, packed + behind, len(DATA) - 1)


@pytest.mark.parametrize(
    "behind",
    [gzip.compress(b"more", mtime=0)[:-1], gzip.compress(b"more", mtime=0)[:12] + b"\xff" * 12],
    ids=["cut", "garbage"],
)
def test_a_damaged_member_behind_gzip_is_refused(behind: bytes) -> None:
    assert_malformed(Compression.GZIP, gzip.compress(DATA) + behind)


def test_many_small_members_of_gzip_are_read_in_little_time() -> None:
    packed = gzip.compress(b"") * 50_000 + gzip.compress(DATA) + b"garbage behind the last member"
    assert decompress(Compression.GZIP, packed, len(DATA)) == DATA


@pytest.mark.parametrize("behind", [b"g", b"garbage!", bytes(8), lz4_frame(b"more"), lz4_frame(b"more")[:5]])
def test_of_lz4_the_first_frame_alone_counts_as_for_java(behind: bytes) -> None:
    assert decompress(Compression.LZ4, lz4_frame(b"one") + behind, 3) == b"one"


def test_all_frames_of_lz4_are_read_where_they_are_asked_for() -> None:
    packed = lz4_frame(b"one") + lz4_frame(b"") + lz4_frame(b"two")
    assert decompress(Compression.LZ4, packed, 6, is_every_frame=True) == b"onetwo"


@pytest.mark.parametrize("checked", [False, True])
def test_lz4_frames_with_checksums_and_sizes_end_where_they_say(checked: bool) -> None:
    packer = cramjam.lz4.Compressor(level=1, content_checksum=checked, block_linked=False)
    packer.compress(DATA)
    packed = bytes(packer.finish())
    assert decompress(Compression.LZ4, packed + b"behind", len(DATA)) == DATA


@pytest.mark.parametrize(
    "frame",
    [
        lz4_frame(b"one")[:-1],
        lz4_frame(b"one")[:-5],
        LZ4_HEAD,
        LZ4_HEAD[:6],
        b"\x04\x22\x4d\x18\x61\x40\x82" + bytes(4),
    ],
    ids=["cut end mark", "cut block", "no block", "cut header", "reserved flag"],
)
def test_a_frame_of_lz4_that_is_not_whole_is_refused(frame: bytes) -> None:
    assert_malformed(Compression.LZ4, frame)


def test_gzip_of_another_writer_is_read() -> None:
    packed = gzip.compress(DATA[:50]) + gzip.compress(DATA[50:])
    assert decompress(Compression.GZIP, packed, len(DATA)) == DATA


def test_lz4_is_written_in_independent_blocks() -> None:
    assert compress(Compression.LZ4, DATA)[4] & 0x20


def test_lz4_blocks_that_refer_to_each_other_are_refused_as_java_does() -> None:
    assert_malformed(Compression.LZ4, bytes(cramjam.lz4.compress(DATA)))
