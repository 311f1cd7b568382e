"""A data folder that is renamed, and a bucket that is copied to another one, go on by themselves: topics and tables."""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from pyiceberg.table import StaticTable

from tests.support.lake.archiving import archive_by_http
from tests.support.services.local_services import Minio, Penstock, PenstockFactory

SECONDS_MAX = 60.0
TOPIC = "orders"
OPTIONS = {"archive-interval-s": "3600"}


def produce(broker: Penstock, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%d" % number, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def consumed(broker: Penstock, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    messages = consumer.consume(count, timeout=SECONDS_MAX)
    consumer.close()
    return [message.value() for message in messages]


def assert_goes_on(broker: Penstock, location: str, properties: dict[str, str]) -> None:
    """The table in this place names its files by it, before anything is archived there and after; Kafka reads all."""

    def table() -> StaticTable:
        return StaticTable.from_metadata(location, properties)

    def is_moved() -> bool:
        try:
            return table().metadata.location == location
        except FileNotFoundError:  # the hint of the newest metadata comes a moment after it
            return False

    broker.process.wait_until(is_moved, "the table's move", seconds_max=SECONDS_MAX)
    assert sorted(table().scan().to_arrow()["value"].to_pylist()) == [b"0", b"1", b"2"]
    produce(broker, 3, 2)
    assert archive_by_http(broker, TOPIC) == 2

    def has_all() -> bool:
        return len(table().scan().to_arrow()["value"].to_pylist()) == 5

    broker.process.wait_until(has_all, "the table's hint", seconds_max=SECONDS_MAX)
    assert all(task.file.file_path.startswith(f"{location}/data/") for task in table().scan().plan_files())
    assert consumed(broker, 5) == [b"0", b"1", b"2", b"3", b"4"]


def table_folder(store: Path) -> str:
    (found,) = (store / "lake").glob(f"{TOPIC}-*")
    return found.name


def test_a_renamed_data_folder_goes_on(penstock: PenstockFactory, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    broker = penstock(data=before, options=OPTIONS)
    produce(broker, 0, 3)
    assert archive_by_http(broker, TOPIC) == 3
    broker.process.stop()
    before.rename(after)

    broker = penstock(data=after, options=OPTIONS)
    assert_goes_on(broker, f"file://{after}/store/lake/{table_folder(after / 'store')}", {})


@pytest.mark.slow  # as a renamed folder does
def test_a_copied_bucket_goes_on(penstock: PenstockFactory, tmp_path: Path, minio: Minio) -> None:
    before, after = minio.make_bucket("moved-before"), minio.make_bucket("moved-after")
    data = tmp_path / "data"
    broker = penstock(data=data, store=f"s3://{before}/a", env=minio.settings, options=OPTIONS)
    produce(broker, 0, 3)
    assert archive_by_http(broker, TOPIC) == 3
    broker.process.stop()
    # In MinIO's storage of one folder an object is a directory; to copy the folder is to copy the bucket.
    shutil.copytree(minio.data / before / "a", minio.data / after / "b" / "c")
    shutil.rmtree(minio.data / before)

    broker = penstock(data=data, store=f"s3://{after}/b/c", env=minio.settings, options=OPTIONS)
    properties = {
        "s3.endpoint": minio.endpoint,
        "s3.access-key-id": minio.access_key,
        "s3.secret-access-key": minio.secret_key,
        "s3.region": "us-east-1",
    }
    location = f"s3://{after}/b/c/lake/{table_folder(minio.data / after / 'b' / 'c')}"
    assert_goes_on(broker, location, properties)
