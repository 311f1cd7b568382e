"""Nothing is acknowledged into a bucket that was deleted and made again, until the right one is back (S22)."""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from benchmarks.measure.exposition import scrape, total
from tests.support.services.local_services import Minio, Penstock, PenstockFactory

DELIVERY_MS = 1_500
SECONDS_MAX = 45.0


def produced(broker: Penstock, value: bytes) -> bool:
    """Whether a record was acknowledged, within `DELIVERY_MS`."""
    errors: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        errors.append(error)

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "message.timeout.ms": DELIVERY_MS, "request.timeout.ms": DELIVERY_MS}
    )
    producer.produce("t", value, on_delivery=delivered)
    producer.flush(10)
    return bool(errors) and errors[0] is None  # a KafkaError cannot be compared with None


def mismatch(broker: Penstock) -> float:
    return total(scrape(broker.http), "penstock_bucket_mismatch")


def until_refused(broker: Penstock) -> None:
    """Produce until nothing is acknowledged: within the half minute that the rule allows."""
    broker.process.wait_until(
        lambda: not produced(broker, b"into the wrong bucket, perhaps") and mismatch(broker) == 1,
        "acknowledgements to end",
        seconds_max=SECONDS_MAX,
    )


def until_acknowledged(broker: Penstock) -> None:
    broker.process.wait_until(
        lambda: produced(broker, b"into the right bucket"), "acknowledgements", seconds_max=SECONDS_MAX
    )


@pytest.mark.slow
def test_s22_a_bucket_made_again_gets_no_acknowledgement_and_the_right_one_does(
    minio: Minio, penstock: PenstockFactory, tmp_path: Path
) -> None:
    bucket = minio.data / minio.make_bucket("made-again")
    broker = penstock(store="s3://made-again", env=minio.settings)
    assert produced(broker, b"first")
    bucket.rename(tmp_path / "kept")
    bucket.mkdir()
    until_refused(broker)
    assert "the bucket is not this cluster's" in broker.process.stderr
    shutil.rmtree(bucket)
    (tmp_path / "kept").rename(bucket)
    until_acknowledged(broker)
    assert mismatch(broker) == 0


def test_s22_an_embedded_broker_whose_store_is_removed_acknowledges_nothing(
    penstock: PenstockFactory, tmp_path: Path
) -> None:
    broker = penstock()
    assert produced(broker, b"first")
    store = broker.data / "store"
    store.rename(tmp_path / "kept")
    until_refused(broker)
    if store.exists():
        shutil.rmtree(store)
    (tmp_path / "kept").rename(store)
    until_acknowledged(broker)
