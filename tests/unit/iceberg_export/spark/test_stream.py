"""A stream's positions, asked for in the order in which Spark asks."""

from collections.abc import Iterator
from typing import Any

import pytest

from iceberg_export.spark import manifests
from iceberg_export.spark.bounds import DataLoss
from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.lake import ForeignBucket, SparkLake
from iceberg_export.spark.options import OptionError, parse_options
from iceberg_export.spark.stream import SourceStream
from protocol.limits import SPARK_LOOKS_APART_SECONDS
from storage.memory_store import MemoryStore
from tests.support.lake.bucket_fixtures import MadeLake

Json = dict[str, Any]


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    bucket = Bucket(MemoryStore())
    yield bucket
    bucket.close()


@pytest.fixture
def made(bucket: Bucket) -> MadeLake:
    made = MadeLake(bucket.store)
    made.create("orders", 2)
    produce(bucket, made, 10, 20)
    return made


def produce(bucket: Bucket, made: MadeLake, *counts: int, topic: str = "orders") -> None:
    bucket.run(made.produce(topic, counts))
    bucket.run(made.publish())


def stream(bucket: Bucket, **given: str) -> SourceStream:
    defaults = {"path": "file:///made", "startingOffsets": "earliest"}
    if "subscribePattern" not in given:
        defaults["subscribe"] = "orders"
    return SourceStream(SparkLake(bucket), parse_options({**defaults, **given}, {}, is_stream=True), task_count=2)


def first_batch(query: SourceStream) -> tuple[Json, Json]:
    end = query.latest_offset()
    start = query.initial_offset()
    query.plan(start, end)
    return start, end


def offsets(position: Json) -> Json:
    return {name: value for name, value in position.items() if name != "@"}


def ranges(query: SourceStream, start: Json, end: Json) -> set[tuple[str, int, int, int]]:
    return {
        (each.topic, each.partition, each.first, each.end)
        for split in query.plan(start, end)
        for piece in split.pieces
        for each in piece.ranges
    }


def test_the_first_batch_goes_from_the_start_to_what_is_there(bucket: Bucket, made: MadeLake) -> None:
    query = stream(bucket)
    end = query.latest_offset()
    start = query.initial_offset()
    assert offsets(start) == {"orders": {"0": 0, "1": 0}}
    assert offsets(end) == {"orders": {"0": 10, "1": 20}}
    assert ranges(query, start, end) == {("orders", 0, 0, 10), ("orders", 1, 0, 20)}
    assert query.latest_offset() == end, "nothing is new, so the text is the same"
    produce(bucket, made, 1, 0)
    after = query.latest_offset()
    assert ranges(query, end, after) == {("orders", 0, 10, 11)}
    assert "from" not in after["@"]


def test_while_nothing_is_new_it_looks_now_and_then_and_decodes_nothing(
    bucket: Bucket, made: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = stream(bucket)
    _, end = first_batch(query)
    assert query.latest_offset() == end
    pauses: list[float] = []
    monkeypatch.setattr(bucket, "pause", pauses.append)
    monkeypatch.setattr(manifests, "decode_manifest", lambda content: pytest.fail("it is the same one"))
    assert query.latest_offset() == query.latest_offset() == end
    assert len(pauses) == 2
    assert all(0 < pause <= SPARK_LOOKS_APART_SECONDS for pause in pauses)


def test_a_batch_is_planned_by_the_manifest_that_told_its_end_and_by_a_newer_one_where_none_did(
    bucket: Bucket, made: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = stream(bucket)
    _, start = first_batch(query)
    produce(bucket, made, 2, 3)
    end = query.latest_offset()
    looks: list[str] = []
    get = bucket.get

    def look(key: str) -> bytes:
        looks.append(key)
        return get(key)

    monkeypatch.setattr(bucket, "get", look)
    wanted = {("orders", 0, 10, 12), ("orders", 1, 20, 23)}
    assert ranges(query, start, end) == wanted
    assert looks == []
    begun_again = stream(bucket)
    assert begun_again.plan(start, start) == []
    assert ranges(begun_again, start, end) == wanted
    assert len(looks) >= 2


def test_a_batch_whose_table_moved_on_since_its_end_was_told_is_planned_again(bucket: Bucket, made: MadeLake) -> None:
    query = stream(bucket)
    bucket.run(made.archive("orders"))
    bucket.run(made.publish())
    end = query.latest_offset()
    start = query.initial_offset()
    metadata_key = made.topics["orders"].metadata_key
    bucket.run(made.rewrite("orders"))
    bucket.run(made.publish())
    bucket.run(made.store.delete([metadata_key]))
    assert ranges(query, start, end) == {("orders", 0, 0, 10), ("orders", 1, 0, 20)}


def test_a_stream_from_the_latest_offset_brings_what_comes_then(bucket: Bucket, made: MadeLake) -> None:
    query = stream(bucket, startingOffsets="latest")
    start, end = first_batch(query)
    assert offsets(start) == offsets(end) == {"orders": {"0": 10, "1": 20}}
    produce(bucket, made, 0, 5)
    assert ranges(query, end, query.latest_offset()) == {("orders", 1, 20, 25)}


def test_the_cap_holds_from_the_first_batch_on_and_after_a_restart(bucket: Bucket, made: MadeLake) -> None:
    query = stream(bucket, maxOffsetsPerTrigger="15")
    _, end = first_batch(query)
    assert offsets(end) == {"orders": {"0": 5, "1": 10}}
    again = stream(bucket, maxOffsetsPerTrigger="9")
    assert again.plan(end, end) == []
    assert offsets(again.latest_offset()) == {"orders": {"0": 8, "1": 16}}


def batches_after(query: SourceStream, start: Json, offsets_max: int | None) -> list[Json]:
    """The ends of the batches of a query of Spark 4.2, which ends where nothing is new."""
    ends: list[Json] = []
    while (end := query.latest_offset_after(start, offsets_max)) != start:
        query.plan(start, end)
        ends.append(start := end)
    return ends


def test_a_query_that_ends_reads_all_that_was_there_in_several_batches_and_nothing_that_came_later(
    bucket: Bucket, made: MadeLake
) -> None:
    query = stream(bucket, subscribePattern="orders|later")
    query.end_at_what_is_there()
    start = query.initial_offset()
    made.topics["orders"].partitions += made.create("scratch", 1).partitions
    del made.topics["scratch"]
    made.create("later", 1)
    bucket.run(made.produce("later", [4]))
    produce(bucket, made, 5, 5, 5)
    ends = batches_after(query, start, 12)
    assert [offsets(end) for end in ends] == [
        {"orders": {"0": 4, "1": 8}},
        {"orders": {"0": 8, "1": 16}},
        {"orders": {"0": 10, "1": 20}},
    ]
    again = stream(bucket, subscribePattern="orders|later")
    again.end_at_what_is_there()
    assert [offsets(end) for end in batches_after(again, ends[-1], None)] == [
        {"later": {"0": 4}, "orders": {"0": 15, "1": 25, "2": 5}}
    ]


def test_a_query_that_ends_goes_on_in_the_middle(bucket: Bucket, made: MadeLake) -> None:
    query = stream(bucket)
    query.end_at_what_is_there()
    middle = query.latest_offset_after(query.initial_offset(), 12)
    again = stream(bucket)
    again.end_at_what_is_there()
    assert offsets(batches_after(again, middle, 12)[-1]) == {"orders": {"0": 10, "1": 20}}


def test_a_topic_that_is_created_again_while_a_query_ends_is_read_by_the_next_one(
    bucket: Bucket, made: MadeLake
) -> None:
    query = stream(bucket, failOnDataLoss="false")
    query.end_at_what_is_there()
    (end,) = batches_after(query, query.initial_offset(), None)
    made.create("orders", 1)
    produce(bucket, made, 12)
    assert [offsets(each) for each in batches_after(query, end, None)] == [{"orders": {"0": 0}}]
    again = stream(bucket, failOnDataLoss="false")
    assert offsets(again.latest_offset_after(end, None)) == {"orders": {"0": 12}}


def test_retention_behind_the_end_of_a_query_is_for_the_next_one_to_see(bucket: Bucket, made: MadeLake) -> None:
    query = stream(bucket)
    query.end_at_what_is_there()
    (end,) = batches_after(query, query.initial_offset(), None)
    produce(bucket, made, 30, 0)
    made.topics["orders"].partitions[0].log_start = 25
    bucket.run(made.publish())
    assert query.latest_offset_after(end, None) == end


def test_a_told_start_counts_and_not_what_was_planned(bucket: Bucket, made: MadeLake) -> None:
    query = stream(bucket)
    start = query.initial_offset()
    first = query.latest_offset_after(start, 15)
    query.plan(start, first)
    assert offsets(query.latest_offset_after(first, 3)) == {"orders": {"0": 6, "1": 12}}
    assert offsets(query.latest_offset_after(first, None)) == {"orders": {"0": 10, "1": 20}}
    assert query.latest_offset_after(start, 15) == first, "asked again, it is still the first batch"


def test_the_newest_offset_is_reported_whatever_the_limit(bucket: Bucket, made: MadeLake) -> None:
    query = stream(bucket)
    assert query.newest_offset() is None
    query.latest_offset_after(query.initial_offset(), 3)
    newest = query.newest_offset()
    assert newest is not None
    assert offsets(newest) == {"orders": {"0": 10, "1": 20}}


def test_a_first_batch_that_is_repeated_begins_where_it_began(bucket: Bucket, made: MadeLake) -> None:
    start, end = first_batch(stream(bucket, startingOffsets="latest"))
    produce(bucket, made, 100, 100)
    again = stream(bucket, startingOffsets="latest")
    again.plan(end, end)
    assert again.initial_offset() == start


def test_new_partitions_and_topics_are_read_from_their_beginning(bucket: Bucket, made: MadeLake) -> None:
    query = stream(bucket, subscribePattern="orders|later", startingOffsets="latest")
    _, end = first_batch(query)
    made.topics["orders"].partitions += made.create("scratch", 1).partitions
    del made.topics["scratch"]
    made.create("later", 1)
    bucket.run(made.produce("later", [4]))
    produce(bucket, made, 0, 0, 3)
    assert ranges(query, end, query.latest_offset()) == {("orders", 2, 0, 3), ("later", 0, 0, 4)}


def test_a_topic_that_was_created_again_is_a_loss_and_begins_again(bucket: Bucket, made: MadeLake) -> None:
    _, end = first_batch(stream(bucket))
    made.create("orders", 1)
    produce(bucket, made, 12)
    strict = stream(bucket)
    strict.plan(end, end)
    with pytest.raises(DataLoss, match="orders-1 do not exist any more"):
        strict.latest_offset()
    lenient = stream(bucket, failOnDataLoss="false")
    lenient.plan(end, end)
    assert ranges(lenient, end, lenient.latest_offset()) == {("orders", 0, 0, 12)}


def test_a_topic_that_went_is_a_loss(bucket: Bucket, made: MadeLake) -> None:
    query = stream(bucket)
    _, end = first_batch(query)
    del made.topics["orders"]
    bucket.run(made.publish())
    with pytest.raises(DataLoss, match="orders-0, orders-1 do not exist any more"):
        query.latest_offset()
    lenient = stream(bucket, failOnDataLoss="false")
    lenient.plan(end, end)
    after = lenient.latest_offset()
    assert offsets(after) == {}
    assert lenient.plan(end, after) == []


def test_retention_that_overtook_the_stream_is_a_loss_or_passed_over(bucket: Bucket, made: MadeLake) -> None:
    _, end = first_batch(stream(bucket))
    produce(bucket, made, 30, 0)
    made.topics["orders"].partitions[0].log_start = 25
    bucket.run(made.publish())
    strict = stream(bucket)
    strict.plan(end, end)
    with pytest.raises(DataLoss, match="orders-0 now begins at offset 25"):
        strict.plan(end, strict.latest_offset())
    lenient = stream(bucket, failOnDataLoss="false", maxOffsetsPerTrigger="10")
    lenient.plan(end, end)
    assert ranges(lenient, end, lenient.latest_offset()) == {("orders", 0, 25, 35)}


def test_a_recovered_cluster_is_a_loss_and_another_ones_bucket_an_error(bucket: Bucket, made: MadeLake) -> None:
    _, end = first_batch(stream(bucket))
    made.incarnation = 2
    bucket.run(made.publish())
    query = stream(bucket)
    query.plan(end, end)
    with pytest.raises(DataLoss, match="recovered from its bucket"):
        query.latest_offset()
    lenient = stream(bucket, failOnDataLoss="false")
    lenient.plan(end, end)
    assert lenient.latest_offset()["@"]["incarnation"] == 2
    made.cluster_id = "other"
    bucket.run(made.publish())
    foreign = stream(bucket, failOnDataLoss="false")
    foreign.plan(end, end)
    with pytest.raises(ForeignBucket, match="checkpoint is of cluster made-cluster"):
        foreign.latest_offset()


def test_a_bucket_that_became_another_clusters_is_refused_however_often_it_is_asked(
    bucket: Bucket, made: MadeLake
) -> None:
    query = stream(bucket)
    first_batch(query)
    made.cluster_id = "other"
    bucket.run(made.publish())
    for _ in range(3):
        with pytest.raises(ForeignBucket, match="belonged to cluster made-cluster"):
            query.latest_offset()


def test_a_manifest_from_before_is_not_gone_back_to(bucket: Bucket, made: MadeLake) -> None:
    query = stream(bucket)
    _, end = first_batch(query)
    made.position = 0
    made.topics["orders"].partitions[0].end = 3
    made.topics["orders"].partitions[0].chunks = []
    bucket.run(made.publish())
    assert query.latest_offset() == end


def test_starting_offsets_name_every_partition_and_topics_exist(bucket: Bucket, made: MadeLake) -> None:
    with pytest.raises(OptionError, match=r"Named: orders-0\. Read: orders-0, orders-1"):
        stream(bucket, startingOffsets='{"orders": {"0": 3}}').latest_offset()
    query = stream(bucket, startingOffsets='{"orders": {"0": 3, "1": -1}}')
    query.latest_offset()
    assert offsets(query.initial_offset()) == {"orders": {"0": 3, "1": 20}}
    with pytest.raises(DataLoss, match="the query reads from 99"):
        stream(bucket, startingOffsets='{"orders": {"0": 99, "1": -1}}').latest_offset()
    with pytest.raises(OptionError, match="no topic absent"):
        stream(bucket, subscribe="absent").latest_offset()


def test_a_bucket_without_a_manifest_is_named(bucket: Bucket) -> None:
    with pytest.raises(OptionError, match="no tail manifest"):
        stream(bucket).latest_offset()
