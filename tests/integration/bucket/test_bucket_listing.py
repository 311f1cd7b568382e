"""The comparison behind `test_one_copy` can fail: what is planted in a real bucket, or left out of it, is named."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.chunk_format import ChunkFormatError
from tests.support.lake.archiving import AT_ONCE, archive_and_clean, archive_by_http
from tests.support.lake.bucket_listing import INTAKE, Listing, faults, list_bucket, local_bucket
from tests.support.lake.flight_events import Event, Flights, LogHash, PartitionHash, create_topic, differences, produce
from tests.support.packs.pack_files import (
    PackDamaged,
    PackedObject,
    damage_object,
    plant_object,
    read_packed,
    remove_object,
)
from tests.support.services.local_services import PenstockFactory

TOPIC = "flights"
RECORDS = 1_000
COPY = f"{7:016x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The folder of a store: one Parquet file and a tail of one intake object, all of a single partition."""

    folder: Path
    archived_intake: dict[str, bytes]
    """What the archive has replaced, by key."""
    log: LogHash

    def planted(self, plant: Callable[["Sample"], None], folder: Path) -> "Sample":
        """A copy of this bucket with a fault in it."""
        shutil.copytree(self.folder, folder)
        copy = Sample(folder=folder, archived_intake=self.archived_intake, log=self.log)
        plant(copy)
        return copy

    def listing(self, *, with_records: bool = False) -> Listing:
        return list_bucket(local_bucket(self.folder), with_records=with_records)

    def faults(self) -> list[str]:
        return faults(self.listing(), {partition: hashed.count for partition, hashed in self.log.items()})

    @property
    def file(self) -> Path:
        (file,) = self.folder.glob("lake/*/data/*.parquet")
        return file

    @property
    def tail(self) -> PackedObject:
        (place,) = (place for key, place in local_bucket(self.folder).objects().items() if INTAKE.fullmatch(key))
        assert isinstance(place, PackedObject), "the intake of this broker lies in packs"
        return place

    @property
    def tail_content(self) -> bytes:
        return read_packed(local_bucket(self.folder).files, self.tail)

    def rewrite(self, change: Callable[[pa.Table], pa.Table]) -> None:
        pq.write_table(change(pq.read_table(self.file)), self.file)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    with ExitStack() as stack:
        broker = PenstockFactory(folder=tmp_path_factory.mktemp("broker"), stack=stack)(
            options=AT_ONCE, has_journal=False
        )
        folder = broker.data / "store"
        store = local_bucket(folder)
        create_topic(broker.bootstrap, TOPIC, 1)
        log, events = {0: PartitionHash()}, Flights(RECORDS).events()
        produce(broker.bootstrap, TOPIC, events, log, count=RECORDS // 2)
        intake = {key: store.read(key, place) for key, place in store.objects().items() if INTAKE.fullmatch(key)}
        assert archive_and_clean(broker, store, TOPIC, archive_by_http) == RECORDS // 2
        produce(broker.bootstrap, TOPIC, events, log)
        broker.process.stop()
        yield Sample(folder=folder, archived_intake=intake, log=log)


def test_a_sound_bucket_has_no_faults(bucket: Sample) -> None:
    assert bucket.faults() == []
    assert differences(bucket.listing(with_records=True).records, bucket.log) == []


def file_twice(bucket: Sample) -> None:
    shutil.copy(bucket.file, bucket.file.with_name(f"{COPY}-{COPY}.parquet"))


def one_record_twice(bucket: Sample) -> None:
    bucket.rewrite(lambda table: pa.concat_tables([table, table.slice(17, 1)]))


def archived_intake_left(bucket: Sample) -> None:
    for key, content in bucket.archived_intake.items():
        plant_object(bucket.folder, key, content)


def tail_twice(bucket: Sample) -> None:
    plant_object(bucket.folder, f"intake/{COPY}/{COPY}", bucket.tail_content)


def file_lost(bucket: Sample) -> None:
    bucket.file.unlink()


def records_lost(bucket: Sample) -> None:
    bucket.rewrite(lambda table: pa.concat_tables([table.slice(0, 17), table.slice(20)]))


def tail_lost(bucket: Sample) -> None:
    remove_object(bucket.folder, bucket.tail)


def unfinished_left(bucket: Sample) -> None:
    (bucket.folder / ".incomplete").mkdir(exist_ok=True)
    (bucket.folder / ".incomplete" / "1").write_bytes(b"")


def no_pack(bucket: Sample) -> None:
    (bucket.folder / ".packs" / "1.tmp").write_bytes(b"")


def other_name(bucket: Sample) -> None:
    shutil.copy(bucket.file, bucket.file.with_name("part-0.parquet"))


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (file_twice, "partition 0: offsets [0, 500) more than once"),
        (one_record_twice, "partition 0: offsets [17, 18) more than once"),
        (archived_intake_left, "partition 0: offsets [1000, 1500) beyond the log's end"),
        (tail_twice, "partition 0: offsets [1000, 1500) beyond the log's end"),
        (file_lost, "partition 0: offsets [500, 1000) missing"),
        (records_lost, "partition 0: offsets [17, 20) missing"),
        (tail_lost, "partition 0: offsets [500, 1000) missing"),
        (unfinished_left, ".incomplete/1: neither data nor the cluster's own"),
        (other_name, "part-0.parquet: neither data nor the cluster's own"),
        (no_pack, ".packs/1.tmp: neither data nor the cluster's own"),
    ],
)
def test_a_planted_fault_is_named(bucket: Sample, plant: Callable[[Sample], None], found: str, tmp_path: Path) -> None:
    (fault,) = bucket.planted(plant, tmp_path / "store").faults()
    assert fault.endswith(found)


def damaged(bucket: Sample) -> bytes:
    content = bytearray(bucket.tail_content)
    content[100] ^= 1
    return bytes(content)


def damage_on_the_disk(bucket: Sample) -> None:
    damage_object(bucket.folder, bucket.tail, 100, damaged(bucket)[100:101])


def damage_before_the_put(bucket: Sample) -> None:
    content = damaged(bucket)
    remove_object(bucket.folder, bucket.tail)
    plant_object(bucket.folder, f"intake/{COPY}/{COPY}", content)


@pytest.mark.parametrize(
    ("damage", "error"), [(damage_on_the_disk, PackDamaged), (damage_before_the_put, ChunkFormatError)]
)
def test_a_damaged_object_is_not_counted(
    bucket: Sample, damage: Callable[[Sample], None], error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error, match="checksum"):
        bucket.planted(damage, tmp_path / "store").faults()


@pytest.mark.parametrize("column", ["key", "value", "timestamp", "headers"])
def test_a_changed_record_is_noticed(bucket: Sample, column: str, tmp_path: Path) -> None:
    def swap_two(table: pa.Table) -> pa.Table:
        order = np.arange(len(table))
        order[[0, 1]] = order[[1, 0]]
        return table.set_column(table.column_names.index(column), table.field(column), table[column].take(order))

    changed = bucket.planted(lambda copy: copy.rewrite(swap_two), tmp_path / "store")
    assert changed.faults() == []
    assert differences(changed.listing(with_records=True).records, bucket.log) == [
        "partition 0: they part between offsets 0 and 1000"
    ]


class TestHashes:
    @staticmethod
    def hashed(events: list[Event]) -> LogHash:
        log = {0: PartitionHash()}
        for offset, event in enumerate(events):
            log[0].add(offset, event.timestamp, event.key, event.value, event.headers)
        return log

    def test_the_block_that_differs_is_named(self) -> None:
        events = list(Flights(25_000).events())
        swapped = [*events[:12_000], events[12_001], events[12_000], *events[12_002:]]
        whole = self.hashed(events)
        assert differences(whole, self.hashed(events)) == []
        assert differences(whole, self.hashed(swapped)) == ["partition 0: they part between offsets 10000 and 20000"]
        assert differences(whole, self.hashed(events[:-1])) == ["partition 0: 25000 records here, 24999 there"]
        last = [*events[:-1], events[0]]
        assert differences(whole, self.hashed(last)) == ["partition 0: they part between offsets 20000 and 25000"]

    def test_an_offset_that_is_skipped_or_comes_again_is_refused(self) -> None:
        hashed = PartitionHash()
        hashed.add(0, 0, None, b"", None)
        for offset in (0, 2):
            with pytest.raises(AssertionError, match="1 was due"):
                hashed.add(offset, 0, None, b"", None)

    def test_null_and_empty_are_not_the_same(self) -> None:
        null, empty = PartitionHash(), PartitionHash()
        null.add(0, 0, None, b"", None)
        empty.add(0, 0, b"", b"", None)
        assert null.difference(empty) == "they part between offsets 0 and 1"
