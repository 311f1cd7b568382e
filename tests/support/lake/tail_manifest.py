"""What the tail manifest of a running agent says, for tests that wait until it says more."""

import json
import urllib.request

from iceberg_export.spark.lake import SparkLake
from iceberg_export.spark.options import OptionError
from iceberg_export.tail.manifest import (
    NO_KEY,
    TailChunk,
    TailChunks,
    TailManifest,
    TailPartition,
    TailTopic,
    decode_manifest,
)
from protocol.types import (
    NO_TIMESTAMP,
    Milliseconds,
    ObjectNumber,
    Offset,
    Position,
    ProducerId,
    SessionId,
    TopicId,
)
from storage.refs import TAIL_KEY, intake_key
from tests.support.services.local_services import Penstock
from txn.isolation import AbortedExtent


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


KEYS = [intake_key(SessionId(5), ObjectNumber(number)) for number in range(3)]


def chunk(first: int, end: int, key: str = KEYS[0], append_time_ms: int = NO_TIMESTAMP) -> TailChunk:
    return TailChunk(
        offset_first=Offset(first),
        offset_end=Offset(end),
        object_key=key,
        byte_first=0 if key == NO_KEY else first * 100,
        byte_count=0 if key == NO_KEY else (end - first) * 100,
        append_time_ms=Milliseconds(append_time_ms),
    )


WITH_A_TAIL = TailPartition(
    log_start=Offset(2),
    archived_end=Offset(10),
    last_stable=Offset(25),
    chunks=TailChunks.of([chunk(10, 20), chunk(20, 21, NO_KEY), chunk(21, 30, KEYS[1], append_time_ms=7)]),
    aborted=(AbortedExtent(ProducerId(3), Offset(12), Offset(20)),),
)
ARCHIVED = TailPartition(log_start=Offset(0), archived_end=Offset(4), last_stable=Offset(4))
MANIFEST = TailManifest(
    cluster_id="c",
    incarnation=3,
    position=Position(77),
    written_ms=Milliseconds(1_000),
    topics=(
        TailTopic(name="t", topic_id=TopicId(bytes(16)), metadata_key="lake/t/m", partitions=(WITH_A_TAIL, ARCHIVED)),
        TailTopic(
            name="u",
            topic_id=TopicId(bytes([1] * 16)),
            metadata_key=NO_KEY,
            partitions=(
                TailPartition(
                    log_start=Offset(0),
                    archived_end=Offset(0),
                    last_stable=Offset(9),
                    chunks=TailChunks.of([chunk(0, 5, KEYS[1]), chunk(5, 9, KEYS[2])]),
                ),
            ),
        ),
    ),
)
