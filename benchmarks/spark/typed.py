"""Aggregates over typed columns, for `make bench-spark`: Avro records that Spark decodes, or finds decoded.

Rule: the same bytes for both brokers, in Confluent's framing, by one flat schema of the registry. Over Kafka, and over
`format("penstock")`, which shows records as the connector does, Spark decodes them by its own `from_avro`; the table
has the columns. All columns are numbers that add up exactly, so that the answers can be compared.
"""

import io
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import fastavro

from benchmarks.peers.brokers import PenstockPeer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC = "typed"
CONFIG = {"penstock.table.columns": "value"}
"""Of the topic, which Kafka does not know."""
FIELDS = {
    "id": "long",
    "country": "string",
    "quantity": "int",
    "amount": "long",
    "is_gift": "boolean",
    "note": "string",
}
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": type_name} for name, type_name in FIELDS.items()],
}
COUNTRIES = ("at", "be", "ch", "de", "es", "fi", "fr", "gb", "gr", "ie", "it", "lt", "nl", "no", "pl", "pt", "se", "si")
FRAMING_BYTES = 5
"""A zero, and the schema's id as four bytes."""
ANSWER_SECONDS_MAX = 30


def register(penstock: PenstockPeer) -> int:
    """The schema's id, of the values of the topic."""
    body = json.dumps({"schema": json.dumps(SCHEMA)}).encode()
    url = f"http://{penstock.http}/schema-registry/subjects/{TOPIC}-value/versions"
    request = Request(url, body, headers={"Content-Type": "application/vnd.schemaregistry.v1+json"})
    with urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
        schema_id: int = json.loads(answer.read())["id"]
    return schema_id


def make_values(schema_id: int, count: int) -> Sequence[bytes]:
    """So many records, each of about 100 bytes."""
    schema = fastavro.parse_schema(SCHEMA)
    header = b"\x00" + schema_id.to_bytes(FRAMING_BYTES - 1, "big")
    values: list[bytes] = []
    for number in range(count):
        body = io.BytesIO()
        record = {
            "id": number,
            "country": COUNTRIES[number * 7 % len(COUNTRIES)],
            "quantity": number % 9 + 1,
            "amount": number * 7919 % 100_000,
            "is_gift": number % 5 == 0,
            "note": f"order {number:08} is to be delivered to the door on the left, in the afternoon",
        }
        fastavro.schemaless_writer(body, schema, record)
        values.append(header + body.getvalue())
    return values


def decoded(frame: "DataFrame") -> "DataFrame":
    """The columns of the values of a frame that shows records as the connector does."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    body = F.expr(f"substring(value, {FRAMING_BYTES + 1})")
    return frame.select(from_avro(body, json.dumps(SCHEMA)).alias("value")).select("value.*")


def found(frame: "DataFrame") -> "DataFrame":
    """The same columns of a frame of the table."""
    return frame.selectExpr(*(f"value_{name} as {name}" for name in FIELDS))


def questions() -> "Sequence[tuple[str, Callable[[DataFrame], Sequence[Any]]]]":
    """What is asked of the decoded columns."""
    from pyspark.sql import functions as F

    def by_country(frame: "DataFrame") -> Sequence[Any]:
        rows = frame.groupBy("country").agg(F.count("*"), F.sum("amount"), F.avg("quantity"), F.max("id")).collect()
        return sorted(map(tuple, rows))

    def gifts(frame: "DataFrame") -> Sequence[Any]:
        return tuple(frame.where("is_gift and quantity > 5").agg(F.count("*"), F.sum("amount")).collect()[0])

    return (("by country: count, sum, average, greatest", by_country), ("sum of a tenth, by two columns", gifts))
