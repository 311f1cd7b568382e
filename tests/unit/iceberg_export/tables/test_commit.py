"""Commits: what they leave in the bucket, what they say to the ledger, and what they release."""

import pytest

from iceberg_export.tables.manifest_changes import FilesNotInTable
from iceberg_export.tables.metadata import TableUnreadable, decode
from iceberg_export.tables.table_reader import TableCache
from protocol.limits import (
    TABLE_MANIFESTS_PER_LEVEL_MAX,
    TABLE_SNAPSHOTS_EXPIRED_AT_ONCE,
    TABLE_SNAPSHOTS_MAX,
)
from storage.failing import FailingStore
from tests.made_tables import MadeTable, data_file


async def test_the_first_commit_replaces_nothing_and_names_all_that_it_put() -> None:
    table = MadeTable()
    prepared = await table.commit(data_file(1), offsets={1: (10, 20)})
    entry = prepared.table
    assert (entry.replaces, entry.released) == ("", ())
    assert entry.data_files == (data_file(1).key,)
    assert [made.key.split(".", 1)[1] for made in entry.added] == ["manifest.avro", "snap.avro"]
    for made in (entry.metadata, *entry.added):
        assert len(await table.store.get(made.key)) == made.object_bytes
    assert await table.store.get(entry.metadata.key) == prepared.metadata_json
    assert decode(prepared.metadata_json) == prepared.metadata
