"""A start over a store from which packs were moved away says so."""

import logging

import pytest

from agent.bucket.missing_objects import report_missing
from coordinator.state.state import ClusterState, ObjectState
from protocol.types import ObjectId, ObjectNumber, SessionId
from storage.memory_store import MemoryStore
from storage.refs import ObjectKind, intake_key


async def test_what_the_state_needs_and_the_store_has_not_is_logged_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state, store = ClusterState(cluster_id="c", incarnation=1), MemoryStore()
    keys = [intake_key(SessionId(1), ObjectNumber(number)) for number in range(3)]
    for number, key in enumerate(keys):
        state.objects[ObjectId(number)] = ObjectState(key=key, kind=ObjectKind.INTAKE, object_bytes=1, references=1)
        await store.put(key, [b"x"])
    await report_missing(store, state)
    assert caplog.records == []
    await store.delete(keys[1:])
    with caplog.at_level(logging.ERROR):
        await report_missing(store, state)
    (line,) = caplog.records
    assert "Objects are missing" in line.message
    assert (vars(line)["objects"], vars(line)["key"]) == (2, keys[1])
