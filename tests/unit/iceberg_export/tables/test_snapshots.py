"""The snapshot that a commit adds, and those that are too many."""

import pytest
from msgspec.structs import replace

from iceberg_export.tables.metadata import SnapshotRef, TableMetadata, empty_metadata
from iceberg_export.tables.snapshots import (
    TAG,
    FileTotals,
    add_snapshot,
    expiring,
    snapshot_id_of,
    summarize,
    without,
    without_old_names,
)
from protocol.limits import TABLE_OFFSETS_BYTES_MAX, TABLE_SNAPSHOTS_EXPIRED_AT_ONCE, TABLE_SNAPSHOTS_MAX
from tests.support.lake.table_fixtures import NAME, TOPIC, data_file

NONE = FileTotals.of(())


def with_snapshots(count: int) -> TableMetadata:
    metadata = empty_metadata(name=NAME, topic_id=TOPIC, location="s3://b/t", created_ms=5)
    for number in range(1, count + 1):
        summary = summarize(metadata.current(), added=FileTotals.of([data_file(number)]), dropped=NONE, offsets={})
        metadata = add_snapshot(
            metadata, snapshot_id=number, manifest_list=f"s3://b/{number}", summary=summary, now_ms=10 * number
        )
    return metadata


def test_the_first_snapshot_says_what_it_added_and_what_there_is() -> None:
    added = FileTotals.of([data_file(1), data_file(2)])
    assert summarize(None, added=added, dropped=NONE, offsets={1: (0, 7)}) == {
        "operation": "append",
        "added-data-files": "2",
        "added-records": "20",
        "added-files-size": "2003",
        "total-records": "20",
        "total-files-size": "2003",
        "total-data-files": "2",
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
        "penstock.offsets": '{"1":[0,7]}',
    }


def test_a_snapshot_that_drops_says_what_is_left() -> None:
    summary = summarize(with_snapshots(3).current(), added=NONE, dropped=FileTotals.of([data_file(1)]), offsets={})
    assert summary["operation"] == "replace"
    assert (summary["deleted-data-files"], summary["deleted-records"]) == ("1", "10")
    assert summary["removed-files-size"] == "1001"
    assert (summary["total-data-files"], summary["total-records"]) == ("2", "20")
    assert "added-data-files" not in summary


def test_offsets_of_too_many_partitions_are_counted_instead_of_told() -> None:
    offsets = dict.fromkeys(range(TABLE_OFFSETS_BYTES_MAX // 10), (0, 1 << 40))
    summary = summarize(None, added=NONE, dropped=NONE, offsets=offsets)
    assert summary["penstock.offsets.omitted"] == str(len(offsets))
    assert "penstock.offsets" not in summary


def test_a_snapshot_comes_once() -> None:
    with pytest.raises(AssertionError, match="keys are unique"):
        add_snapshot(with_snapshots(2), snapshot_id=1, manifest_list="s3://b/l", summary={}, now_ms=0)


def test_ids_of_snapshots_differ_with_the_key() -> None:
    assert snapshot_id_of("a") == snapshot_id_of("a") != snapshot_id_of("b")


def ids(metadata: TableMetadata) -> list[int]:
    return [snapshot.snapshot_id for snapshot in metadata.snapshots]


def named(metadata: TableMetadata, **snapshot_ids: int) -> TableMetadata:
    refs = {name: SnapshotRef(snapshot_id=number, type=TAG) for name, number in snapshot_ids.items()}
    return replace(metadata, refs={**metadata.refs, **refs})


def test_snapshots_expire_together() -> None:
    limit = TABLE_SNAPSHOTS_MAX + TABLE_SNAPSHOTS_EXPIRED_AT_ONCE
    assert expiring(with_snapshots(limit - 1)) == ()
    metadata = with_snapshots(limit)
    leaving = expiring(metadata)
    assert leaving == metadata.snapshots[:TABLE_SNAPSHOTS_EXPIRED_AT_ONCE]
    left = without(metadata, leaving)
    assert ids(left) == list(range(TABLE_SNAPSHOTS_EXPIRED_AT_ONCE + 1, limit + 1))
    assert [entry.snapshot_id for entry in left.snapshot_log] == ids(left)
    assert left.current() == metadata.current()


def test_snapshots_that_are_named_stay_and_do_not_count() -> None:
    limit = TABLE_SNAPSHOTS_MAX + TABLE_SNAPSHOTS_EXPIRED_AT_ONCE
    metadata = named(with_snapshots(limit), a=2, b=2, current=limit)
    assert expiring(metadata) == ()
    metadata = named(with_snapshots(limit + 1), a=2)
    leaving = expiring(metadata)
    assert [one.snapshot_id for one in leaving] == [1, *range(3, TABLE_SNAPSHOTS_EXPIRED_AT_ONCE + 2)]
    left = without(metadata, leaving)
    assert ids(left) == [2, *range(TABLE_SNAPSHOTS_EXPIRED_AT_ONCE + 2, limit + 2)]
    assert [entry.snapshot_id for entry in left.snapshot_log] == ids(left)[1:], "what was current when has no gap"


def test_a_snapshot_expires_when_the_next_one_that_is_there_is_old_enough() -> None:
    metadata = named(with_snapshots(5), a=3)
    assert ids(metadata) == [1, 2, 3, 4, 5]
    assert expiring(metadata, 20) == ()
    assert [one.snapshot_id for one in expiring(metadata, 21)] == [1]
    assert [one.snapshot_id for one in expiring(metadata, 51)] == [1, 2, 4]
    left = without(metadata, expiring(metadata, 51))
    assert ids(left) == [3, 5]
    assert [entry.snapshot_id for entry in left.snapshot_log] == [5]
    assert expiring(left, 51) == ()
    assert [one.snapshot_id for one in expiring(replace(left, refs={}), 51)] == [3]


def test_a_name_goes_with_the_age_that_it_was_given() -> None:
    metadata = named(with_snapshots(3), stays=1)
    old = SnapshotRef(snapshot_id=2, type=TAG, max_ref_age_ms=30)  # the snapshot is of 20
    metadata = replace(metadata, refs={**metadata.refs, "goes": old})
    assert without_old_names(metadata, 50) is metadata
    assert set(without_old_names(metadata, 51).refs) == {"main", "stays"}


def test_a_new_snapshot_leaves_the_names_of_others() -> None:
    metadata = add_snapshot(
        named(with_snapshots(1), a=1), snapshot_id=9, manifest_list="s3://b/9", summary={}, now_ms=99
    )
    assert {name: ref.snapshot_id for name, ref in metadata.refs.items()} == {"main": 9, "a": 1}
