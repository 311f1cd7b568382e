"""The snapshot that a commit adds, and those that are too many."""

import pytest

from iceberg_export.tables.metadata import TableMetadata, empty_metadata
from iceberg_export.tables.snapshots import (
    FileTotals,
    add_snapshot,
    expired_count,
    set_properties,
    snapshot_id_of,
    summarize,
    without_oldest,
)
from protocol.limits import TABLE_OFFSETS_BYTES_MAX, TABLE_SNAPSHOTS_EXPIRED_AT_ONCE, TABLE_SNAPSHOTS_MAX
from tests.made_tables import NAME, TOPIC, data_file

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
    with pytest.raises(AssertionError, match="a key comes once"):
        add_snapshot(with_snapshots(2), snapshot_id=1, manifest_list="s3://b/l", summary={}, now_ms=0)


def test_ids_of_snapshots_differ_with_the_key() -> None:
    assert snapshot_id_of("a") == snapshot_id_of("a") != snapshot_id_of("b")


def test_snapshots_expire_together() -> None:
    limit = TABLE_SNAPSHOTS_MAX + TABLE_SNAPSHOTS_EXPIRED_AT_ONCE
    assert expired_count(with_snapshots(limit - 1)) == 0
    metadata = with_snapshots(limit)
    assert expired_count(metadata) == TABLE_SNAPSHOTS_EXPIRED_AT_ONCE
    left = without_oldest(metadata, TABLE_SNAPSHOTS_EXPIRED_AT_ONCE)
    assert [snapshot.snapshot_id for snapshot in left.snapshots] == list(
        range(TABLE_SNAPSHOTS_EXPIRED_AT_ONCE + 1, limit + 1)
    )
    assert [entry.snapshot_id for entry in left.snapshot_log] == [s.snapshot_id for s in left.snapshots]
    assert left.current() == metadata.current()


def test_properties_are_set_and_removed() -> None:
    before = with_snapshots(1)
    after = set_properties(before, {"a": "b", "gc.enabled": None, "not there": None}, now_ms=99)
    assert after.properties == {k: v for k, v in before.properties.items() if k != "gc.enabled"} | {"a": "b"}
    assert (after.last_updated_ms, after.snapshots) == (99, before.snapshots)
