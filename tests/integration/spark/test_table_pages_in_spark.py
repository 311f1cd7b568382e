"""The examples of docs/tables.md and docs/typed-columns.md for Spark, run as they stand there, over one broker.

Rule: the session has the jars and the extensions already; the other options of the `pyspark` command are set on it.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.support.documents import Block, blocks
from tests.support.lake.archiving import archive_by_http
from tests.support.services.local_services import Penstock, PenstockFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).resolve().parents[3] / "docs"
HTTP_ADDRESS = "127.0.0.1:9644"
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "country", "type": "string"}, {"name": "amount", "type": "long"}],
    }
)
AMOUNTS = {"CH": (10, 20), "DE": (5, 0)}
STATIC = "spark.sql.extensions"
"""An option that only a new session takes."""
SECONDS_MAX = 120


def page(name: str) -> list[Block]:
    return blocks((DOCS / name).read_text(encoding="utf-8"))


def produce(broker: Penstock, topic: str) -> None:
    """Sends a record for each of `AMOUNTS`, and one that is no Avro."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": f"http://{broker.http}/schema-registry"}) as registry:
        serialize = AvroSerializer(registry, SCHEMA)
        for country, amounts in AMOUNTS.items():
            for amount in amounts:
                producer.produce(topic, serialize({"country": country, "amount": amount}, context), partition=0)
    producer.produce(topic, b"no frame", partition=0)
    assert producer.flush(SECONDS_MAX) == 0


@pytest.mark.slow
def test_every_spark_example_of_the_pages_runs(
    spark: "SparkSession", penstock: PenstockFactory, tmp_path: Path
) -> None:
    session = spark.newSession()  # each session has catalogs of its own; another test's may name another broker
    broker = penstock()
    environment = {**os.environ, "PENSTOCK_SERVER": broker.http}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for block in page("typed-columns.md"):
        if block.language == "bash":
            subprocess.run(["bash", "-ec", block.text], cwd=tmp_path, env=environment, check=True, timeout=SECONDS_MAX)
    for topic in ("orders", "payments"):
        produce(broker, topic)
        archive_by_http(broker, topic)

    shown: list[str] = []
    for block in [*page("tables.md"), *page("typed-columns.md")]:
        text = block.text.replace(HTTP_ADDRESS, broker.http)
        if block.language == "bash" and text.startswith("pyspark "):
            for name, value in re.findall(r"--conf ([\w.]+)=(\S+)", text):
                if name == STATIC:
                    assert session.conf.get(name) == value
                else:
                    session.conf.set(name, value)
        elif block.language == "python" and "spark.sql" in text:
            exec(compile(text, "docs", "exec"), {"spark": session})
            shown.append(text)
        elif block.language == "sql":
            for statement in filter(None, map(str.strip, text.split(";"))):
                session.sql(statement).collect()
            shown.append(text)
    assert len(shown) == 3
    rows = session.sql(
        "SELECT value_country, sum(value_amount) FROM penstock.lake.orders "
        "WHERE value_amount > 0 GROUP BY value_country ORDER BY 1"
    ).collect()
    assert [tuple(row) for row in rows] == [("CH", 30), ("DE", 5)]
    assert session.sql("SELECT error FROM penstock.lake.orders WHERE error IS NOT NULL").count() == 1
    assert session.sql("SELECT value FROM penstock.lake.payments WHERE value IS NULL").count() == 4
