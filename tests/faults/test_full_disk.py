"""A disk that producers fill: what was acknowledged is there, also after kill -9, and deletions make the broker go on.

The disk is a real file system in memory, mounted where no other process sees it. Root or user namespaces are needed.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.limits import MIB
from tests.faults.load import Load, consume_all
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

DISK_BYTES = 160 * MIB
"""Three files of a journal, or packs, do not fit: one of them can be emptied by deletions."""
VALUE_BYTES = 8_000
FULL_SECONDS_MAX = 120.0
PARTITIONS = 4
OPTIONS = {"gc-min-age-s": "1", "archive-interval-s": "3600", "snapshot-entries": "50", "log-level": "warning"}
"""Nothing is archived: the records stay in the intake."""
FULL = re.compile(r"^penstock_disk_full 1", re.MULTILINE)

pytestmark = pytest.mark.timeout(600)


@contextmanager
def small_disk(folder: Path) -> Iterator[Sequence[str | Path]]:
    """A file system of DISK_BYTES at `folder` for those processes alone whose commands begin with what is yielded."""
    folder.mkdir()
    is_root = os.geteuid() == 0
    mount = f'mount -t tmpfs -o size={DISK_BYTES},mode=777 tmpfs "$0" && echo mounted && exec sleep infinity'
    namespace = ["--mount"] if is_root else ["--user", "--map-root-user", "--mount"]
    with Process(["unshare", *namespace, "sh", "-c", mount, folder], folder.parent, name="disk") as holder:
        assert holder.read_line() == "mounted"
        entered = ["--mount"] if is_root else ["--user", "--preserve-credentials", "--mount"]
        yield ["nsenter", f"--target={holder.pid}", *entered]


def is_full(broker: Penstock) -> bool:
    with urlopen(f"http://{broker.http}/metrics", timeout=30) as answer:
        return FULL.search(answer.read().decode()) is not None


@pytest.mark.parametrize(
    "has_journal",
    [
        pytest.param(True, id="a journal"),
        pytest.param(False, id="packs and SQLite", marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_under_load_loses_nothing_and_goes_on_after_deletions(
    penstock: PenstockFactory, tmp_path: Path, has_journal: bool
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    with small_disk(tmp_path / "disk") as entered:

        def start() -> Penstock:
            return penstock(
                data=tmp_path / "disk" / "data",
                listen=listen,
                options=OPTIONS,
                has_journal=has_journal,
                program=(*entered, PENSTOCK),
            )

        broker = start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("load", num_partitions=PARTITIONS)])["load"].result(30)
        with Load(bootstrap=broker.bootstrap, topic="load", partitions=PARTITIONS, value_bytes=VALUE_BYTES) as load:
            broker.process.wait_until(lambda: is_full(broker), "the disk to be full", seconds_max=FULL_SECONDS_MAX)
            broker.process.kill()
            broker = start()
            assert is_full(broker)
            before = check(load, broker)
            deleted = [TopicPartition("load", partition, end) for partition, end in enumerate(before)]
            for done in admin.delete_records(deleted).values():
                done.result(30)
            load.wait_acknowledged(1)
        assert check(load, broker) == load.sent
        assert broker.process.stop() == 0


def check(load: Load, broker: Penstock) -> list[int]:
    """The end of each partition, after every record was found at its offset, and none that was acknowledged missing."""
    acknowledged = dict(load.acknowledged)
    ends: list[int] = []
    for partition, rows in consume_all(broker.bootstrap, "load", PARTITIONS).items():
        first = rows[0][0]
        assert [offset for offset, _, _ in rows] == list(range(first, first + len(rows)))
        assert all(int(key) == offset for offset, key, _ in rows)
        assert all(value.startswith(b"%d %b " % (partition, key)) for _, key, value in rows)
        ends.append(first + len(rows))
    assert all(offset == number for (_, offset), number in acknowledged.items())
    assert all(offset < ends[partition] for partition, offset in acknowledged)
    return ends
