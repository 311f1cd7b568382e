"""What people and programs are shown of the state."""

from agent.runtime.clock import SystemClock
from agent.runtime.yielding import CooperativeYield
from agent.views.state import (
    chunk_rows,
    object_rows,
    session_rows,
    state_summary,
    topic_details,
    topic_rows,
)
from coordinator.configs.config_types import ConfigSource
from coordinator.state.chunk_index import MarkerRow, marker_row
from protocol.types import Milliseconds, ProducerEpoch, ProducerId
from tests.support.agent.small_agent import INTAKE_KEY, PARQUET_KEY, TOPIC_ID, made_state, rows_of


async def test_a_topic_is_counted_over_its_partitions() -> None:
    assert await topic_rows(made_state(), CooperativeYield(SystemClock())) == [
        {
            "name": "orders",
            "id": "AAAAAAAAAAAAAAAAAAAABw",
            "partitions": 2,
            "records": 15,
            "chunks": 2,
            "bytes": 500,
        }
    ]


def test_a_partition_says_how_far_it_is_archived() -> None:
    details = topic_details(made_state().topics[TOPIC_ID], ())
    assert details["configs"] == {"cleanup.policy": "delete"}
    first, second = rows_of(details, "partition_list")
    assert (first["log_end"], first["archived_end"], first["chunks"]) == (15, 10, 2)
    assert (second["log_end"], second["archived_end"], second["chunks"]) == (0, 0, 0)


def test_a_config_says_where_it_is_from() -> None:
    layers = ((ConfigSource.STATIC_BROKER, {"log.retention.ms": "5"}),)
    shown = rows_of(topic_details(made_state().topics[TOPIC_ID], layers), "config_list")
    found = {row["config"]: (row["value"], row["source"]) for row in shown}
    assert found["cleanup.policy"] == ("delete", "DYNAMIC_TOPIC")
    assert found["retention.ms"] == ("5", "STATIC_BROKER")
    assert found["penstock.table.columns"] == ("raw", "DEFAULT")


def test_a_chunk_names_its_object_and_what_it_is_of_it() -> None:
    state = made_state()
    archived, tail = chunk_rows(state, state.topics[TOPIC_ID])
    assert archived == {
        "partition": 0,
        "offset_first": 0,
        "offset_end": 10,
        "object": PARQUET_KEY,
        "byte_first": 4,
        "byte_count": 400,
        "max_timestamp": 1_000,
        "row_group": 0,
        "row_first": 0,
        "row_count": 9,
    }
    assert (tail["object"], tail["offset_first"], tail["offset_end"]) == (INTAKE_KEY, 10, 15)
    assert "row_group" not in tail


def test_chunks_can_be_those_of_one_partition() -> None:
    state = made_state()
    assert list(chunk_rows(state, state.topics[TOPIC_ID], 1)) == []


def test_a_chunk_of_an_unknown_object_is_shown_as_such() -> None:
    state = made_state()
    state.objects.clear()
    assert next(chunk_rows(state, state.topics[TOPIC_ID]))["object"] == "unknown object 1"


def test_objects_are_live_or_released() -> None:
    rows = object_rows(made_state())
    assert [(row["key"], row["state"]) for row in rows] == [
        (INTAKE_KEY, "live"),
        (PARQUET_KEY, "live"),
        ("intake/1/9", "released"),
    ]


def test_the_summary_has_the_sessions() -> None:
    state = made_state()
    summary = state_summary(state)
    assert summary["sessions"] == session_rows(state)
    assert [summary[name] for name in ("topics", "partitions", "chunks", "objects", "objects_released")] == [
        1,
        2,
        2,
        2,
        1,
    ]
    assert session_rows(state)[0]["endpoints"] == ["IN://h:1"]


def test_a_marker_says_what_it_ends_and_that_it_stands_in_no_object() -> None:
    state = made_state()
    partition = state.topics[TOPIC_ID].partitions[0]
    bytes_before = partition.index.stored_bytes
    marker = MarkerRow(ProducerId(7), ProducerEpoch(2), is_commit=False, timestamp_ms=Milliseconds(1_234))
    partition.index.append_marker(marker_row(marker))
    *_, shown = chunk_rows(state, state.topics[TOPIC_ID])
    assert shown == {
        "partition": 0,
        "offset_first": 15,
        "offset_end": 16,
        "object": "none: the abort marker of a transaction",
        "byte_first": None,
        "byte_count": 0,
        "max_timestamp": 1_234,
        "producer_id": 7,
        "producer_epoch": 2,
    }
    assert partition.index.stored_bytes == bytes_before
