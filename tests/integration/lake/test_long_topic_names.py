"""A topic of the longest name is archived, read and deleted like any other."""

import subprocess
from collections import Counter
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.table import StaticTable

from tests.support.lake.archiving import AT_ONCE, archive_by_http
from tests.support.services.local_services import PENSTOCK, PenstockFactory

SECONDS_MAX = 60.0
NAMES = [letter * length for letter, length in (("q", 223), ("r", 249))]
RECORDS = 3


def test_topics_of_the_longest_names_are_archived_read_and_deleted(penstock: PenstockFactory) -> None:
    broker = penstock(options=AT_ONCE)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in NAMES]).values():
        created.result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for name in NAMES:
        for number in range(RECORDS):
            producer.produce(name, value=b"%d" % number)
    assert producer.flush(SECONDS_MAX) == 0
    lake = broker.data / "store" / "lake"

    def hint(name: str) -> Path | None:
        return next(lake.glob(f"{name[:150]}*/metadata/version-hint.text"), None)

    def has_hint(name: str) -> bool:
        return hint(name) is not None

    for name in NAMES:
        assert archive_by_http(broker, name) == RECORDS, len(name)
        broker.process.wait_until(partial(has_hint, name), "the hint of the table", seconds_max=SECONDS_MAX)
        found = hint(name)
        assert found is not None
        table = StaticTable.from_metadata(f"file://{found.parent}/v{found.read_text()}.metadata.json")
        assert table.scan().to_arrow().column("value").to_pylist() == [b"0", b"1", b"2"]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(NAMES)
    messages = consumer.consume(RECORDS * len(NAMES), timeout=SECONDS_MAX)
    consumer.close()
    assert Counter(message.topic() for message in messages) == dict.fromkeys(NAMES, RECORDS)
    for deleted in admin.delete_topics(NAMES).values():
        deleted.result(SECONDS_MAX)
    broker.process.wait_until(lambda: not list(lake.glob("*/*/*")), "the garbage collector", seconds_max=SECONDS_MAX)
    broker.process.stop()
    audit = [str(PENSTOCK), "audit", "--data-dir", str(broker.data)]
    done = subprocess.run(audit, capture_output=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
