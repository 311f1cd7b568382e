"""Clients are held to the quotas that Kafka's own tool sets, and notice it as with Kafka."""

import socket
import subprocess
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent

from protocol.errors import ErrorCode
from tests.support.clients.kafka_requests import ask, framed, read_answer, read_frame
from tests.support.services.local_services import Penstock, PenstockFactory

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own way of reading its schemas
    from kafka import KafkaConsumer, KafkaProducer

TRIES_MAX = 5
SECONDS_MAX = 60.0
METADATA, CREATE_TOPICS, ALTER_CLIENT_QUOTAS = 3, 19, 49
SHORT = {"quota.window.num": "3", "controller.quota.window.num": "3"}
"""Two seconds of a quota may be used at once."""
Configs = Callable[..., str]


@pytest.fixture
def configs(java: Path, kafka_jars: Path) -> Configs:
    """Kafka's tool for configs and quotas."""

    def run(broker: Penstock, *arguments: str) -> str:
        command = [str(java), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars}/*"]
        command += ["kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


class Throttles:
    """The throttle times that a client of librdkafka was told, in seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, event: ThrottleEvent) -> None:
        self.seconds.append(event.throttle_time)


@pytest.mark.slow  # so do those of test_quota_rates
def test_each_kind_of_client_is_told_and_others_are_not(penstock: PenstockFactory, configs: Configs) -> None:
    broker = penstock(settings=SHORT)
    configs(
        broker,
        "--alter",
        "--add-config",
        "producer_byte_rate=50000,consumer_byte_rate=50000,controller_mutation_rate=1",
        "--entity-type",
        "clients",
        "--entity-name",
        "held",
    )
    throttles = Throttles()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "held", "throttle_cb": throttles})
    for _ in range(12):
        producer.produce("t", bytes(10_000), partition=0)
        producer.flush(SECONDS_MAX)
    # 120 KB by 50 KB a second, of which two seconds were free at once.
    assert max(throttles.seconds) > 0.1

    throttles = Throttles()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "held",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "throttle_cb": throttles,
        }
    )
    consumer.subscribe(["t"])
    seen = 0
    while seen < 12:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        seen += message.error() is None
    consumer.close()
    assert max(throttles.seconds) > 0.1

    free = KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="free")
    for _ in range(12):
        free.send("t", bytes(10_000), partition=0).get(SECONDS_MAX)
    assert free.metrics()["producer-metrics"].get("throttle-time-max", 0.0) <= 0
    free.close()


@pytest.mark.slow  # so does its consumer in test_quota_rates
def test_kafka_python_sees_the_throttle_in_its_metrics(penstock: PenstockFactory) -> None:
    broker = penstock(settings=SHORT)
    set_quotas(broker, "held", producer_byte_rate=50_000, consumer_byte_rate=50_000)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="held", linger_ms=0)
    for _ in range(12):
        producer.send("t", bytes(10_000), partition=0).get(SECONDS_MAX)
    assert producer.metrics()["producer-metrics"]["throttle-time-max"] > 100
    producer.close()
    consumer = KafkaConsumer(
        "t", bootstrap_servers=broker.bootstrap, client_id="held", auto_offset_reset="earliest", group_id=None
    )
    seen = 0
    while seen < 12:
        seen += sum(map(len, consumer.poll(1_000).values()))
    assert consumer.metrics()["consumer-metrics"]["throttle-time-max"] > 100
    consumer.close()
    with urlopen(f"http://{broker.http}/metrics", timeout=SECONDS_MAX) as response:
        metrics = response.read().decode()
    assert 'penstock_request_throttle_duration_seconds_count{quota="produce"}' in metrics
    assert 'penstock_request_throttle_duration_seconds_count{quota="fetch"}' in metrics


def set_quotas(broker: Penstock, client_id: str, **quotas: float) -> None:
    ops = [{"key": name, "value": value, "remove": False} for name, value in quotas.items()]
    entity = [{"entity_type": "client-id", "entity_name": client_id}]
    answer = ask(
        broker.bootstrap, ALTER_CLIENT_QUOTAS, 1, {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    )
    assert answer.entries[0].error_code == 0


def creation(name: str, partitions_count: int) -> bytes:
    row = {"name": name, "num_partitions": partitions_count, "replication_factor": 1, "assignments": [], "configs": []}
    values = {"topics": [row], "timeout": timedelta(seconds=SECONDS_MAX), "validate_only": False}
    return framed(CREATE_TOPICS, 7, values, client_id="held")


def test_topics_beyond_the_quota_are_rejected_and_the_connection_waits(penstock: PenstockFactory) -> None:
    broker = penstock(settings=SHORT)
    set_quotas(broker, "held", controller_mutation_rate=4.0)
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS_MAX) as connection:
        answers, began_s, waited_s = [], 0.0, 0.0
        for name, partitions_count in (("a", 14), ("b", 1), *[("b", 1)] * TRIES_MAX):
            connection.sendall(creation(name, partitions_count))
            answer = read_answer(read_frame(connection), CREATE_TOPICS, 7)
            answers.append((int(answer.topics[0].error_code), answer.throttle_time > timedelta(milliseconds=100)))
            waited_s, began_s = max(waited_s, time.monotonic() - began_s if began_s else 0.0), time.monotonic()
            if name == "b" and answers[-1][0] == 0:
                break
    # Twelve partitions may be created at once; the two more that were owed come back within half a second.
    # What is left to wait is rounded to a millisecond, so a request right at its end may come a moment early.
    early = [(ErrorCode.throttling_quota_exceeded, False)] * (len(answers) - 3)
    assert answers == [(0, False), (ErrorCode.throttling_quota_exceeded, True), *early, (0, False)]
    assert 0.1 < waited_s < SECONDS_MAX
