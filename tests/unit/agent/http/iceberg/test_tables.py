"""Tables as the ledger names them: behind a barrier, from memory where they are, never an older one."""

import json
from uuid import UUID

import pytest

from agent.http.iceberg import tables as catalog_tables
from agent.http.iceberg.tables import CatalogTables, NoSuchTopic, with_named_snapshots
from coordinator.ledger.port import LedgerUnavailable
from coordinator.state.state import TableState
from iceberg_export.tables.metadata import empty_metadata, encode
from storage.object_store import ObjectDamaged, StoreUnavailable
from tests.support.agent.small_agent import TOPIC_ID, SmallAgent

ROOT = "s3://bucket/prefix"
FOLDER = f"lake/orders-{TOPIC_ID.hex()}/"
FIRST, SECOND = f"{FOLDER}metadata/first.metadata.json", f"{FOLDER}metadata/second.metadata.json"


class TableAgent(SmallAgent):
    """Counts barriers; `after_barrier` says where the metadata of `orders` is from the end of each on."""

    def __init__(self) -> None:
        super().__init__()
        self.barriers = 0
        self.after_barrier: dict[int, str] = {}
        self.ledger.before_end = self._count_barrier

    def point(self, key: str) -> None:
        self.state.topics[TOPIC_ID].table = TableState(metadata_key=key, version=1, objects=set())

    def _count_barrier(self) -> None:
        self.barriers += 1
        if self.barriers in self.after_barrier:
            self.point(self.after_barrier[self.barriers])


@pytest.fixture
def agent() -> TableAgent:
    return TableAgent()


@pytest.fixture
def tables(agent: TableAgent) -> CatalogTables:
    return CatalogTables(services=agent.services, root_uri=ROOT)


async def test_a_topic_without_a_commit_is_an_empty_table(tables: CatalogTables) -> None:
    table = await tables.load("orders")
    metadata = json.loads(table.metadata)
    assert (table.folder, table.metadata_uri) == (FOLDER, None)
    assert metadata["location"] == f"{ROOT}/{FOLDER[:-1]}"
    assert UUID(metadata["table-uuid"]).bytes == TOPIC_ID
    assert metadata["snapshots"] == []
    assert await tables.load("orders") == table


async def test_a_table_is_what_the_object_says_that_the_ledger_names(agent: TableAgent, tables: CatalogTables) -> None:
    await agent.store.put(FIRST, [b'{"a": 1}'])
    agent.point(FIRST)
    table = await tables.load("orders")
    assert (table.metadata, table.metadata_uri) == (b'{"a": 1}', f"{ROOT}/{FIRST}")


async def test_what_the_ledger_says_is_asked_each_time(agent: TableAgent, tables: CatalogTables) -> None:
    for key in (FIRST, SECOND):
        await agent.store.put(key, [json.dumps({"key": key}).encode()])
    agent.after_barrier = {1: FIRST, 2: SECOND}
    for key in (FIRST, SECOND):
        assert json.loads((await tables.load("orders")).metadata) == {"key": key}
    agent.backend.is_reachable = False
    with pytest.raises(LedgerUnavailable):
        await tables.load("orders")


async def test_metadata_is_read_once(agent: TableAgent, tables: CatalogTables) -> None:
    await agent.store.put(FIRST, [b"{}"])
    agent.point(FIRST)
    await tables.load("orders")
    await agent.store.delete([FIRST])
    assert (await tables.load("orders")).metadata == b"{}"


async def test_memory_has_a_bound(agent: TableAgent, tables: CatalogTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_tables, "CATALOG_METADATA_CACHED_BYTES_MAX", 8)
    for key in (FIRST, SECOND):
        await agent.store.put(key, [b'{"a":1}'])
        agent.point(key)
        await tables.load("orders")
    await agent.store.delete([FIRST, SECOND])
    await tables.load("orders")
    agent.point(FIRST)
    with pytest.raises(StoreUnavailable):
        await tables.load("orders")
    await agent.store.put(FIRST, [b'{"too": "large"}'])
    assert (await tables.load("orders")).metadata == b'{"too": "large"}'


async def test_metadata_that_is_gone_was_replaced_meanwhile(agent: TableAgent, tables: CatalogTables) -> None:
    await agent.store.put(SECOND, [b"{}"])
    agent.after_barrier = {1: FIRST, 2: FIRST, 3: SECOND}
    assert (await tables.load("orders")).metadata_uri == f"{ROOT}/{SECOND}"
    assert agent.barriers == 3


async def test_metadata_that_stays_away_is_an_error(agent: TableAgent, tables: CatalogTables) -> None:
    agent.point(FIRST)
    with pytest.raises(StoreUnavailable, match="lacks the metadata of table orders"):
        await tables.load("orders")
    assert agent.barriers == 3


@pytest.mark.parametrize("damaged", [b"", b"[]", b'{"a": ', b"\x1f\x8b"])
async def test_what_is_no_metadata_is_not_told(agent: TableAgent, tables: CatalogTables, damaged: bytes) -> None:
    await agent.store.put(FIRST, [damaged])
    agent.point(FIRST)
    with pytest.raises(ObjectDamaged, match=r"first\.metadata\.json is not a table's metadata"):
        await tables.load("orders")


async def test_metadata_with_a_flipped_bit_or_of_another_object_is_rejected(
    agent: TableAgent, tables: CatalogTables
) -> None:
    """Engines would read it without an error (safety rule S20)."""
    metadata = encode(empty_metadata(name="orders", topic_id=TOPIC_ID, location=ROOT, created_ms=0), FIRST)
    await agent.store.put(FIRST, [metadata.replace(b'"partition"', b'"qartition"', 1)])
    await agent.store.put(SECOND, [metadata])
    for key, message in ((FIRST, "the checksum of the table metadata is"), (SECOND, "is a copy of the table metadata")):
        agent.point(key)
        with pytest.raises(ObjectDamaged, match=message):
            await tables.load("orders")


async def test_an_unknown_table_is_unknown_behind_a_barrier(agent: TableAgent, tables: CatalogTables) -> None:
    for asked in (tables.load("none"), tables.folder("none")):
        with pytest.raises(NoSuchTopic):
            await asked
    assert not await tables.exists("none")
    assert await tables.exists("orders")
    assert await tables.names() == ["orders"]
    assert await tables.folder("orders") == FOLDER
    assert agent.barriers == 6


def test_named_snapshots_alone_stay_as_they_are() -> None:
    metadata = {
        "last-sequence-number": 3,
        "snapshots": [{"snapshot-id": number, "summary": {"x": "é"}} for number in (1, 2, 3)],
        "refs": {"main": {"snapshot-id": 3, "type": "branch"}, "kept": {"snapshot-id": 1, "type": "tag"}},
    }
    found = json.loads(with_named_snapshots(json.dumps(metadata).encode()))
    assert found == {**metadata, "snapshots": [{"snapshot-id": number, "summary": {"x": "é"}} for number in (1, 3)]}
    assert json.loads(with_named_snapshots(b'{"a": 1}')) == {"a": 1, "snapshots": []}
