"""What people are shown of topics as tables."""

from dataclasses import replace

import pytest

from agent.views.tables import index_page, lake_details, lake_rows
from coordinator.state.state import TableState
from iceberg_export.tables.metadata import encode
from protocol.types import ObjectId
from storage.object_store import StoreUnavailable
from storage.refs import ObjectKind
from tests.support.agent.small_agent import TOPIC_ID, SmallAgent, rows_of
from tests.support.lake.table_fixtures import MadeTable, data_file

METADATA_KEY = "lake/orders-07/metadata/1-2.metadata.json"


@pytest.fixture
def agent() -> SmallAgent:
    """The table of `orders` holds its one archived file."""
    agent = SmallAgent()
    topic = agent.state.topics[TOPIC_ID]
    known = agent.state.objects[ObjectId(1)]
    agent.state.objects[ObjectId(3)] = type(known)(
        key=METADATA_KEY, kind=ObjectKind.TABLE_METADATA, object_bytes=70, references=1
    )
    topic.table = TableState(metadata_key=METADATA_KEY, version=4, objects={ObjectId(1), ObjectId(3)})
    return agent


def test_a_list_tells_files_and_lag_of_each_table(agent: SmallAgent) -> None:
    assert lake_rows(agent.state, 10) == [
        {
            "topic": "orders",
            "version": 4,
            "files": 1,
            "bytes": 500,
            "older_files": 0,
            "older_bytes": 0,
            "metadata_bytes": 70,
            "waiting_bytes": 100,
            "behind": 5,
        }
    ]
    assert lake_rows(agent.state, 0) == []


def test_what_the_log_let_go_of_is_distinguished(agent: SmallAgent) -> None:
    table = agent.state.topics[TOPIC_ID].table
    assert table is not None
    agent.state.objects[ObjectId(4)] = replace(agent.state.objects[ObjectId(1)], object_bytes=30, references=1)
    table.objects.add(ObjectId(4))
    table.unneeded.add(ObjectId(4))
    (row,) = lake_rows(agent.state, 10)
    assert [row[name] for name in ("files", "bytes", "older_files", "older_bytes")] == [1, 500, 1, 30]


async def test_details_tell_the_last_snapshot_and_what_the_next_pass_takes(agent: SmallAgent) -> None:
    prepared = await MadeTable().commit(data_file(0), data_file(1))
    await agent.store.put(METADATA_KEY, [encode(prepared.metadata)])
    shown = await lake_details(agent.ledger, agent.store, "orders")
    assert shown is not None
    assert (shown["records"], shown["snapshots"], shown["last_operation"]) == (20, 1, "append")
    assert (shown["files"], shown["leaving"]) == (1, 1), "the log needs one of the snapshot's two files"
    assert (shown["next_pass_chunks"], shown["next_pass_bytes"]) == (1, 100)
    assert shown["metadata"] == METADATA_KEY


async def test_a_table_without_a_commit_has_no_snapshot(agent: SmallAgent) -> None:
    agent.state.topics[TOPIC_ID].table = None
    shown = await lake_details(agent.ledger, agent.store, "orders")
    assert shown is not None
    assert (shown["metadata"], shown["snapshots"], shown["files"]) == (None, 0, 0)


async def test_a_topic_that_is_not_there_has_no_table(agent: SmallAgent) -> None:
    assert await lake_details(agent.ledger, agent.store, "none") is None


async def test_metadata_that_stays_away_is_told(agent: SmallAgent) -> None:
    with pytest.raises(StoreUnavailable, match="penstock audit"):
        await lake_details(agent.ledger, agent.store, "orders")


def test_pages_of_the_index_are_the_whole_of_it(agent: SmallAgent) -> None:
    topic = agent.state.topics[TOPIC_ID]
    archived = topic.partitions[0].index.row(0)
    second = topic.partitions[1].index
    for number in range(3):
        second.append(10 * number + 10, 1, 0, 100, -1, -1)
        second.replace(number, number + 1, [second.row(number)._replace(row_group=1, row_first=number, row_count=1)])
    whole = index_page(agent.state, topic, after=0, limit=10)
    rows = whole["rows"]
    key = agent.state.objects[ObjectId(1)].key
    assert rows == [
        [0, key, archived.offset_first, archived.offset_end, 0, 0, 9],
        *([1, key, 10 * number, 10 * number + 10, 1, number, 1] for number in range(3)),
    ]
    assert whole["partitions"] == [[0, 10], [0, 30]]
    assert (whole["metadata"], whole["is_last"]) == (METADATA_KEY, True)
    paged = [index_page(agent.state, topic, after=after, limit=1) for after in range(5)]
    assert [row for page in paged for row in rows_of(page, "rows")] == rows
    assert [page["is_last"] for page in paged] == [False, False, False, True, True]
    assert {page["moment"] for page in paged} == {whole["moment"]}
