"""Which records a topic takes, by size, key and time: Penstock and Apache Kafka say the same to the same client."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.client_libraries.confluent import ConfluentClient
from tests.support.services.java import KafkaBroker
from tests.support.services.local_services import PenstockFactory

SECONDS_MAX = 60.0
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD = 10, 32, 87


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record, and the error code that it gets: 0 where it is taken. `ahead_ms`: of now."""

    ahead_ms: int = 0
    value_bytes: int = 10
    key: bytes | None = None
    error_code: int = 0


TOPICS: Mapping[str, tuple[Mapping[str, str], Sequence[Sent]]] = {
    "default": ({}, [Sent(ahead_ms=-YEAR_MS), Sent(ahead_ms=2 * HOUR_MS, error_code=INVALID_TIMESTAMP)]),
    "after": (
        {"message.timestamp.after.max.ms": str(2 * MINUTE_MS)},
        [Sent(ahead_ms=MINUTE_MS), Sent(ahead_ms=3 * MINUTE_MS, error_code=INVALID_TIMESTAMP)],
    ),
    "before": (
        {"message.timestamp.before.max.ms": str(2 * MINUTE_MS)},
        [Sent(ahead_ms=-MINUTE_MS), Sent(ahead_ms=-3 * MINUTE_MS, error_code=INVALID_TIMESTAMP), Sent()],
    ),
    "stamped": (
        {"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": "0"},
        [Sent(ahead_ms=YEAR_MS), Sent(ahead_ms=-YEAR_MS), Sent()],
    ),
    "small": (
        {"max.message.bytes": "200"},
        [Sent(value_bytes=120), Sent(value_bytes=200, error_code=TOO_LARGE), Sent()],
    ),
    "compacted": ({"cleanup.policy": "compact"}, [Sent(key=b"k"), Sent(error_code=INVALID_RECORD), Sent(key=b"")]),
}


def create(bootstrap: str, topics: Mapping[str, Mapping[str, str]]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, 1, 1, config=dict(configs)) for name, configs in topics.items()]
    for created in admin.create_topics(new).values():
        created.result(SECONDS_MAX)


def told(bootstrap: str, topic: str, sends: Sequence[Sent]) -> list[int]:
    """The error codes of the records, each sent alone."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "retries": 0})
    errors: list[KafkaError | None] = []
    for sent in sends:
        producer.produce(
            topic,
            bytes(sent.value_bytes),
            sent.key,
            partition=0,
            timestamp=int(time.time() * 1000) + sent.ahead_ms,
            on_delivery=lambda error, _: errors.append(error),
        )
        assert producer.flush(SECONDS_MAX) == 0
    return [0 if error is None else error.code() for error in errors]


def test_records_are_taken_and_refused_as_apache_kafka_does(
    penstock: PenstockFactory, kafka_broker: KafkaBroker
) -> None:
    expected = {topic: [sent.error_code for sent in sends] for topic, (_, sends) in TOPICS.items()}
    for bootstrap in (kafka_broker.bootstrap, penstock().bootstrap):
        create(bootstrap, {topic: configs for topic, (configs, _) in TOPICS.items()})
        began_ms = int(time.time() * 1000)
        assert {topic: told(bootstrap, topic, sends) for topic, (_, sends) in TOPICS.items()} == expected
        rows = ConfluentClient().consume(bootstrap, {("stamped", 0): (0, 3)})["stamped", 0]
        assert all(row.is_append_time for _, row in rows)
        assert all(began_ms - MINUTE_MS < row.timestamp_ms < began_ms + 10 * MINUTE_MS for _, row in rows)


def test_the_brokers_configs_hold_where_a_topic_says_nothing(penstock: PenstockFactory) -> None:
    broker = penstock(
        settings={
            "log.message.timestamp.after.max.ms": str(2 * MINUTE_MS),
            "log.message.timestamp.before.max.ms": str(2 * MINUTE_MS),
            "message.max.bytes": "200",
        }
    )
    create(broker.bootstrap, {"alike": {}, "apart": {"max.message.bytes": "1000"}})
    sends = [
        Sent(ahead_ms=MINUTE_MS),
        Sent(ahead_ms=3 * MINUTE_MS, error_code=INVALID_TIMESTAMP),
        Sent(ahead_ms=-3 * MINUTE_MS, error_code=INVALID_TIMESTAMP),
        Sent(value_bytes=200, error_code=TOO_LARGE),
    ]
    assert told(broker.bootstrap, "alike", sends) == [sent.error_code for sent in sends]
    assert told(broker.bootstrap, "apart", [Sent(value_bytes=200)]) == [0]
