"""A job without a broker reads what is not archived yet: the same records that a read_committed consumer gets."""

import os
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.lake import SparkLake
from iceberg_export.spark.planning import TailPiece
from iceberg_export.tail.manifest import TailPartition, TailTopic
from protocol.types import Offset
from storage.object_store import ObjectMissing
from tests.support.client_libraries.transactional_writer import COMMITTED, Found, Log, Writer
from tests.support.lake.tail_manifest import topic_in_manifest
from tests.support.lake.tail_reading import fresh_bucket, tail_rows, whole_tail
from tests.support.services.local_services import Minio, Penstock, PenstockFactory

TOPIC = "tail"
OPTIONS = {"archive-interval-s": "3600", "tail-interval-ms": "20"}
SECONDS_MAX = 60.0


def create(broker: Penstock) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(TOPIC, num_partitions=1)]).values():
        created.result(SECONDS_MAX)


def until(bucket: Bucket, is_so: Callable[[TailPartition], bool]) -> TailTopic:
    """The topic as the first manifest has it whose partition 0 is so."""
    lake = SparkLake(bucket)
    deadline = time.monotonic() + SECONDS_MAX
    topic: TailTopic | None = None
    while time.monotonic() < deadline:
        topic = topic_in_manifest(lake, TOPIC)
        if topic is not None and is_so(topic.partitions[0]):
            return topic
    raise AssertionError(f"the manifest does not come to it: {topic}")


def read(bucket: Bucket, piece: TailPiece) -> Found:
    return [(offset, (value or b"").decode()) for offset, _, value in tail_rows(bucket, piece)]


def shown(log: Log, first: Offset, end: Offset) -> Found:
    return [row for row in log.shown(COMMITTED, first) if row[0] < end]


def assert_read(bucket: Bucket, log: Log, topic: TailTopic) -> None:
    """Every end of the tail is what a consumer is shown of it."""
    partition = topic.partitions[0]
    for first in range(partition.archived_end, partition.readable_end):
        assert read(bucket, whole_tail(topic, first)) == shown(log, Offset(first), partition.readable_end)


@pytest.mark.parametrize(
    ("kind", "is_cleaned"),
    [
        ("embedded", False),
        pytest.param("s3", False, marks=pytest.mark.slow),
        # The garbage collector takes its time.
        pytest.param("embedded", True, marks=pytest.mark.slow),
        pytest.param("s3", True, marks=pytest.mark.slow),
    ],
)
def test_the_tail_is_what_read_committed_shows(
    penstock: PenstockFactory, request: pytest.FixtureRequest, kind: str, *, is_cleaned: bool
) -> None:
    store, env = None, dict(os.environ)
    if kind == "s3":
        minio: Minio = request.getfixturevalue("minio")
        store, env = f"s3://{minio.make_bucket(f'tail-reads-{is_cleaned}'.lower())}/data", dict(minio.settings)
    options = {**OPTIONS, "gc-min-age-s": "1" if is_cleaned else "3600"}
    broker = penstock(store=store, env=env, options=options)
    url = store or (broker.data / "store").as_uri()
    bucket = fresh_bucket(url, env)
    create(broker)
    writer = Writer(broker, TOPIC)
    writer.plain("a0", "a1")
    writer.begin(0)
    writer.write(0, "b0", "b1")
    writer.plain("a2")
    writer.abort(0)
    writer.begin(1)
    writer.write(1, "c0")
    writer.commit(1)
    topic = until(bucket, lambda partition: partition.readable_end == 8)
    partition = topic.partitions[0]
    assert (partition.log_start, partition.archived_end, partition.last_stable) == (0, 0, 8)
    assert len(shown(writer.log, Offset(0), Offset(8))) == 4
    assert_read(bucket, writer.log, topic)

    # A transaction is open: what is behind its first record is not shown, nor archived.
    writer.begin(1)
    writer.write(1, "d0")
    writer.plain("a3", "a4")
    early = whole_tail(topic)
    writer.archive()
    topic = until(bucket, lambda partition: partition.archived_end == 8)
    partition = topic.partitions[0]
    assert (partition.last_stable, partition.readable_end) == (8, 8)
    assert read(bucket, whole_tail(topic)) == []
    assert read(bucket, early) == shown(writer.log, Offset(0), Offset(8))
    if is_cleaned:
        _until_gone(early, lambda: fresh_bucket(url, env), shown(writer.log, Offset(0), Offset(8)))

    writer.commit(1)
    writer.begin(0)
    writer.write(0, "e0", "e1")
    writer.abort(0)
    writer.begin(0)
    writer.write(0, "f0")
    writer.plain("a5")
    topic = until(bucket, lambda partition: partition.last_stable == 15)
    partition = topic.partitions[0]
    assert partition.archived_end == 8
    assert_read(bucket, writer.log, topic)
    assert len(partition.aborted) == 1

    # Another life, which ends the transaction that was left open.
    broker.process.kill()
    assert_read(bucket, writer.log, topic)
    again = penstock(data=broker.data, store=store, env=env, options=options)
    second = Writer(again, TOPIC)
    second.log.committed += writer.log.committed
    second.plain("g0")
    topic = until(bucket, lambda partition: partition.readable_end == 19)
    partition = topic.partitions[0]
    assert (partition.archived_end, partition.last_stable) == (8, 19)
    assert_read(bucket, second.log, topic)
    bucket.close()


def _until_gone(piece: TailPiece, opened: Callable[[], Bucket], rows: Found) -> None:
    """What was planned before the archive gives the same rows until it is deleted, and then an error."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        bucket = opened()  # one that knew the object could read it until its file is used again
        try:
            assert read(bucket, piece) == rows
        except ObjectMissing:
            return
        finally:
            bucket.close()
    raise AssertionError("the intake that was archived is not deleted")
