"""Sequences of what people do with frames, drawn: `format("penstock")` answers as Spark's Kafka source does."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.lake import SparkLake
from storage.memory_store import MemoryStore
from tests.frames.drawing import Ask, Load, Query, Stream, draw_steps
from tests.frames.playing import OPTIONS, World, tiny_queries
from tests.support.lake.bucket_fixtures import MadeLake
from tests.support.lake.tail_manifest import topic_in_manifest
from tests.support.services.local_services import PenstockFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOUND_FAULTS = (16, 35, 170)
"""Seeds: of starts behind their ends that were not refused, and of an archive that holds what was aborted alone."""


def test_the_sequences_of_a_seed_are_the_same_and_hold_every_kind_of_step() -> None:
    assert draw_steps(7) == draw_steps(7)
    drawn = [step for seed in range(100) for step in draw_steps(seed)]
    assert {step.how for step in drawn if isinstance(step, Ask)} == {"count", "rows", "new rows", "first", "groups"}
    assert any(isinstance(step, Stream) for step in drawn)
    assert any(isinstance(step, Query) and step.left == step.right for step in drawn)
    options = {name for step in drawn if isinstance(step, Load) for name in step.options}
    assert options >= {
        "assign",
        "subscribe",
        "subscribePattern",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
    }


def test_a_manifest_that_is_not_written_yet_is_waited_for() -> None:
    bucket = Bucket(MemoryStore())
    try:
        made, read = MadeLake(bucket.store), SparkLake(bucket)
        assert topic_in_manifest(read, "orders") is None
        bucket.run(made.publish())
        assert topic_in_manifest(read, "orders") is None
        made.create("orders", 2)
        bucket.run(made.publish())
        found = topic_in_manifest(read, "orders")
        assert found is not None
        assert len(found.partitions) == 2
    finally:
        bucket.close()


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param((1, *FOUND_FAULTS), marks=pytest.mark.timeout(300), id="few"),
        pytest.param(range(2, 100), marks=[pytest.mark.slow, pytest.mark.timeout(3600)], id="many"),
    ],
)
def test_frames_answer_as_those_of_the_kafka_source(
    spark: "SparkSession", penstock: PenstockFactory, tmp_path: Path, seeds: Sequence[int]
) -> None:
    from iceberg_export.spark.source import register

    register(spark)
    world = World(broker=penstock(options=OPTIONS), session=spark, folder=tmp_path)
    with tiny_queries(spark):
        for seed in seeds:
            world.play(seed)
    # What both refuse is compared, too, and must not be all there is.
    assert world.tally.failures * 2 < world.tally.answers
    assert world.tally.rows > 5 * len(seeds)
