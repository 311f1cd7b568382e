"""Sequences of what people do with frames, drawn: `format("penstock")` answers as Spark's Kafka source does."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.frames.drawing import Ask, Load, Query, Stream, draw_steps
from tests.frames.playing import OPTIONS, World, tiny_queries
from tests.services import PenstockFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(1, 5), marks=pytest.mark.timeout(600)),
        pytest.param(range(5, 100), marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_frames_answer_as_those_of_the_kafka_source(
    spark: "SparkSession", penstock: PenstockFactory, tmp_path: Path, seeds: range
) -> None:
    from iceberg_export.spark.source import register

    register(spark)
    world = World(broker=penstock(options=OPTIONS), session=spark, folder=tmp_path)
    with tiny_queries(spark):
        for seed in seeds:
            world.play(seed)
    # What both refuse is compared, too, and must not be all there is.
    assert world.tally.failures * 4 < world.tally.answers
    assert world.tally.rows > 5 * len(seeds)
