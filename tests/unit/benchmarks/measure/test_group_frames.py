"""The bytes of members of groups, as kio reads and writes them."""

import pytest
from kio.schema.errors import ErrorCode

from benchmarks.measure import group_frames as frames
from tests.support.records.kio_messages import (
    KioEntity,
    kio_read,
    kio_write,
    made,
    request_module,
    response_module,
    to_timedelta,
)

HEADER_BYTES = 14
"""Size, API key, version, correlation id, and no client id."""


def request(api_key: int, name: str, frame: bytes) -> KioEntity:
    version = frames.VERSIONS[api_key]
    assert frame[:4] == (len(frame) - 4).to_bytes(4, "big")
    assert (frame[4:6], frame[6:8]) == (api_key.to_bytes(2, "big"), version.to_bytes(2, "big"))
    return kio_read(getattr(request_module(api_key, version), name), frame[HEADER_BYTES:])


def answer(api_key: int, name: str, **values: object) -> bytes:
    entity_type = getattr(response_module(api_key, frames.VERSIONS[api_key]), name)
    return kio_write(made(entity_type, throttle_time=to_timedelta(0), **values))


def test_a_member_joins_with_a_subscription() -> None:
    join = request(11, "JoinGroupRequest", frames.join("g", "m", "t", session_ms=6_000, rebalance_ms=60_000))
    assert (join.group_id, join.member_id, join.group_instance_id, join.protocol_type) == ("g", "m", None, "consumer")
    assert (join.session_timeout.seconds, join.rebalance_timeout.seconds) == (6, 60)
    (protocol,) = join.protocols
    assert protocol.name == "range"
    assert protocol.metadata == b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"


def test_a_leader_assigns_a_partition_to_each_member() -> None:
    sync = request(14, "SyncGroupRequest", frames.sync("g", 3, "m", "t", ["m", "n"]))
    assert (sync.group_id, sync.generation_id, sync.member_id) == ("g", 3, "m")
    assert [each.member_id for each in sync.assignments] == ["m", "n"]
    assert sync.assignments[1].assignment == (
        b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\1" + b"\xff\xff\xff\xff"
    )


def test_heartbeats_departures_and_what_is_looked_for_and_deleted() -> None:
    beat = request(12, "HeartbeatRequest", frames.heartbeat("g", 3, "m"))
    assert (beat.group_id, beat.generation_id, beat.member_id, beat.group_instance_id) == ("g", 3, "m", None)
    leave = request(13, "LeaveGroupRequest", frames.leave("g", ["m", "n"]))
    assert [each.member_id for each in leave.members] == ["m", "n"]
    assert request(10, "FindCoordinatorRequest", frames.find_coordinator("g")).key == "g"
    assert request(42, "DeleteGroupsRequest", frames.delete_groups(["g", "h"])).groups_names == ("g", "h")


def test_a_commit_is_made_again_with_another_offset() -> None:
    made_once = frames.CommitFrame("g", 3, "m", "t", 7)
    for offset in (1, 1 << 40):
        commit = request(8, "OffsetCommitRequest", made_once.with_offset(offset))
        assert (commit.group_id, commit.generation_id_or_member_epoch, commit.member_id) == ("g", 3, "m")
        (topic,) = commit.topics
        (partition,) = topic.partitions
        assert (topic.name, partition.partition_index, partition.committed_offset) == ("t", 7, offset)
        assert (partition.committed_leader_epoch, partition.committed_metadata) == (-1, None)


@pytest.mark.parametrize("error_code", [ErrorCode.none, ErrorCode.illegal_generation, ErrorCode.rebalance_in_progress])
def test_errors_are_found_in_answers(error_code: ErrorCode) -> None:
    beat = answer(12, "HeartbeatResponse", error_code=error_code)
    assert frames.read_error(beat) == error_code
    assert frames.read_error(answer(14, "SyncGroupResponse", error_code=error_code, assignment=b"a")) == error_code
    module = response_module(8, frames.VERSIONS[8])
    partition = module.OffsetCommitResponsePartition(partition_index=7, error_code=error_code)
    topics = (module.OffsetCommitResponseTopic(name="t", partitions=(partition,)),)
    assert frames.read_commit_error(answer(8, "OffsetCommitResponse", topics=topics)) == error_code
    found = answer(10, "FindCoordinatorResponse", error_code=error_code, node_id=1, host="h", port=1)
    assert frames.read_coordinator_error(found) == error_code


def test_a_leader_learns_the_members() -> None:
    module = response_module(11, frames.VERSIONS[11])
    members = tuple(
        module.JoinGroupResponseMember(member_id=name, group_instance_id=None, metadata=b"xyz") for name in ("m", "n")
    )
    told = answer(
        11,
        "JoinGroupResponse",
        error_code=ErrorCode.none,
        generation_id=5,
        protocol_name="range",
        leader="m",
        member_id="n",
        members=members,
    )
    assert frames.read_joined(told) == frames.Joined(0, 5, "m", "n", ["m", "n"])
