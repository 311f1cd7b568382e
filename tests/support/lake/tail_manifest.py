"""What the tail manifest of a running agent says, for tests that wait until it says more."""

import json
import urllib.request

from iceberg_export.spark.lake import SparkLake
from iceberg_export.spark.options import OptionError
from iceberg_export.tail.manifest import TailTopic, decode_manifest
from storage.refs import TAIL_KEY
from tests.support.services.local_services import Penstock


def topic_in_manifest(lake: SparkLake, name: str) -> TailTopic | None:
    """None for a topic that is not there yet, also where no agent has written a manifest yet."""
    try:
        return lake.manifest().topic(name)
    except OptionError:
        return None


def is_table_in_manifest(broker: Penstock, name: str) -> bool:
    """Whether the manifest names the table as it is now: the first one comes a second or two after an agent's start."""
    with urllib.request.urlopen(f"http://{broker.http}/api/lake/{name}", timeout=30) as answer:
        metadata_key = json.loads(answer.read())["metadata"]
    try:
        topic = decode_manifest((broker.data / "store" / TAIL_KEY).read_bytes()).topic(name)
    except FileNotFoundError:
        return False
    return topic is not None and topic.metadata_key == metadata_key
