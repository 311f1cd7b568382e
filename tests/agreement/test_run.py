"""A small run of `make agreement`: everything agrees, and it would be told if it did not."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agreement.report import VIEWS, as_text
from tests.agreement.run import Run, RunSettings
from tests.support.processes import provided
from tests.support.services.local_services import PENSTOCK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_view_agrees_though_an_agent_is_killed_under_load(spark: "SparkSession", tmp_path: Path) -> None:
    from iceberg_export.spark.source import register

    provided(PENSTOCK)
    register(spark)
    settings = RunSettings(
        folder=tmp_path,
        topics=3,
        partitions=2,
        seconds=30,
        seed=1,
        processes=1,
        archive_interval_s=5,
        tail_seconds=3,
    )
    report = Run(settings=settings, spark=spark).run()
    text = as_text(report)
    assert report.is_well, text
    assert text.endswith(f"{VIEWS} agree record for record")
    figures = report.figures
    assert figures["agents killed"] >= settings.kills_min
    assert figures["records"] > figures["records in the tail"] > 0
    assert min(figures["committed"], figures["aborted"], figures["data files"], figures["batches of the stream"]) > 0
    assert report.freshness is not None
    assert report.freshness.stream["kills"].count > 0
