"""The embedded broker and the loss of power: acknowledged records are there, and it takes both fsyncs."""

import time

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.faults.power_cut.power_cut import PowerCut
from tests.support.lake.bucket_listing import METADATA, local_bucket
from tests.support.processes import START_SECONDS_MAX, ProcessFailed
from tests.support.services.local_services import Penstock, PenstockFactory

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


def broker(
    penstock: PenstockFactory,
    power_cut: PowerCut,
    *,
    ignore: str | None,
    start_seconds_max: float = START_SECONDS_MAX,
    has_journal: bool = False,
) -> Penstock:
    """A broker, under the shim unless `ignore` is None."""
    env = None if ignore is None else power_cut.environment(ignore=ignore)
    data = power_cut.root / "data"
    return penstock(data=data, env=env, start_seconds_max=start_seconds_max, has_journal=has_journal)


def produce(bootstrap: str, acknowledged: Acknowledged, *, flushes: int, name: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0})
    for flush in range(flushes):
        for number in range(RECORDS_PER_FLUSH):
            producer.produce("t", f"{name}-{flush}-{number}".encode(), partition=0, on_delivery=acknowledged)
        assert producer.flush(SECONDS_MAX) == 0


def consume(bootstrap: str, count: int, *, seconds_max: float = SECONDS_MAX) -> dict[int, bytes]:
    """Values by offset, from the beginning, until there are `count` of them or no more come."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0, "enable.partition.eof": True})
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
    penstock: PenstockFactory,
    power_cut: PowerCut,
    acknowledged: Acknowledged,
    *,
    flushes: int,
    name: str,
    ignore: str = "",
    has_journal: bool = False,
) -> None:
    power_cut.adopt()
    running = broker(penstock, power_cut, ignore=ignore, has_journal=has_journal)
    produce(running.bootstrap, acknowledged, flushes=flushes, name=name)
    running.process.kill()
    power_cut.restore()


@pytest.mark.parametrize("has_journal", [False, True], ids=["packs and SQLite", "a journal"])
def test_acknowledged_records_survive_power_cut_after_power_cut(
    penstock: PenstockFactory, power_cut: PowerCut, has_journal: bool
) -> None:
    acknowledged = Acknowledged()
    for flushes in (30, 7):
        run_until_the_power_is_cut(
            penstock, power_cut, acknowledged, flushes=flushes, name=f"run-{flushes}", has_journal=has_journal
        )
    assert len(acknowledged.values) == 37 * RECORDS_PER_FLUSH
    running = broker(penstock, power_cut, ignore=None, has_journal=has_journal)
    assert consume(running.bootstrap, len(acknowledged.values)) == acknowledged.values


@pytest.mark.parametrize(
    "ignore",
    [
        "file:ledger.sqlite",
        # Of packs and of the store's folder the next tests say what is lost.
        *(
            pytest.param(part, marks=pytest.mark.slow)
            for part in ("file:/store/", "file:/.packs/", "dir:/store", "dir:/.packs", "dir:")
        ),
    ],
)
def test_without_a_sync_acknowledged_records_are_lost(
    penstock: PenstockFactory, power_cut: PowerCut, ignore: str
) -> None:
    acknowledged = Acknowledged()
    run_until_the_power_is_cut(penstock, power_cut, acknowledged, flushes=5, name="run", ignore=ignore)
    try:
        running = broker(penstock, power_cut, ignore=None, start_seconds_max=SECONDS_MAX)
    except ProcessFailed:
        return  # it says that ledger and bucket disagree, and does not serve
    left = consume(running.bootstrap, len(acknowledged.values), seconds_max=LOST_SECONDS_MAX)
    assert left != acknowledged.values


@pytest.mark.parametrize("ignore", ["file:.journal", pytest.param("dir:/journal", marks=pytest.mark.slow)])
def test_without_the_one_sync_of_a_journal_acknowledged_records_are_lost(
    penstock: PenstockFactory, power_cut: PowerCut, ignore: str
) -> None:
    acknowledged = Acknowledged()
    run_until_the_power_is_cut(
        penstock, power_cut, acknowledged, flushes=5, name="run", ignore=ignore, has_journal=True
    )
    try:
        running = broker(penstock, power_cut, ignore=None, start_seconds_max=SECONDS_MAX, has_journal=True)
    except ProcessFailed:
        return  # it says that ledger and bucket disagree, and does not serve
    left = consume(running.bootstrap, len(acknowledged.values), seconds_max=LOST_SECONDS_MAX)
    assert left != acknowledged.values


@pytest.mark.slow
@pytest.mark.parametrize("ignore", ["file:/.packs/", "dir:/.packs"])
def test_it_is_the_syncs_of_packs_that_keep_the_intake(
    penstock: PenstockFactory, power_cut: PowerCut, ignore: str
) -> None:
    run_until_the_power_is_cut(penstock, power_cut, Acknowledged(), flushes=1, name="run", ignore=ignore)
    bucket = local_bucket(power_cut.root / "data" / "store")
    assert bucket.keys()
    assert all(map(METADATA.fullmatch, bucket.keys()))


def test_a_broker_whose_bucket_is_gone_says_so_and_does_not_serve(
    penstock: PenstockFactory, power_cut: PowerCut
) -> None:
    run_until_the_power_is_cut(penstock, power_cut, Acknowledged(), flushes=1, name="run", ignore="dir:/store")
    with pytest.raises(ProcessFailed, match=r"ended with status 1[\s\S]*its bucket has no cluster\.json"):
        broker(penstock, power_cut, ignore=None)
