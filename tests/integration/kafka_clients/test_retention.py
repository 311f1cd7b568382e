"""Records that are deleted or grow too old go everywhere at once, and so do topics, whichever agent is asked.

Rule: real agents and real clients; where it matters which agent answers, it is asked over a connection of its own.
"""

import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.errors import ErrorCode
from tests.compat.protocol_diff.batches import batch
from tests.compat.protocol_diff.connection import Connection
from tests.compat.protocol_diff.messages import kafka_definitions
from tests.support.client_libraries.confluent import ConfluentClient
from tests.support.client_libraries.deleted_records import delete_records
from tests.support.client_libraries.interface import Client
from tests.support.client_libraries.kafka_python import KafkaPythonClient
from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.lake.archiving import AT_ONCE, archive_by_http
from tests.support.lake.bucket_listing import INTAKE, ListedBucket, local_bucket, minio_bucket
from tests.support.services.local_services import Minio, PenstockFactory

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # this library reads its own files in a deprecated way
    from kafka.admin import KafkaAdminClient
    from kafka.structs import TopicPartition as KafkaPythonPartition

SECONDS_MAX = 60.0
HOUR_MS = 3_600_000
OFTEN = {"log.retention.check.interval.ms": "50"}
LATEST, EARLIEST = -1, -2


class Asked:
    """One agent, asked directly: no client chooses another for it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, topic: str, partitions: int = 1) -> uuid.UUID:
        """The new topic's id."""
        wanted = {"Name": topic, "NumPartitions": partitions, "ReplicationFactor": 1, "Configs": []}
        (told,) = self._connection.call("CreateTopics", 7, {"Topics": [wanted], "timeoutMs": 10_000})["Topics"]
        assert told["ErrorCode"] == 0
        topic_id: uuid.UUID = told["TopicId"]
        return topic_id

    def delete_records(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        """The error code and the low watermark."""
        row = {"PartitionIndex": partition, "Offset": offset}
        body = {"Topics": [{"Name": topic, "Partitions": [row]}], "TimeoutMs": 10_000}
        (told,) = self._connection.call("DeleteRecords", 2, body)["Topics"]
        return told["Partitions"][0]["ErrorCode"], told["Partitions"][0]["LowWatermark"]

    def offset(self, topic: str, timestamp: int, partition: int = 0) -> int:
        row = {"PartitionIndex": partition, "CurrentLeaderEpoch": -1, "Timestamp": timestamp}
        body = {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{"Name": topic, "Partitions": [row]}]}
        (told,) = self._connection.call("ListOffsets", 7, body)["Topics"]
        assert told["Partitions"][0]["ErrorCode"] == 0
        offset: int = told["Partitions"][0]["Offset"]
        return offset

    def fetch(self, topic_id: uuid.UUID, offset: int, partition: int = 0) -> dict[str, Any]:
        """What the partition is answered, by topic id."""
        row = {"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20, "LogStartOffset": -1}
        body = {
            "MaxWaitMs": 10,
            "MinBytes": 1,
            "MaxBytes": 1 << 20,
            "SessionEpoch": -1,
            "Topics": [{"TopicId": topic_id, "Partitions": [row]}],
        }
        answer: dict[str, Any] = self._connection.call("Fetch", 13, body)["Responses"][0]["Partitions"][0]
        return answer

    def produce(self, topic: uuid.UUID | str, values: Sequence[bytes | None]) -> dict[str, Any]:
        """What partition 0 is answered, by topic id or by name; the records are of now."""
        where = {"Name": topic} if isinstance(topic, str) else {"TopicId": topic}
        records = batch(list(values), timestamp=int(time.time() * 1000))
        body = {
            "TransactionalId": None,
            "Acks": -1,
            "TimeoutMs": 10_000,
            "TopicData": [{**where, "PartitionData": [{"Index": 0, "Records": records}]}],
        }
        version = 12 if isinstance(topic, str) else 13
        answer: dict[str, Any] = self._connection.call("Produce", version, body)["Responses"][0]["PartitionResponses"][
            0
        ]
        return answer


@contextmanager
def asked(agents: Sequence[ClusterAgent], jars: Path) -> Iterator[list[Asked]]:
    definitions = kafka_definitions(jars)
    connections = [Connection(agent.bootstrap, definitions, SECONDS_MAX) for agent in agents]
    try:
        yield [Asked(connection) for connection in connections]
    finally:
        for connection in connections:
            connection.close()


def create(bootstrap: str, topic: str, **configs: str) -> None:
    """One partition. Underscores in the names of `configs` stand for dots."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(SECONDS_MAX)


def produce(bootstrap: str, topic: str, times_ms: Sequence[int], partition: int = 0) -> list[KafkaError | None]:
    """One record, and one batch, per time; returns what became of each."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "retries": 0})
    outcomes: list[KafkaError | None] = []
    for time_ms in times_ms:
        producer.produce(
            topic, b"v", partition=partition, timestamp=time_ms, on_delivery=lambda error, _: outcomes.append(error)
        )
        assert producer.flush(SECONDS_MAX) == 0
    return outcomes


def three(cluster: Cluster, **options: str) -> list[ClusterAgent]:
    """Agents that look for old records often."""
    names = {name.replace("_", "-"): value for name, value in options.items()}
    return [
        cluster.start(name, settings=OFTEN, options={"flush-interval-ms": "0", **names}) for name in ("a", "b", "c")
    ]


def bucket_of(cluster: Cluster, minio: Minio) -> ListedBucket:
    return minio_bucket(minio, cluster.store.removeprefix("s3://").partition("/")[0])


def intake_of(bucket: ListedBucket) -> set[str]:
    return set(filter(INTAKE.search, bucket.keys()))


def lake_of(bucket: ListedBucket, topic: str) -> set[str]:
    """The topic's data files."""
    return set(filter(lambda key: f"lake/{topic}-" in key and key.endswith(".parquet"), bucket.keys()))


@pytest.mark.slow  # in simulated worlds, too
def test_records_deleted_through_one_agent_are_gone_through_every_other(
    clusters: ClusterFactory, kafka_jars: Path
) -> None:
    agents = three(clusters())
    now_ms = int(time.time() * 1000)
    with asked(agents, kafka_jars) as each:
        topic_id = each[0].create("t", 3)
        for partition in range(3):
            assert produce(agents[partition].bootstrap, "t", [now_ms] * 6, partition) == [None] * 6
        for partition, agent in enumerate(each):
            assert agent.delete_records("t", partition, 7) == (ErrorCode.offset_out_of_range, -1)
            assert agent.delete_records("t", partition, 3) == (0, 3)
        for agent in each:
            for partition in range(3):
                assert (agent.offset("t", EARLIEST, partition), agent.offset("t", LATEST, partition)) == (3, 6)
                below, at = agent.fetch(topic_id, 2, partition), agent.fetch(topic_id, 3, partition)
                assert below["ErrorCode"] == ErrorCode.offset_out_of_range
                assert (at["ErrorCode"], at["LogStartOffset"], at["HighWatermark"]) == (0, 3, 6)
                assert at["Records"]
        assert each[1].delete_records("t", 0, -1) == (0, 6)
        assert each[2].produce(topic_id, [b"next"])["LogStartOffset"] == 6
        assert each[0].fetch(topic_id, 6)["HighWatermark"] == 7

        places = [("t", partition) for partition in range(3)]
        assert delete_records(agents[0].bootstrap, {("t", 1): 5, ("t", 2): 5}) == {("t", 1): 5, ("t", 2): 5}
        with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
            delete_records(agents[1].bootstrap, {("t", 1): 99})
        kafka_python = KafkaAdminClient(bootstrap_servers=agents[2].bootstrap)
        kafka_python.delete_records({KafkaPythonPartition("t", 1): -1, KafkaPythonPartition("t", 2): 6})
        kafka_python.close()
        clients: tuple[Client, ...] = (ConfluentClient(), KafkaPythonClient())
        for client in clients:
            ends = client.ends(agents[0].bootstrap, places)
            assert ends == {("t", 0): (6, 7), ("t", 1): (6, 6), ("t", 2): (6, 6)}


def has_dropped(agent: Asked) -> bool:
    return agent.offset("aged", EARLIEST) == 6 and agent.offset("sized", EARLIEST) == 1


def test_what_is_too_old_or_too_much_goes_and_so_do_its_objects(
    clusters: ClusterFactory, minio: Minio, kafka_jars: Path
) -> None:
    cluster = clusters()
    agents = three(cluster, gc_min_age_s="1", archive_interval_s="3600")
    bucket, now_ms = bucket_of(cluster, minio), int(time.time() * 1000)
    for topic, configs in {
        "aged": {"retention_ms": str(HOUR_MS)},
        "sized": {"retention_ms": "-1", "retention_bytes": "136"},
        "kept": {"retention_ms": "-1"},
        "compacted": {"cleanup_policy": "compact", "retention_ms": "1"},
    }.items():
        create(agents[0].bootstrap, topic, **configs)
    with asked(agents, kafka_jars) as each:
        for topic in ("sized", "kept"):
            for agent in each:
                assert agent.produce(topic, [b"v"])["ErrorCode"] == 0
        for one in agents:
            assert produce(one.bootstrap, "aged", [now_ms - 2 * HOUR_MS] * 2) == [None] * 2
        assert produce(agents[0].bootstrap, "aged", [now_ms]) == [None]
        # A batch of one such record has 68 bytes, so that two of three stay.
        wanted = {"aged": (6, 7), "sized": (1, 3), "kept": (0, 3), "compacted": (0, 0)}
        for agent in each:
            agents[0].process.wait_until(partial(has_dropped, agent), "retention", seconds_max=SECONDS_MAX)
            assert {t: (agent.offset(t, EARLIEST), agent.offset(t, LATEST)) for t in wanted} == wanted
    # Six old batches and the first of "sized" are gone; a batch had an object of its own.
    agents[0].process.wait_until(lambda: len(intake_of(bucket)) == 6, "the cleaner", seconds_max=SECONDS_MAX)


def test_a_table_keeps_what_its_own_time_says(penstock: PenstockFactory) -> None:
    broker = penstock(settings=OFTEN, options=AT_ONCE)
    bucket, now_ms = local_bucket(broker.data / "store"), int(time.time() * 1000)
    create(broker.bootstrap, "apart", retention_ms=str(HOUR_MS), penstock_table_retention_ms="-1")
    create(broker.bootstrap, "alike", retention_ms="-1")
    for topic in ("apart", "alike"):
        assert produce(broker.bootstrap, topic, [now_ms] * 3) == [None] * 3
        assert archive_by_http(broker, topic) == 3
    places = [("apart", 0), ("alike", 0)]
    assert delete_records(broker.bootstrap, dict.fromkeys(places, -1)) == dict.fromkeys(places, 3)
    assert ConfluentClient().ends(broker.bootstrap, places) == dict.fromkeys(places, (3, 3))
    broker.process.wait_until(lambda: not lake_of(bucket, "alike"), "the cleaner", seconds_max=SECONDS_MAX)
    assert len(lake_of(bucket, "apart")) == 1


def test_a_topic_that_is_created_again_is_another_one(clusters: ClusterFactory, minio: Minio, kafka_jars: Path) -> None:
    cluster = clusters()
    agents = three(cluster, gc_min_age_s="1", archive_interval_s="3600")
    bucket = bucket_of(cluster, minio)
    with asked(agents, kafka_jars) as each:
        old = each[0].create("t")
        for agent in each:
            assert agent.produce(old, [b"old"])["ErrorCode"] == 0
        left_behind = intake_of(bucket)
        assert len(left_behind) == 3
        admin = AdminClient({"bootstrap.servers": agents[1].bootstrap})
        admin.delete_topics(["t"])["t"].result(SECONDS_MAX)
        for agent in each:
            assert agent.produce(old, [b"late"])["ErrorCode"] == ErrorCode.unknown_topic_id
            assert agent.fetch(old, 0)["ErrorCode"] == ErrorCode.unknown_topic_id
            assert agent.produce("t", [b"late"])["ErrorCode"] == ErrorCode.unknown_topic_or_partition
        new = each[2].create("t")
        assert new != old
        for agent in each:
            assert (agent.offset("t", EARLIEST), agent.offset("t", LATEST)) == (0, 0)
            assert agent.produce(old, [b"late"])["ErrorCode"] == ErrorCode.unknown_topic_id
            assert agent.fetch(old, 0)["ErrorCode"] == ErrorCode.unknown_topic_id
            assert agent.fetch(new, 0)["HighWatermark"] == 0
        for offset, agent in enumerate(each):
            answer = agent.produce("t" if offset else new, [b"new"])
            assert (answer["ErrorCode"], answer["BaseOffset"]) == (0, offset)
        for one in agents:
            rows = ConfluentClient().consume(one.bootstrap, {("t", 0): (0, 3)})
            assert [(offset, row.value) for offset, row in rows["t", 0]] == [(0, b"new"), (1, b"new"), (2, b"new")]
    agents[0].process.wait_until(
        lambda: left_behind.isdisjoint(intake_of(bucket)), "the cleaner", seconds_max=SECONDS_MAX
    )
    assert len(intake_of(bucket)) == 3
