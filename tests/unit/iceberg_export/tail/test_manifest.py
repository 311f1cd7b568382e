"""The bytes of the tail manifest, and what its parts answer."""

import struct
from array import array
from dataclasses import replace

import pytest
from crc32c import crc32c

from iceberg_export.tail.manifest import (
    TailChunk,
    TailChunks,
    TailManifest,
    TailPartition,
    TailUnreadable,
    decode_manifest,
    encode_changed,
    encode_manifest,
)
from protocol.types import (
    Milliseconds,
    Offset,
    PartitionIndex,
    Position,
)
from tests.golden import golden_bytes
from tests.support.lake.tail_manifest import ARCHIVED, MANIFEST, WITH_A_TAIL, chunk


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode_manifest(encode_manifest(MANIFEST)) == MANIFEST
    assert encode_manifest(decode_manifest(encode_manifest(MANIFEST))) == encode_manifest(MANIFEST)


def test_what_says_the_same_at_a_later_position_is_no_change() -> None:
    data, digest = encode_changed(MANIFEST, b"")
    assert data == encode_manifest(MANIFEST)
    later = replace(MANIFEST, position=Position(78), written_ms=Milliseconds(2_000))
    assert encode_changed(later, digest) == (None, digest)
    other = replace(later, topics=MANIFEST.topics[:1])
    assert encode_changed(other, digest)[0] == encode_manifest(other)


def test_a_manifest_of_any_age_is_read() -> None:
    assert decode_manifest(golden_bytes("tail/1", encode_manifest(MANIFEST))) == MANIFEST


@pytest.mark.parametrize("extents", [(), ((0, 5),), ((0, 5), (9, 1 << 40))])
def test_offsets_without_rows_are_kept_and_may_be_unknown(extents: tuple[tuple[int, int], ...]) -> None:
    first, *others = MANIFEST.topics[0].partitions
    topic = replace(MANIFEST.topics[0], partitions=(replace(first, without_rows=extents), *others))
    manifest = replace(MANIFEST, topics=(topic, *MANIFEST.topics[1:]))
    read = decode_manifest(golden_bytes(f"tail/without_rows_{len(extents)}", encode_manifest(manifest)))
    assert read == manifest
    assert [each.without_rows for each in read.topics[0].partitions] == [extents, *(None for _ in others)]


def test_checksums_are_kept_where_some_are_known_and_may_be_missing() -> None:
    (partition, archived), other = MANIFEST.topics[0].partitions, MANIFEST.topics[1]
    checksums = (0xFFFFFFFE, 0, 0xFFFFFFFF)  # the second is a marker
    checked = [replace(each, checksum=checksum) for each, checksum in zip(partition.chunks, checksums, strict=True)]
    topic = replace(MANIFEST.topics[0], partitions=(replace(partition, chunks=TailChunks.of(checked)), archived))
    manifest = replace(MANIFEST, topics=(topic, other))
    read = decode_manifest(golden_bytes("tail/with_checksums", encode_manifest(manifest)))
    assert read == manifest
    assert [each.checksum for each in read.topics[0].partitions[0].chunks] == list(checksums)
    assert [each.checksum for each in read.topics[1].partitions[0].chunks] == [0, 0]


def test_a_manifest_of_another_format_is_refused() -> None:
    with pytest.raises(TailUnreadable, match="has format 02, this program reads 1"):
        decode_manifest(b"\2" + encode_manifest(MANIFEST)[1:])
    with pytest.raises(TailUnreadable, match="has format none"):
        decode_manifest(b"")


def test_a_damaged_manifest_is_refused() -> None:
    data = encode_manifest(MANIFEST)
    for damaged in (data[:3], data[:-1], data[:20] + bytes([data[20] ^ 1]) + data[21:]):
        with pytest.raises(TailUnreadable, match="damaged"):
            decode_manifest(damaged)


def test_what_is_no_manifest_under_a_fitting_checksum_is_refused() -> None:
    with pytest.raises(TailUnreadable, match="cannot be read"):
        decode_manifest(struct.pack("<BI", 1, crc32c(b"no frame")) + b"no frame")


def test_a_topic_is_found_by_name() -> None:
    topic = MANIFEST.topic("t")
    assert topic is not None
    assert topic is MANIFEST.topics[0]
    assert MANIFEST.topic("v") is None
    assert topic.partition(PartitionIndex(1)) is ARCHIVED
    assert topic.partition(PartitionIndex(2)) is None
    assert topic.byte_count == 1900


def test_of_two_manifests_the_later_incarnation_then_the_higher_position_is_newer() -> None:
    def at(incarnation: int, position: int) -> TailManifest:
        return TailManifest(
            cluster_id="c",
            incarnation=incarnation,
            position=Position(position),
            written_ms=Milliseconds(0),
            topics=(),
        )

    assert at(1, 8).is_newer_than(at(1, 7))
    assert at(2, 1).is_newer_than(at(1, 7))
    assert not at(1, 7).is_newer_than(at(1, 7))


def test_chunks_are_found_by_offsets() -> None:
    chunks = WITH_A_TAIL.chunks
    assert (chunks.offset_first, chunks.offset_end, chunks.byte_count) == (10, 30, 1900)
    assert chunks.between(Offset(0), Offset(10)) == ()
    assert chunks.between(Offset(12), Offset(20)) == (chunks[0],)
    assert chunks.between(Offset(20), Offset(22)) == (chunks[1], chunks[2])
    assert chunks.between(Offset(29), Offset(99)) == (chunks[-1],)
    assert chunks.between(Offset(30), Offset(99)) == ()
    assert [each.is_marker for each in chunks] == [False, True, False]
    assert chunks[1:] == [chunks[1], chunks[2]]
    assert chunks != list(chunks)
    assert "offset_end=30" in repr(chunks)


def test_chunks_with_a_gap_are_refused() -> None:
    for wrong in ([chunk(0, 5), chunk(6, 7)], [chunk(5, 5)], [chunk(0, 5), chunk(4, 9)]):
        with pytest.raises(ValueError, match="does not begin at"):
            TailChunks.of(wrong)


def test_columns_that_differ_in_length_are_refused() -> None:
    columns = [array("q", [1]), *(array("q") for _ in range(5))]
    with pytest.raises(ValueError, match=r"different lengths: \[0, 1\]"):
        TailChunks(columns=columns)


def test_what_can_be_read_ends_at_the_last_stable_offset_or_with_the_last_chunk() -> None:
    def partition(last_stable: int, *chunks: TailChunk, log_start: int = 0) -> TailPartition:
        return TailPartition(
            log_start=Offset(log_start),
            archived_end=Offset(10),
            last_stable=Offset(last_stable),
            chunks=TailChunks.of(chunks),
        )

    assert partition(25, chunk(10, 30)).readable_end == 25
    assert partition(25, chunk(10, 20)).readable_end == 20
    assert partition(10).readable_end == 10
    assert partition(40, chunk(10, 20), log_start=30).readable_end == 30


def test_what_was_aborted_is_reported_by_producer_and_offset() -> None:
    assert WITH_A_TAIL.aborted_batches.holds(3, 15)
    assert not WITH_A_TAIL.aborted_batches.holds(3, 25)
    assert not ARCHIVED.aborted_batches.holds(3, 15)
