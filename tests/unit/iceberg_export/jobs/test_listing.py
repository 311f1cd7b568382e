"""What a verification finds in a table's metadata; each fault planted by itself in what real commits wrote."""

import asyncio
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastavro import reader, writer

from iceberg_export.jobs.listing import TableListing, list_table
from iceberg_export.spark.bucket import Bucket
from iceberg_export.tables.metadata import decode, encode
from storage.refs import MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX
from tests.support.lake.table_fixtures import ROOT, MadeTable, data_file


class Made:
    """A table of two commits, and its bucket, in which objects can be changed."""

    def __init__(self) -> None:
        self.table = MadeTable()
        asyncio.run(self._commit())
        self.bucket = Bucket(self.table.store)

    async def _commit(self) -> None:
        await self.table.commit(data_file(0), data_file(1), offsets={0: (0, 10), 1: (10, 20)})
        await self.table.commit(data_file(2))

    def listing(self) -> TableListing:
        return list_table(self.bucket, self.table.metadata_key)

    def key(self, suffix: str) -> str:
        """Of the last object of that kind that the table needs."""
        return max(key for key in self.table.objects if key.endswith(suffix) and "/data/" not in key)

    def change(self, key: str, change: Callable[[bytes], bytes]) -> None:
        self.bucket.run(self.table.store.put(key, [change(self.bucket.get(key))]))

    def delete(self, key: str) -> None:
        self.bucket.run(self.table.store.delete([key]))


@pytest.fixture
def made() -> Iterator[Made]:
    made = Made()
    yield made
    made.bucket.close()


def test_the_files_of_a_table_that_is_whole(made: Made) -> None:
    listing = made.listing()
    assert listing.findings == []
    assert {file.key for file in listing.files} == {data_file(number).key for number in range(3)}
    assert listing.named >= {made.table.metadata_key, made.key(MANIFEST_LIST_SUFFIX), made.key(MANIFEST_SUFFIX)}
    assert len(listing.snapshots) == 2
    assert list_table(made.bucket, "") == TableListing(), "a table without a commit"


def test_a_table_under_another_name_of_its_bucket(made: Made) -> None:
    """The agents know it by the URL in the metadata."""
    assert made.table.root == ROOT
    assert all(file.key.startswith("lake/") for file in made.listing().files)


@pytest.mark.parametrize("suffix", ["", MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX])
def test_an_object_that_is_not_there(made: Made, suffix: str) -> None:
    key = made.key(suffix) if suffix else made.table.metadata_key
    made.delete(key)
    listing = made.listing()
    assert listing.missing == {key}
    assert key in listing.named
    (found,) = listing.findings
    assert (found.file, found.what) == (key, "it is not in the bucket")


@pytest.mark.parametrize("suffix", ["", MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX])
def test_an_object_that_is_damaged(made: Made, suffix: str) -> None:
    key = made.key(suffix) if suffix else made.table.metadata_key
    made.change(key, lambda data: data[:-30])
    listing = made.listing()
    assert listing.missing == set()
    assert listing.findings
    assert {found.file for found in listing.findings} == {key}


def test_a_manifest_of_another_size(made: Made) -> None:
    made.change(made.key(MANIFEST_SUFFIX), _with_field("record_count", 1_000_000))
    sizes, rows, *_ = made.listing().findings
    assert "bytes, the manifest list says" in sizes.what
    assert "lists files of (1000000, 0) live and deleted rows, but the manifest list says (10, 0)" in rows.what


def test_a_file_that_stands_in_two_manifests(made: Made) -> None:
    first = min(key for key in made.table.objects if key.endswith(MANIFEST_SUFFIX))
    made.change(first, _with_field("file_path", f"{ROOT}/{data_file(2).key}"))
    listing = made.listing()
    assert any(found.what == "the table names it 2 times: its rows are doubled" for found in listing.findings)
    assert len(listing.files) == 2


def test_totals_that_are_not_those_of_the_files(made: Made) -> None:
    def change(data: bytes) -> bytes:
        metadata = decode(data)
        metadata.snapshots[-1].summary["total-records"] = "29"
        return encode(metadata)

    made.change(made.table.metadata_key, change)
    (found,) = made.listing().findings
    assert found.what == "its manifests have total-records 30, but the snapshot's summary says 29"


def _with_field(name: str, value: object) -> Callable[[bytes], bytes]:
    """Changes it in a manifest's first entry."""

    def change(data: bytes) -> bytes:
        found = reader(io.BytesIO(data))
        rows: list[Any] = list(found)
        rows[0]["data_file"][name] = value
        sink = io.BytesIO()
        assert found.writer_schema is not None
        writer(sink, found.writer_schema, rows)
        return sink.getvalue()

    return change
