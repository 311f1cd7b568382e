"""Batches of a made bucket, planned and read as a Spark task does: every row once, wherever it lies."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from iceberg_export.rows.kernels import KERNELS
from iceberg_export.spark.bounds import DataLoss, LossReporter, TailIncomplete, plan_ranges, resolve_batch
from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.columns import TIME_US_FIRST
from iceberg_export.spark.lake import SparkLake, TableMissing
from iceberg_export.spark.options import OptionError, parse_options
from iceberg_export.spark.planning import FilePiece, OffsetRange, Piece, divide
from iceberg_export.spark.rows import Selection, read_split
from iceberg_export.tail.manifest import NO_KEY, encode_manifest
from protocol.records import records
from protocol.records import reference as record_reference
from storage.memory_store import MemoryStore
from storage.object_store import ObjectDamaged
from storage.refs import TAIL_KEY
from tests.support.lake.bucket_fixtures import NOON, MadeLake
from tests.support.records.plain_records import Record

Made = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    bucket = Bucket(MemoryStore())
    yield bucket
    bucket.close()


@pytest.fixture
def made(bucket: Bucket) -> MadeLake:
    return MadeLake(bucket.store)


def read(
    bucket: Bucket,
    *,
    tasks: int = 3,
    before_reading: Callable[[], None] = lambda: None,
    between_batches: Callable[[], None] = lambda: None,
    offsets: dict[str, str] | None = None,
    **given: str,
) -> list[dict[str, Any]]:
    """The rows of a batch query, in order of topics, partitions and offsets."""
    options = parse_options(
        {"path": "file:///made", "includeHeaders": "true", **(offsets or {}), **given}, {}, is_stream=False
    )
    lake = SparkLake(bucket, is_archive_only=options.is_archive_only)
    losses = LossReporter(is_fatal=options.is_loss_fatal)
    ranges = resolve_batch(lake, options, losses)
    splits = divide(plan_ranges(lake, ranges, losses, manifest=lake.newest), tasks, is_count_exact=True)
    before_reading()
    selection = Selection(columns=options.columns)

    def plan_again(ranges: Sequence[OffsetRange]) -> list[Piece]:
        return plan_ranges(lake, ranges, losses)

    rows: list[dict[str, Any]] = []
    for split in splits:
        for batch in read_split(bucket, split, selection, plan_again):
            rows += batch.to_pylist()
            between_batches()
    if "partition" in options.columns:
        rows.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
    return rows


def expected(rows: Sequence[tuple[int, Record]], topic: str = "orders") -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestampType": 0,
            "headers": [{"key": key.decode(), "value": value} for key, value in record.headers] or None,
        }
        for partition, record in rows
    ]


def without_time(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "timestamp"} for row in rows]


async def archive_and_tail(made: MadeLake) -> None:
    """Two archived files, aborted records and markers in both parts, and a tail in many objects."""
    made.create("orders", 3)
    await made.produce("orders", [400, 5, 0], objects=4)
    await made.produce_aborted("orders", 0, 30)
    await made.archive("orders")
    await made.produce("orders", [300, 200, 0], objects=3)
    await made.archive("orders")
    await made.produce("orders", [100, 300, 2], objects=5)
    await made.produce_aborted("orders", 1, 20)
    await made.produce("orders", [10, 10, 10])
    for partition in made.topics["orders"].partitions:
        for extent in partition.aborted:
            for offset in range(extent.offset_first, extent.marker):
                partition.rows.pop(offset, None)
    await made.publish()


def made_records(bucket: Bucket, made: MadeLake) -> None:
    bucket.run(archive_and_tail(made))


@pytest.mark.parametrize("tasks", [1, 2, 7, 40])
def test_every_committed_row_comes_once_however_many_tasks_share_them(
    bucket: Bucket, made: MadeLake, tasks: int
) -> None:
    made_records(bucket, made)
    rows = read(bucket, tasks=tasks, subscribe="orders")
    assert without_time(rows) == expected(made.visible("orders"))
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [
        record.timestamp for _, record in made.visible("orders")
    ]


def test_archived_records_that_were_all_aborted_need_no_table(bucket: Bucket, made: MadeLake) -> None:
    made.create("orders", 2)
    made.create("others", 1)
    bucket.run(made.produce_aborted("orders", 0, 30))
    bucket.run(made.archive("orders"))
    bucket.run(made.produce("others", [5]))
    bucket.run(made.archive("others"))
    bucket.run(made.publish())
    starting = {"startingTimestamp": str(NOON), "startingOffsetsByTimestampStrategy": "latest"}
    assert read(bucket, subscribe="orders") == read(bucket, subscribe="orders", offsets=starting) == []
    assert without_time(read(bucket, subscribe="others,orders")) == expected(made.visible("others"), "others")
    bucket.run(made.produce("orders", [0, 3]))
    bucket.run(made.publish())
    assert [(row["partition"], row["offset"]) for row in read(bucket, subscribe="orders")] == [(1, 0), (1, 1), (1, 2)]


def test_archived_records_without_a_table_are_not_left_out_in_silence(bucket: Bucket, made: MadeLake) -> None:
    made.create("orders", 1)
    bucket.run(made.produce("orders", [5]))
    bucket.run(made.archive("orders"))
    told = made.manifest()
    (topic,) = told.topics
    lost = replace(told, topics=(replace(topic, metadata_key=NO_KEY),))
    bucket.run(bucket.store.put(TAIL_KEY, [encode_manifest(lost)]))
    with pytest.raises(TableMissing, match="records of orders are archived, but its table has no commit"):
        read(bucket, subscribe="orders")


def test_what_lies_below_the_start_or_behind_the_last_stable_offset_is_not_shown(
    bucket: Bucket, made: MadeLake
) -> None:
    made_records(bucket, made)
    partition = made.topics["orders"].partitions[0]
    partition.log_start, partition.last_stable = 357, partition.end - 7
    bucket.run(made.publish())
    rows = read(bucket, subscribe="orders")
    assert without_time(rows) == expected(made.visible("orders"))
    assert min(row["offset"] for row in rows if row["partition"] == 0) == 357


def test_offsets_of_the_middle_are_those_rows_and_no_others(bucket: Bucket, made: MadeLake) -> None:
    made_records(bucket, made)
    rows = read(
        bucket,
        assign='{"orders": [0, 1]}',
        startingOffsets='{"orders": {"0": 390, "1": -2}}',
        endingOffsets='{"orders": {"0": 810, "1": 3}}',
    )
    wanted = [
        (partition, record)
        for partition, record in made.visible("orders")
        if (partition == 0 and 390 <= record.offset < 810) or (partition == 1 and record.offset < 3)
    ]
    assert without_time(rows) == expected(wanted)


def test_the_archive_alone_ends_where_the_table_does(bucket: Bucket, made: MadeLake) -> None:
    made_records(bucket, made)
    rows = read(bucket, subscribe="orders", read="archive")
    ends = [partition.archived_end for partition in made.topics["orders"].partitions]
    wanted = [(partition, record) for partition, record in made.visible("orders") if record.offset < ends[partition]]
    assert without_time(rows) == expected(wanted)


def test_only_the_columns_that_are_named_come_in_their_order(bucket: Bucket, made: MadeLake) -> None:
    made_records(bucket, made)
    rows = read(bucket, subscribe="orders", columns="topic, offset")
    assert {tuple(row) for row in rows} == {("topic", "offset")}
    assert sorted(row["offset"] for row in rows) == sorted(record.offset for _, record in made.visible("orders"))
    (topics,) = ({row["topic"] for row in read(bucket, subscribe="orders", columns="topic")},)
    assert topics == {"orders"}


def test_of_rows_that_are_late_enough_none_is_missing_and_no_other_comes(bucket: Bucket, made: MadeLake) -> None:
    """As a search for the first record at a time reads them, of files and of the tail."""
    made_records(bucket, made)
    lake = SparkLake(bucket)
    options = parse_options({"path": "file:///made", "subscribe": "orders"}, {}, is_stream=False)
    losses = LossReporter(is_fatal=True)
    ranges = resolve_batch(lake, options, losses)
    for late in (0, 380, 500, 720, 10_000):
        since_us = (NOON + 1000 * late) * 1000
        pieces = plan_ranges(lake, ranges, losses, manifest=lake.newest, since_us=since_us)
        found: list[tuple[int, int]] = []
        for split in divide(pieces, 3, is_count_exact=True):
            selection = Selection(columns=("partition", "offset"), since_us=since_us)
            for batch in read_split(bucket, split, selection, lambda _: []):
                found += [(row["partition"], row["offset"]) for row in batch.to_pylist()]
        assert sorted(found) == sorted(
            (partition, record.offset)
            for partition, record in made.visible("orders")
            if record.timestamp * 1000 >= since_us
        )


def test_starting_and_ending_times_are_the_first_rows_as_late(bucket: Bucket, made: MadeLake) -> None:
    made_records(bucket, made)
    rows = read(
        bucket,
        subscribe="orders",
        startingTimestamp=str(NOON + 404_000),
        endingTimestamp=str(NOON + 500_000),
        startingOffsetsByTimestampStrategy="latest",
    )
    wanted = [(p, r) for p, r in made.visible("orders") if p < 2 and NOON + 404_000 <= r.timestamp < NOON + 500_000]
    assert without_time(rows) == expected(wanted)
    with pytest.raises(OptionError, match="no record of orders-2 is as late"):
        read(bucket, subscribe="orders", startingTimestamp=str(NOON + 404_000))


def test_a_read_that_ends_before_it_starts_is_refused_where_both_were_given(bucket: Bucket, made: MadeLake) -> None:
    """As in the Kafka source, whether offsets or times say so, and where a time leads to the log's end, too; what is
    called the earliest or the latest is not compared."""
    made_records(bucket, made)
    one = {"assign": '{"orders": [0]}'}
    late, early = str(NOON + 404_000), str(NOON + 100_000)
    never = {"startingTimestamp": str(NOON * 2), "startingOffsetsByTimestampStrategy": "latest"}
    for given in (
        {**never, "endingTimestamp": early},
        {**never, "endingOffsets": '{"orders": {"0": 5}}'},
        {"startingTimestamp": late, "endingTimestamp": early},
        {"startingTimestamp": late, "endingOffsets": '{"orders": {"0": 5}}'},
        {"startingOffsets": '{"orders": {"0": 300}}', "endingTimestamp": early},
        {"startingOffsets": '{"orders": {"0": 300}}', "endingOffsets": '{"orders": {"0": 5}}'},
    ):
        with pytest.raises(OptionError, match=r"ending offset of orders-0 is .* before its starting offset"):
            read(bucket, offsets={**one, **given})
    for latest in ({}, {"endingOffsets": '{"orders": {"0": -1}}'}, {"endingTimestamp": str(NOON * 2)}):
        assert read(bucket, offsets={**one, **never, **latest}) == []


def test_a_task_whose_intake_was_archived_meanwhile_reads_the_same_rows(bucket: Bucket, made: MadeLake) -> None:
    made_records(bucket, made)

    def archive() -> None:
        bucket.run(made.archive("orders"))
        bucket.run(made.publish())

    rows = read(bucket, subscribe="orders", before_reading=archive)
    assert without_time(rows) == expected(made.visible("orders"))


@pytest.mark.parametrize("tasks", [1, 5])
def test_a_task_whose_objects_go_between_two_batches_goes_on_where_it_was(
    bucket: Bucket, made: MadeLake, tasks: int
) -> None:
    made_records(bucket, made)
    is_moved = False

    def move_everything() -> None:
        """After the first batch the tail is archived, and what was archived is in another file."""
        nonlocal is_moved
        if not is_moved:
            is_moved = True
            bucket.run(made.archive("orders"))
            bucket.run(made.rewrite("orders"))
            bucket.run(made.publish())

    rows = read(bucket, tasks=tasks, subscribe="orders", between_batches=move_everything)
    assert is_moved
    assert without_time(rows) == expected(made.visible("orders"))


def test_data_files_that_were_rewritten_before_they_are_read_are_planned_again(bucket: Bucket, made: MadeLake) -> None:
    made_records(bucket, made)

    def rewrite() -> None:
        bucket.run(made.rewrite("orders"))
        bucket.run(made.publish())

    rows = read(bucket, subscribe="orders", before_reading=rewrite)
    assert without_time(rows) == expected(made.visible("orders"))


def test_a_missing_object_that_no_newer_manifest_replaces_is_an_error(bucket: Bucket, made: MadeLake) -> None:
    from storage.object_store import ObjectMissing

    made_records(bucket, made)

    async def lose() -> None:
        await made.store.delete([meta.key async for meta in made.store.list("intake/")])

    with pytest.raises(ObjectMissing):
        read(bucket, subscribe="orders", before_reading=lambda: bucket.run(lose()))


@pytest.mark.parametrize("prefix", ["intake/", "lake/"])
def test_damage_names_the_object_and_where_to_read_on(bucket: Bucket, made: MadeLake, prefix: str) -> None:
    """Spark shows the message at the end of a stack of its own."""
    made_records(bucket, made)

    async def damage() -> None:
        keys = [meta.key async for meta in made.store.list(prefix) if prefix == "intake/" or ".parquet" in meta.key]
        for key in keys:
            data = await made.store.get(key)
            await made.store.delete([key])
            await made.store.put(key, [bytes(byte ^ 0x10 for byte in data)])

    with pytest.raises(ObjectDamaged, match=rf'{prefix}.*: docs/operations/damage\.md, "A damaged file"$'):
        read(bucket, subscribe="orders", before_reading=lambda: bucket.run(damage()))


def test_retention_that_overtakes_a_task_is_a_loss(bucket: Bucket, made: MadeLake) -> None:
    made_records(bucket, made)

    def retain() -> None:
        bucket.run(made.archive("orders"))
        made.topics["orders"].partitions[0].log_start = made.topics["orders"].partitions[0].end - 4
        bucket.run(made.publish())

    with pytest.raises(DataLoss, match="orders-0 now begins at offset"):
        read(bucket, subscribe="orders", before_reading=retain)


def test_a_topic_that_is_not_there_is_named_and_a_pattern_may_match_none(bucket: Bucket, made: MadeLake) -> None:
    made_records(bucket, made)
    with pytest.raises(OptionError, match="no topic payments"):
        read(bucket, subscribe="orders,payments")
    with pytest.raises(OptionError, match="3 partitions, but no number 3"):
        read(bucket, assign='{"orders": [0, 3]}')
    assert read(bucket, subscribePattern="pay.*") == []


def test_offsets_that_the_log_does_not_hold_are_a_loss_or_passed_over(bucket: Bucket, made: MadeLake) -> None:
    made_records(bucket, made)
    made.topics["orders"].partitions[0].log_start = 100
    bucket.run(made.publish())
    offsets = {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": 5}}'}
    with pytest.raises(DataLoss, match="begins at offset 100, but the query reads from 5"):
        read(bucket, offsets=offsets)
    rows = read(bucket, failOnDataLoss="false", offsets=offsets)
    assert rows[0]["offset"] == 100
    with pytest.raises(DataLoss, match="ends at offset"):
        read(bucket, subscribe="orders", endingOffsets='{"orders": {"0": 99999, "1": -1, "2": -1}}')


def test_what_the_manifest_has_no_room_for_is_not_left_out_in_silence(bucket: Bucket, made: MadeLake) -> None:
    made_records(bucket, made)
    partition = made.topics["orders"].partitions[0]
    end = partition.end
    partition.last_stable = end + 10
    bucket.run(made.publish())
    for beyond in (
        {},
        {"endingOffsets": '{"orders": {"0": -1}}'},
        {"endingOffsets": f'{{"orders": {{"0": {end + 1}}}}}'},
        {"startingTimestamp": f"{NOON * 2}"},
    ):
        with pytest.raises(TailIncomplete, match=rf"committed up to offset {end + 10}.*`penstock archive \w+ --wait`"):
            read(bucket, assign='{"orders": [0]}', offsets=beyond)
    whole = read(bucket, assign='{"orders": [0]}', endingOffsets=f'{{"orders": {{"0": {end}}}}}')
    assert whole
    assert len(read(bucket, assign='{"orders": [0]}', read="archive")) <= len(whole)


def test_row_groups_that_cannot_hold_wanted_rows_are_not_fetched(bucket: Bucket, made: MadeLake) -> None:
    from iceberg_export.spark.row_groups import begin_end, read_footer_of, selected_groups

    made_records(bucket, made)
    lake = SparkLake(bucket)
    options = parse_options(
        {"path": "file:///made", "assign": '{"orders": [0]}', "endingOffsets": '{"orders": {"0": 10}}'},
        {},
        is_stream=False,
    )
    losses = LossReporter(is_fatal=True)
    (split,) = divide(plan_ranges(lake, resolve_batch(lake, options, losses), losses), 1)
    piece = split.pieces[0]
    assert isinstance(piece, FilePiece)
    footer = read_footer_of(bucket, piece, begin_end(bucket, piece).result())
    groups = selected_groups(footer, piece.ranges, TIME_US_FIRST)
    assert len(footer.row_groups) > 3
    assert len(groups) == 1


async def many_topics(made: MadeLake) -> None:
    """Of each a small file and a tail, whose chunks lie in the same objects."""
    for number in range(6):
        made.create(f"t{number}", 2)
        await made.produce(f"t{number}", [7, 5])
        await made.archive(f"t{number}")
    await made.produce_together([f"t{number}" for number in range(6)], [9, 4], objects=3)
    await made.produce_aborted("t2", 1, 3)
    for offset in range(9, 12):
        made.topics["t2"].partitions[1].rows.pop(offset, None)
    await made.publish()


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_topics_share_objects_requests_and_batches(bucket: Bucket, made: MadeLake, tasks: int) -> None:
    bucket.run(many_topics(made))
    rows = read(bucket, tasks=tasks, subscribePattern="t.*")
    assert without_time(rows) == [
        row for number in range(6) for row in expected(made.visible(f"t{number}"), f"t{number}")
    ]


def test_an_object_is_asked_once_for_the_chunks_of_all_topics(
    bucket: Bucket, made: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.run(many_topics(made))
    keys: list[str] = []
    begin = bucket.begin_range

    def begin_range(key: str, byte_first: int, byte_count: int) -> Any:  # noqa: ANN401
        keys.append(key)
        return begin(key, byte_first, byte_count)

    batches: list[int] = []
    read(
        bucket,
        tasks=1,
        subscribePattern="t.*",
        before_reading=lambda: monkeypatch.setattr(bucket, "begin_range", begin_range),
        between_batches=lambda: batches.append(1),
    )
    assert len(keys) == len(set(keys)) == 6 + 3 + 1, "files whole, and each intake object"
    assert len(batches) <= 2, "rows of files, and of the tail"


def test_objects_that_go_while_small_files_are_on_their_way_are_planned_again(bucket: Bucket, made: MadeLake) -> None:
    bucket.run(many_topics(made))

    def move() -> None:
        for number in range(0, 6, 2):
            bucket.run(made.archive(f"t{number}", deletes_intake=False))
            bucket.run(made.rewrite(f"t{number}"))
        bucket.run(made.publish())

    rows = read(bucket, tasks=2, subscribePattern="t.*", before_reading=move)
    assert without_time(rows) == [
        row for number in range(6) for row in expected(made.visible(f"t{number}"), f"t{number}")
    ]


def test_what_is_read_of_the_tail_counts_towards_loading_the_kernels(
    bucket: Bucket, made: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.run(many_topics(made))
    counted: list[int] = []
    monkeypatch.setattr(records, "_workers", [record_reference])
    monkeypatch.setattr(records, "_observers", [])
    monkeypatch.setattr(KERNELS, "count", counted.append)
    read(bucket, tasks=1, subscribePattern="t.*")
    assert counted
    assert min(counted) > 0
