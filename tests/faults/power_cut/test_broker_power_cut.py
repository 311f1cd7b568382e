"""The embedded broker and the loss of power: acknowledged records are there, and it takes both fsyncs."""

import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.faults.power_cut.power_cut import PowerCut
from tests.faults.processes import Address, BrokerProcess, ProcessFailed

PENSTOCK = Path(sys.executable).parent / "penstock"
RECORDS_PER_FLUSH = 20
SECONDS_MAX = 20.0
LOST_SECONDS_MAX = 3.0
"""How long records are waited for that should not come."""


class Acknowledged:
    """Values by offset, as the broker acknowledged them."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        offset, value = message.offset(), message.value()
        if error is None and offset is not None and isinstance(value, bytes):
            self.values[offset] = value


def broker(power_cut: PowerCut, *, ignore: str | None) -> BrokerProcess:
    """A broker, under the shim unless `ignore` is None."""
    data = power_cut.root / "data"
    environment = None if ignore is None else power_cut.environment(ignore=ignore)
    command: list[str | Path] = [
        PENSTOCK,
        "run",
        "--listen",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--data-dir",
        data,
    ]
    return BrokerProcess(command, stderr_path=power_cut.root.parent / "stderr", environment=environment)


def produce(kafka: Address, acknowledged: Acknowledged, *, flushes: int, name: str) -> None:
    producer = Producer({"bootstrap.servers": str(kafka), "enable.idempotence": True, "linger.ms": 1, "log_level": 0})
    for flush in range(flushes):
        for number in range(RECORDS_PER_FLUSH):
            producer.produce("t", f"{name}-{flush}-{number}".encode(), partition=0, on_delivery=acknowledged)
        assert producer.flush(SECONDS_MAX) == 0


def consume(kafka: Address, count: int, *, seconds_max: float = SECONDS_MAX) -> dict[int, bytes]:
    """Values by offset, from the beginning, until there are `count` of them or no more come."""
    consumer = Consumer(
        {"bootstrap.servers": str(kafka), "group.id": "g", "log_level": 0, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    values: dict[int, bytes] = {}
    deadline = time.monotonic() + seconds_max
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            break
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert isinstance(value, bytes)
        assert offset not in values, "an offset came twice"
        values[offset] = value
    consumer.close()
    return values


def run_until_the_power_is_cut(
    power_cut: PowerCut, acknowledged: Acknowledged, *, flushes: int, name: str, ignore: str = ""
) -> None:
    power_cut.adopt()
    with broker(power_cut, ignore=ignore) as running:
        produce(running.wait_ready().kafka, acknowledged, flushes=flushes, name=name)
        running.kill()
    power_cut.restore()


def test_acknowledged_records_survive_power_cut_after_power_cut(power_cut: PowerCut) -> None:
    acknowledged = Acknowledged()
    for flushes in (1, 30, 7):
        run_until_the_power_is_cut(power_cut, acknowledged, flushes=flushes, name=f"run-{flushes}")
    assert len(acknowledged.values) == 38 * RECORDS_PER_FLUSH
    with broker(power_cut, ignore=None) as running:
        assert consume(running.wait_ready().kafka, len(acknowledged.values)) == acknowledged.values


@pytest.mark.parametrize("ignore", ["file:ledger.sqlite", "file:/store/", "dir:/store", "dir:"])
def test_without_a_sync_acknowledged_records_are_lost(power_cut: PowerCut, ignore: str) -> None:
    acknowledged = Acknowledged()
    run_until_the_power_is_cut(power_cut, acknowledged, flushes=5, name="run", ignore=ignore)
    with broker(power_cut, ignore=None) as running:
        try:
            kafka = running.wait_ready(seconds_max=SECONDS_MAX).kafka
        except ProcessFailed:
            return  # it says that ledger and bucket disagree, and does not serve
        left = consume(kafka, len(acknowledged.values), seconds_max=LOST_SECONDS_MAX)
        assert left != acknowledged.values
