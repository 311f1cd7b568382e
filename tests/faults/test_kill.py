"""kill -9 of the broker under load, again and again: exactly once, in order, started quickly, nothing left behind.

KILL_ROUNDS=100 make test-all ARGS=tests/faults/test_kill.py      more rounds
"""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import obstore
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from obstore.store import S3Store

from protocol.limits import TABLE_COPIES_KEPT
from storage.refs import TAIL_KEY, version_of_copy
from tests.faults.load import Load, consume_all
from tests.support.lake.bucket_listing import local_bucket
from tests.support.ports import free_port
from tests.support.services.local_services import Minio, Penstock, PenstockFactory

ROUNDS = [3, pytest.param(int(os.environ.get("KILL_ROUNDS", "25")), marks=pytest.mark.slow)]
START_SECONDS_MAX = 3.0
PARTITIONS = 4
ACKNOWLEDGED_PER_ROUND_MAX = 3_000
"""A round ends after a random number up to this: the broker is in the middle of the next ones then."""
CLEAN_SECONDS_MAX = 40.0
OPTIONS = {"gc-min-age-s": "1", "archive-interval-s": "1", "snapshot-entries": "50", "log-level": "warning"}

pytestmark = pytest.mark.timeout(600)

Listing = Callable[[], set[str]]


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("load", num_partitions=PARTITIONS)]).values():
        future.result(30)


def referenced(broker: Penstock) -> set[str]:
    """Keys that the state knows, live and released, and what is not the state's: the claim and the snapshot."""
    with urlopen(f"http://{broker.http}/api/inspect/objects", timeout=10) as response:
        return {row["key"] for row in json.load(response)["objects"]}


def orphans(broker: Penstock, listing: Listing) -> set[str]:
    """Objects that nobody refers to. The two newest snapshots, the newest mark of the position and the tail manifest
    are the ledger's; the newest copies of the table's metadata are for readers without a catalog."""
    known = referenced(broker)
    found = listing()
    snapshots = sorted(key for key in found if key.startswith("ledger/snapshots/"))
    marks = sorted(key for key in found if key.startswith("ledger/reached/"))
    hints = {key for key in found if key.endswith("/metadata/version-hint.text")}
    copies = sorted((version, key) for key in found if (version := version_of_copy(key)) is not None)
    own = {"cluster.json", TAIL_KEY, *hints, *(key for _, key in copies[-TABLE_COPIES_KEPT:])}
    return found - known - own - set(snapshots[-2:]) - set(marks[-1:])


def kill_again_and_again(start: Callable[[], Penstock], listing: Listing, *, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    slowness: list[float] = []

    def timed_start() -> Penstock:
        began = time.monotonic()
        broker = start()
        # What others take of the machine is no fault of the broker's.
        crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        slowness.append((time.monotonic() - began) / START_SECONDS_MAX / crowd)
        return broker

    broker = start()
    create_topic(broker.bootstrap)
    with Load(bootstrap=broker.bootstrap, topic="load", partitions=PARTITIONS) as load:
        for _ in range(rounds):
            load.wait_acknowledged(chance.randint(1, ACKNOWLEDGED_PER_ROUND_MAX))
            broker.process.kill()
            broker = timed_start()
    records = consume_all(broker.bootstrap, "load", PARTITIONS)
    for partition, rows in records.items():
        assert [int(key) for _, key, _ in rows] == list(range(load.sent[partition])), (
            f"partition {partition}, seed {seed}"
        )
        assert all(value.startswith(b"%d %b " % (partition, key)) for _, key, value in rows)
    offsets = {(partition, offset): int(key) for partition, rows in records.items() for offset, key, _ in rows}
    assert load.acknowledged.items() <= offsets.items()
    broker.process.wait_until(
        lambda: not orphans(broker, listing), "the last orphan's end", seconds_max=CLEAN_SECONDS_MAX
    )
    assert max(slowness) < 1, f"start-ups took {[round(part * START_SECONDS_MAX, 2) for part in slowness]} s"
    assert broker.process.stop() == 0


@pytest.mark.parametrize("has_journal", [True, False], ids=["a journal", "packs and SQLite"])
@pytest.mark.parametrize("rounds", ROUNDS)
def test_embedded_broker_killed_under_load(
    penstock: PenstockFactory, tmp_path: Path, rounds: int, has_journal: bool
) -> None:
    listen, data = f"127.0.0.1:{free_port()}", tmp_path / "data"
    bucket = local_bucket(data / "store")

    def start() -> Penstock:
        return penstock(data=data, listen=listen, options=OPTIONS, has_journal=has_journal)

    kill_again_and_again(start, bucket.keys, rounds=rounds, seed=3 if has_journal else 1)


@pytest.mark.parametrize("rounds", ROUNDS[1:])
def test_broker_with_minio_killed_under_load(
    penstock: PenstockFactory, minio: Minio, tmp_path: Path, rounds: int
) -> None:
    listen, data, bucket = f"127.0.0.1:{free_port()}", tmp_path / "data", minio.make_bucket(f"kill-{rounds}")
    store = S3Store(
        bucket,
        endpoint=minio.endpoint,
        access_key_id=minio.access_key,
        secret_access_key=minio.secret_key,
        client_options={"allow_http": True},
    )

    def listing() -> set[str]:
        return {item["path"].removeprefix("p/") for page in obstore.list(store, prefix="p") for item in page}

    def start() -> Penstock:
        options = {**OPTIONS, "flush-interval-ms": "50"}
        return penstock(data=data, listen=listen, store=f"s3://{bucket}/p", env=minio.settings, options=options)

    kill_again_and_again(start, listing, rounds=rounds, seed=2)
