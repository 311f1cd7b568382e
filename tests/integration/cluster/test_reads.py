"""Reads through real agents over etcd and MinIO: no older than what others acknowledged, at once, and few requests.

Rule: figures are printed and not asserted, but for numbers of requests.
"""

import asyncio
import json
import time
from urllib.request import Request, urlopen

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from protocol.errors import ErrorCode
from tests.support.clients.raw_client import RawClient, connected
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.cluster.shared_agents import SharedCluster
from tests.support.lake.flight_events import create_topic

ROUNDS = 40
POLLS = 60
SECONDS_MAX = 120.0
PARTITIONS = 16
RECORD = bytes(range(256)) * 4
RECORDS = 30_000
FAST = {"flush-interval-ms": "5"}
NEVER_ARCHIVED = {"archive-interval-s": "86400", "archive-bytes": "256MiB"}


async def test_s4_no_agent_is_behind_what_another_one_acknowledged(shared_cluster: SharedCluster) -> None:
    agents = shared_cluster(options=FAST)
    create_topic(agents[0].bootstrap, "shared", 1)
    async with (
        connected(agents[0].bootstrap) as writes,
        connected(agents[1].bootstrap) as b,
        connected(agents[2].bootstrap) as c,
    ):
        for _ in range(ROUNDS):
            end = 1 + await writes.produce("shared", 0, b"v")
            told = [
                *await asyncio.gather(seen(b, end, is_listed=False), seen(c, end, is_listed=True)),
                *await asyncio.gather(seen(c, end, is_listed=False), seen(b, end, is_listed=True)),
            ]
            assert told == [(ErrorCode.none, end)] * 4
            last = await asyncio.gather(*(agent.fetch("shared", 0, end - 1, wait_ms=10_000) for agent in (b, c)))
            assert [(read.error_code, read.high_watermark, bool(read.records)) for read in last] == [
                (ErrorCode.none, end, True)
            ] * 2


async def seen(client: RawClient, end: int, *, is_listed: bool) -> tuple[ErrorCode, int]:
    """The end as an agent tells it to a client that is there already."""
    if is_listed:
        return await client.log_end("shared", 0)
    read = await client.fetch("shared", 0, end, wait_ms=0)
    return read.error_code, read.high_watermark


async def test_s4_a_topic_is_known_to_every_agent_as_soon_as_it_is_created(shared_cluster: SharedCluster) -> None:
    agents = shared_cluster(options=FAST)
    async with connected(agents[1].bootstrap) as client:
        for number in range(20):
            create_topic(agents[0].bootstrap, f"new-{number}", 1)
            assert await client.log_end(f"new-{number}", 0) == (ErrorCode.none, 0)
            create_topic(agents[0].bootstrap, f"newer-{number}", 1)
            assert (await client.fetch(f"newer-{number}", 0, 0, wait_ms=0))[:2] == (ErrorCode.none, 0)
        assert await client.log_end("never", 0) == (ErrorCode.unknown_topic_or_partition, -1)


async def test_long_polls_are_woken_by_commits_of_other_agents(shared_cluster: SharedCluster) -> None:
    agents = shared_cluster(options=FAST)
    create_topic(agents[0].bootstrap, "polled", 1)
    waits_ms = dict[str, list[float]]()
    async with (
        connected(agents[0].bootstrap) as writes,
        connected(agents[0].bootstrap) as near,
        connected(agents[1].bootstrap) as far,
    ):
        for _ in range(POLLS):
            _, end = await near.log_end("polled", 0)
            async with asyncio.TaskGroup() as tasks:
                polls = {
                    "the same agent": tasks.create_task(polled(near, end)),
                    "another agent": tasks.create_task(polled(far, end)),
                }
                began_s = time.monotonic()
                await writes.produce("polled", 0, b"v")
                acknowledged_s = time.monotonic()
            for name, poll in polls.items():
                waits_ms.setdefault(f"{name}, after it was sent", []).append(1000 * (poll.result() - began_s))
                waits_ms.setdefault(f"{name}, after it was acknowledged", []).append(
                    1000 * (poll.result() - acknowledged_s)
                )
    for name, each in waits_ms.items():
        p50, p99 = np.percentile(each, [50, 99])
        print(f"a record at a long poll of {name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


async def polled(client: RawClient, end: int) -> float:
    """When the record that follows was there."""
    read = await client.fetch("polled", 0, end, wait_ms=60_000)
    assert (read.error_code, bool(read.records)) == (ErrorCode.none, True)
    return time.monotonic()


@pytest.mark.slow  # in one process: test_object_reads
async def test_an_object_is_read_once_however_many_consumers_an_agent_with_nothing_in_memory_has(
    clusters: ClusterFactory,
) -> None:
    cluster = clusters()
    producing = cluster.start("producing", options=NEVER_ARCHIVED)
    create_topic(producing.bootstrap, "events", PARTITIONS)
    await asyncio.to_thread(produce, producing.bootstrap)
    objects = figure(producing, "penstock_intake_objects_total")
    gets = figure(producing, "penstock_store_requests_total", operation="get")
    await consume_at_once(producing.bootstrap, 3)
    print(f"{objects:.0f} intake objects; warm, 3 readers: {gets_since(producing, gets):.0f} GETs")
    producing.process.stop()
    for readers in (1, 3):
        cold = cluster.start(f"cold-{readers}", options=NEVER_ARCHIVED)
        gets = figure(cold, "penstock_store_requests_total", operation="get")
        await consume_at_once(cold.bootstrap, readers)
        per_object = gets_since(cold, gets) / objects
        print(f"cold, {readers} reader(s) of {PARTITIONS} partitions: {per_object:.2f} GETs per object")
        assert per_object <= 1.5
        cold.process.stop()


@pytest.mark.slow  # in one process: test_object_reads
async def test_a_row_group_is_read_once_however_many_consumers_an_agent_with_nothing_in_memory_has(
    clusters: ClusterFactory,
) -> None:
    cluster = clusters()
    archiving = cluster.start("archiving", options=NEVER_ARCHIVED)
    create_topic(archiving.bootstrap, "events", PARTITIONS)
    await asyncio.to_thread(produce, archiving.bootstrap)
    await asyncio.to_thread(archive, archiving)
    row_groups = figure(archiving, "penstock_chunks")
    archiving.process.stop()
    for readers in (1, 3):
        cold = cluster.start(f"cold-{readers}", options=NEVER_ARCHIVED)
        gets = figure(cold, "penstock_store_requests_total", operation="get")
        await consume_at_once(cold.bootstrap, readers)
        count = gets_since(cold, gets)
        print(f"cold, {readers} reader(s) of the archive: {count:.0f} GETs for {row_groups:.0f} row groups")
        assert count <= 1.5 * row_groups
        cold.process.stop()


def archive(agent: ClusterAgent) -> None:
    body = json.dumps({"topics": ["events"], "wait": True}).encode()
    request = Request(f"http://{agent.http}/api/archive", data=body, headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=SECONDS_MAX) as answer:
        assert answer.status == 200


def figure(agent: ClusterAgent, name: str, **labels: str) -> float:
    """One of an agent's own metrics, 0 where there is none yet."""
    with urlopen(f"http://{agent.http}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def gets_since(agent: ClusterAgent, before: float) -> float:
    return figure(agent, "penstock_store_requests_total", operation="get") - before


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1 << 16})
    for number in range(RECORDS):
        while True:
            try:
                producer.produce("events", RECORD, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(SECONDS_MAX) == 0


async def consume_at_once(bootstrap: str, readers: int) -> None:
    counts = await asyncio.gather(*(asyncio.to_thread(consume, bootstrap) for _ in range(readers)))
    assert counts == [RECORDS] * readers


def consume(bootstrap: str) -> int:
    """How many records one consumer of all partitions gets from the beginning to the end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition("events", partition, 0) for partition in range(PARTITIONS)])
    count, deadline_s = 0, time.monotonic() + SECONDS_MAX
    while count < RECORDS and time.monotonic() < deadline_s:
        for message in consumer.consume(10_000, 1.0):
            assert message.error() is None, message.error()
            count += 1
    consumer.close()
    return count
