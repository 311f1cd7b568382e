"""What clients were denied is in the audit topic's table: SQL counts as they counted."""

import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.catalog.rest import RestCatalog

from coordinator.configs.topic_names import AUDIT_TOPIC
from tests.support.lake.archiving import archive_by_http
from tests.support.services.local_services import Penstock, PenstockFactory

CLIENTS = 3
FRAME_BYTES = 5
"""A zero byte and the schema's id, in front of the JSON."""
POLLS_MAX = 300
TOKEN = "token-of-an-auditor"


def denied_records(broker: Penstock, client_id: str, count: int) -> int:
    """Produces to the audit topic, which no client may, and returns how many records were denied."""
    denied = 0

    def delivered(error: object, _: object) -> None:
        nonlocal denied
        denied += "TOPIC_AUTHORIZATION_FAILED" in repr(error)

    for _ in range(count):
        # A new one each time: librdkafka remembers the denial, and asks no second time.
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": client_id, "linger.ms": 0})
        producer.produce(AUDIT_TOPIC, b"forged", on_delivery=delivered)
        producer.flush(10)
    return denied


def wait_for_records(broker: Penstock, denied_count: int) -> None:
    """Returns once the audit topic has so many denials."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "auditors", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([AUDIT_TOPIC])
    try:
        for _ in range(POLLS_MAX):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                event = json.loads((message.value() or b"")[FRAME_BYTES:])
                denied_count -= event["count"] if event["decision"] == "denied" else 0
            if denied_count == 0:
                return
    finally:
        consumer.close()
    pytest.fail(f"{denied_count} denials are not in the audit topic")


def test_sql_counts_what_clients_were_denied(penstock: PenstockFactory, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN + "\n")
    broker = penstock(options={"audit-log": "topic", "http-token-file": str(tokens)})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "admin"})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(10)
    with pytest.raises(KafkaException, match="Agents alone create"):
        admin.create_topics([NewTopic(AUDIT_TOPIC, 1)])[AUDIT_TOPIC].result(10)
    broker.process.wait_until(lambda: AUDIT_TOPIC in admin.list_topics(timeout=10).topics, "the audit topic")
    clients = {f"client-{number}": number for number in range(1, CLIENTS)}
    denied = Counter({name: denied_records(broker, name, count) for name, count in clients.items()})
    assert denied == Counter(clients)
    denied["admin"] = 1
    wait_for_records(broker, sum(denied.values()))
    archive_by_http(broker, AUDIT_TOPIC, TOKEN)
    catalog = RestCatalog("penstock", uri=f"http://{broker.http}/iceberg", token=TOKEN)
    with catalog.load_table(f"lake.{AUDIT_TOPIC}").scan().to_duckdb("audit") as connection:
        rows = connection.execute(
            "SELECT value_client_id, sum(value_count) FROM audit WHERE value_decision = 'denied' GROUP BY ALL"
        ).fetchall()
        assert Counter(dict(rows)) == denied
        changed = "SELECT value_detail FROM audit WHERE value_resource = 'Topic:orders' AND value_decision = 'changed'"
        assert connection.execute(changed).fetchall() == [("created with 1 partitions",)]
        assert connection.execute("SELECT count(*) FROM audit WHERE error IS NOT NULL").fetchall() == [(0,)]
