"""How far rows can be counted by what snapshots say."""

import json

from iceberg_export.jobs.coverage import LogBounds
from iceberg_export.jobs.examine import OffsetSpan
from iceberg_export.jobs.summaries import snapshot_records, wrong_counts
from iceberg_export.tables.metadata import Snapshot

LOG = {0: LogBounds(0, 20), 1: LogBounds(0, 5)}


def snapshot(number: int, records: int, **summary: str) -> Snapshot:
    told = {"added-records": str(records), **{name.replace("_", "."): value for name, value in summary.items()}}
    return Snapshot(
        snapshot_id=number, sequence_number=number, timestamp_ms=1, summary=told, manifest_list="m", schema_id=0
    )


def offsets(**partitions: list[int]) -> str:
    return json.dumps({name.removeprefix("p"): ends for name, ends in partitions.items()})


FIRST = snapshot(1, 9, penstock_offsets=offsets(p0=[0, 10]))
SECOND = snapshot(2, 14, penstock_offsets=offsets(p0=[10, 20], p1=[0, 5]))


def test_all_is_counted_where_every_snapshot_is_kept() -> None:
    commits, not_counted = snapshot_records([FIRST, SECOND, snapshot(3, 9)], LOG)
    assert not_counted == []
    assert [one.spans for one in commits] == [(OffsetSpan(0, 0, 10),), (OffsetSpan(0, 10, 20), OffsetSpan(1, 0, 5))]
    assert list(wrong_counts(commits, [9, 10, 4])) == []


def test_a_count_that_is_another_one() -> None:
    commits, _ = snapshot_records([FIRST, SECOND], LOG)
    (found,) = wrong_counts(commits, [8, 10, 4])
    assert (found.partition, found.offset) == (0, 0)
    assert found.what == "snapshot 1 brought 9 records of offsets that are 8 rows now"
    (found,) = wrong_counts(commits, [9, 10, 5])
    assert found.line().startswith(
        "the table: snapshot 2 brought 14 records of offsets that are 15 rows now; see docs/"
    )


def test_what_expired_snapshots_brought_is_reported() -> None:
    commits, (told,) = snapshot_records([SECOND], LOG)
    assert len(commits) == 1
    assert told.startswith("whether all records of 10 archived offsets in 1 partitions exist")


def test_nothing_is_counted_of_what_was_dropped_or_is_not_named() -> None:
    commits, told = snapshot_records([FIRST], {0: LogBounds(5, 10)})
    assert commits == []
    assert told[1].startswith("the counts of 1 snapshots: some of their records")
    dropping = snapshot(1, 9, penstock_offsets=offsets(p0=[0, 10]))
    dropping.summary["deleted-data-files"] = "1"
    assert snapshot_records([dropping], LOG)[0] == []
    _, told = snapshot_records([snapshot(1, 9, penstock_offsets_omitted="5000")], {0: LogBounds(0, 0)})
    assert told == ["the counts of 1 snapshots: they have too many partitions to list their offsets"]
