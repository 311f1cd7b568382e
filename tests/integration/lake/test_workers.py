"""A broker whose archive passes are made by its worker: what consumers and tables have is the same."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.table import StaticTable

from tests.support.cluster.conditions import wait_until
from tests.support.services.local_services import Penstock, PenstockFactory

SECONDS_MAX = 120.0
TOPIC = "hot"
VALUE_BYTES = 1000
ROUND_RECORDS = 8_000
EARLY = {"archive-bytes": str(1 << 22), "archive-interval-s": "1"}


def calls(broker: Penstock, outcome: str) -> float:
    with urlopen(f"http://{broker.http}/metrics", timeout=SECONDS_MAX) as answer:
        text = answer.read().decode()
    found = re.search(rf'^penstock_worker_calls_total{{outcome="{outcome}",role="passes"}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def workers_of(broker: Penstock) -> list[int]:
    children = Path(f"/proc/{broker.process.pid}/task").glob("*/children")
    return [int(pid) for each in children for pid in each.read_text().split()]


class Produced:
    """Records with their numbers as values, in rounds that are archived one after the other."""

    def __init__(self, broker: Penstock) -> None:
        self._broker = broker
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        self.count = 0

    def more(self) -> bool:
        """Produce a round; returns that this is no end of a wait."""
        for number in range(self.count, self.count + ROUND_RECORDS):
            self._producer.produce(TOPIC, value=str(number).zfill(VALUE_BYTES).encode(), partition=0)
            self._producer.poll(0)
        assert self._producer.flush(SECONDS_MAX) == 0
        self.count += ROUND_RECORDS
        return False

    def until(self, outcome: str, calls_min: float) -> None:
        """Produce until so many passes had that outcome. A worker takes seconds to start, behind the kernels."""
        wait_until(
            lambda: calls(self._broker, outcome) >= calls_min or self.more(),
            f"{calls_min} passes",
            seconds_max=SECONDS_MAX,
        )


@contextmanager
def consuming(broker: Penstock) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    try:
        yield consumer
    finally:
        consumer.close()


def test_passes_of_a_worker_and_after_its_death_lose_and_double_nothing(penstock: PenstockFactory) -> None:
    broker = penstock(options=EARLY)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(SECONDS_MAX)
    produced = Produced(broker)
    produced.until("done", 2)
    (worker,) = workers_of(broker)
    os.kill(worker, signal.SIGKILL)
    produced.until("left", calls(broker, "left") + 1)  # the agent makes that pass itself
    with consuming(broker) as consumer:
        read = [
            int(message.value() or b"") for _ in range(produced.count) for message in consumer.consume(1, SECONDS_MAX)
        ]
    assert read == list(range(produced.count))

    def table_rows() -> int:
        (hint,) = (broker.data / "store" / "lake").glob(f"{TOPIC}-*/metadata/version-hint.text")
        table = StaticTable.from_metadata(f"file://{hint.parent}/v{hint.read_text()}.metadata.json")
        return int(table.scan().to_arrow().num_rows)

    broker.process.wait_until(lambda: table_rows() == produced.count, "the table", seconds_max=SECONDS_MAX)
    assert broker.process.stop() == 0
    assert not workers_of(broker)
