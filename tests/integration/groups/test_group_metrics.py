"""The lag of groups in /metrics: in records as Kafka's own tool says it, in seconds as the producer knows it."""

import random
import threading
import time
from enum import StrEnum
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.lake.archiving import archive_by_http
from tests.support.services.java import JavaProgram
from tests.support.services.local_services import Penstock, PenstockFactory

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPIC = "orders"
PARTITIONS = 3
SECONDS_MAX = 60.0
RECORDS = 8
APART_SECONDS = 1.0
ERROR_SECONDS_MAX = 2.0
VALUE = random.Random(22).randbytes(4_096)
"""A file of some of them is of the smallest tier, and eight files together are not."""


class Place(StrEnum):
    """Where the records are when the lag is asked for."""

    INTAKE = "in the intake"
    TABLE = "in the table"
    MERGED = "in a merged file"


def produce_evenly(broker: Penstock) -> list[float]:
    """Produce a record to each partition, again and again; the wall times of the acknowledgements, by offset."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    times: list[float] = []
    for _ in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, VALUE, partition=partition)
        assert producer.flush(SECONDS_MAX) == 0
        times.append(time.time())
        threading.Event().wait(APART_SECONDS)
    return times


def unevenness_s(times: list[float]) -> float:
    """By how many seconds one of these times differs at most from where it would be if they were spread evenly."""
    step_s = (times[-1] - times[0]) / (len(times) - 1)
    return max(abs(each - times[0] - row * step_s) for row, each in enumerate(times))


def commit(broker: Penstock, group: str, *offsets: int) -> None:
    """Commit these offsets, of the partitions from 0 on."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(TOPIC, *each) for each in enumerate(offsets)], asynchronous=False)
    consumer.close()


def samples(broker: Penstock, name: str) -> dict[str, float]:
    """A metric by group."""
    return {sample.labels["group"]: sample.value for sample in scraped(broker, name)}


def scraped(broker: Penstock, name: str) -> list[Sample]:
    with urlopen(f"http://{broker.http}/metrics", timeout=SECONDS_MAX) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return [sample for family in families for sample in family.samples if sample.name == name]


def lags_by_tool(broker: Penstock, java: Path, kafka_jars: Path, folder: Path) -> dict[str, float]:
    """The lag of each group, as kafka-consumer-groups.sh describes it."""
    program = JavaProgram(java=java, class_path=f"{kafka_jars}/*", main=TOOL, folder=folder)
    text = program.run("--bootstrap-server", broker.bootstrap, "--describe", "--all-groups")
    lags: dict[str, float] = {}
    for line in text.splitlines():
        cells = line.split()
        if len(cells) > 5 and cells[1] == TOPIC and cells[5].isdigit():
            lags[cells[0]] = lags.get(cells[0], 0) + int(cells[5])
    return lags


def wait_for_merges(broker: Penstock, count: int) -> None:
    deadline_s = time.monotonic() + SECONDS_MAX
    while merges_count(broker) < count:
        assert time.monotonic() < deadline_s, "no files were merged"
        threading.Event().wait(0.2)


def merges_count(broker: Penstock) -> float:
    labels = {"kind": "files", "outcome": "done"}
    return sum(each.value for each in scraped(broker, "penstock_compaction_runs_total") if each.labels == labels)


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(Place.INTAKE, marks=pytest.mark.slow),
        Place.TABLE,
        pytest.param(Place.MERGED, marks=pytest.mark.slow),
    ],
)
def test_a_lag_is_that_of_kafkas_tool_and_its_seconds_are_the_producers(
    penstock: PenstockFactory, java: Path, kafka_jars: Path, tmp_path: Path, place: Place
) -> None:
    is_merged = place is Place.MERGED
    broker = penstock(options={"archive-interval-s": "1" if is_merged else "86400"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result(SECONDS_MAX)
    times: list[float] = []
    pause_s = 0.0
    for rounds in (1, 2):
        before, times = times, produce_evenly(broker)
        if is_merged:
            wait_for_merges(broker, rounds)
            pause_s = times[0] - before[-1] if before else 0.0
        elif place is Place.TABLE:
            archive_by_http(broker, TOPIC)
    ends = [2 * RECORDS] * PARTITIONS
    commit(broker, "behind", RECORDS + 6, *ends[1:])
    commit(broker, "far-behind", RECORDS + 4, RECORDS + 2)
    commit(broker, "consumed", *ends)

    records = samples(broker, "penstock_group_lag_records")
    assert records == {"behind": RECORDS - 6, "far-behind": 2 * RECORDS - 6, "consumed": 0}
    assert records == lags_by_tool(broker, java, kafka_jars, tmp_path)

    seconds, now_s = samples(broker, "penstock_group_lag_seconds"), time.time()
    assert seconds["consumed"] == 0
    error_max_s = ERROR_SECONDS_MAX + unevenness_s(times) + pause_s  # nothing says where in a merged file it was
    assert abs(seconds["behind"] - (now_s - times[6])) < error_max_s
    assert abs(seconds["far-behind"] - (now_s - times[2])) < error_max_s
    assert samples(broker, "penstock_group_members") == dict.fromkeys(records, 0)
