"""A Fetch request in one shape for all versions, and what is malformed."""

from datetime import timedelta
from uuid import UUID

import pytest

from agent.fetch import fetch_request
from agent.fetch.fetch_request import FetchRequest, read_fetch_request
from agent.fetch.sessions import RequestedPartition, TopicKey
from protocol.api_versions import ApiKey, range_of
from protocol.errors import MalformedRequest
from protocol.types import TopicId
from tests.support.handlers.handler_client import frame_of

ROW = range_of(ApiKey.FETCH)
assert ROW is not None
VERSIONS = range(ROW.version_served_min, ROW.version_max + 1)
TOPIC_ID = UUID(int=7)


def sent(version: int, *, partitions: int = 1, topic_id: UUID | None = TOPIC_ID, replica: int = -1) -> FetchRequest:
    """A request as its agent reads it: of partitions from 5 on, twice each, in a session that forgets two others."""
    topic = {"topic": "t"} if version < 13 else {"topic_id": topic_id}
    partition: dict[str, object] = {"partition_max_bytes": 4_096}
    if version >= 5:
        partition["log_start_offset"] = 3
    if version >= 9:
        partition["current_leader_epoch"] = 4
    if version >= 12:
        partition["last_fetched_epoch"] = 2
    rows = [
        partition | {"partition": 5 + index, "fetch_offset": offset}
        for offset in (1, 42)
        for index in range(partitions)
    ]
    values: dict[str, object] = {
        "max_wait": timedelta(milliseconds=500),
        "min_bytes": 1,
        "max_bytes": 65_536,
        "isolation_level": 9,
        "topics": [topic | {"partitions": rows}],
    }
    if version >= 7:
        values |= {"session_id": 8, "session_epoch": 6, "forgotten_topics_data": [topic | {"partitions": [1, 2]}]}
    if version >= 11:
        values["rack_id"] = "r"
    if version < 15:
        values["replica_id"] = replica
    elif replica >= 0:
        values["replica_state"] = {"replica_id": replica, "replica_epoch": 1}
    return read_fetch_request(frame_of(ApiKey.FETCH, version, values))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version(version: int) -> None:
    topic: TopicKey = "t" if version < 13 else TopicId(TOPIC_ID.bytes)
    has_session = version >= 7
    assert sent(version) == FetchRequest(
        max_wait_ms=500,
        bytes_min=1,
        bytes_max=65_536,
        isolation_level=9,
        session_id=8 if has_session else 0,
        session_epoch=6 if has_session else -1,
        requested=[
            RequestedPartition(
                topic=topic,
                partition=5,
                fetch_offset=42,
                partition_max_bytes=4_096,
                current_leader_epoch=4 if version >= 9 else -1,
                last_fetched_epoch=2 if version >= 12 else -1,
            )
        ],
        forgotten=[(topic, 1), (topic, 2)] if has_session else (),
        rack="r" if version >= 11 else "",
        is_replica=False,
    )


@pytest.mark.parametrize("version", [4, 14, 15, 18])
def test_a_follower_names_its_id(version: int) -> None:
    assert sent(version, replica=0).is_replica


def test_the_zero_id_is_an_id() -> None:
    assert sent(13, topic_id=None).requested[0].topic == TopicId(bytes(16))


def test_more_partitions_than_any_client_has_are_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_request, "FETCH_PARTITIONS_MAX", 4)
    assert len(sent(4, partitions=2).requested) == 2
    with pytest.raises(MalformedRequest, match="6 partitions"):
        sent(4, partitions=3)
