"""What the tail manifest of a running agent says, for tests that wait until it says more."""

from iceberg_export.spark.lake import SparkLake
from iceberg_export.spark.options import OptionError
from iceberg_export.tail.manifest import TailTopic


def topic_in_manifest(lake: SparkLake, name: str) -> TailTopic | None:
    """None for a topic that is not there yet, also where no agent has written a manifest yet."""
    try:
        return lake.manifest().topic(name)
    except OptionError:
        return None
