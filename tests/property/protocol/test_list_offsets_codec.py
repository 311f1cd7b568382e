"""The ListOffsets codec and kio read and write the same bytes, in every version."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from protocol.list_offsets import (
    NO_EPOCH,
    VERSION_MAX,
    VERSION_MIN,
    ListOffsetsRequest,
    OffsetQuery,
    PartitionOffset,
    TopicOffsetQueries,
    TopicOffsets,
    read_list_offsets_request,
    write_list_offsets_response,
)
from tests.support.records.kio_messages import (
    KioEntity,
    int32,
    int64,
    kio_read,
    kio_write,
    made,
    request_module,
    response_module,
    text,
    to_timedelta,
    view_of,
)

VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)
API_KEY = 2

wanted = st.builds(OffsetQuery, partition_index=int32, current_leader_epoch=int32, timestamp=int64)
told = st.builds(
    PartitionOffset,
    partition_index=int32,
    error_code=st.sampled_from(ErrorCode),
    timestamp=int64,
    offset=int64,
    leader_epoch=int32,
)
requests = st.builds(
    ListOffsetsRequest,
    isolation_level=st.integers(-128, 127),
    topics=st.lists(st.builds(TopicOffsetQueries, name=text, partitions=st.lists(wanted, max_size=4)), max_size=3),
)
answers = st.lists(st.builds(TopicOffsets, name=text, partitions=st.lists(told, max_size=4)), max_size=3)


def kio_request(request: ListOffsetsRequest, version: int) -> KioEntity:
    module = request_module(API_KEY, version)
    return made(
        module.ListOffsetsRequest,
        replica_id=-1,
        isolation_level=request.isolation_level,
        timeout=to_timedelta(5),
        topics=tuple(
            made(
                module.ListOffsetsTopic,
                name=topic.name,
                partitions=tuple(
                    made(module.ListOffsetsPartition, **partition._asdict()) for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def in_version(request: ListOffsetsRequest, version: int) -> ListOffsetsRequest:
    """What is left of the request in a version."""
    if version < 2:
        request = request._replace(isolation_level=0)
    if version < 4:
        topics = [
            topic._replace(partitions=[each._replace(current_leader_epoch=NO_EPOCH) for each in topic.partitions])
            for topic in request.topics
        ]
        request = request._replace(topics=topics)
    return request


@pytest.mark.parametrize("version", VERSIONS)
@given(request=requests)
def test_requests_are_read_as_kio_writes_them(version: int, request: ListOffsetsRequest) -> None:
    data = kio_write(kio_request(request, version))
    assert read_list_offsets_request(view_of(data), version) == in_version(request, version)


@pytest.mark.parametrize("version", VERSIONS)
@given(topics=answers)
def test_answers_are_written_as_kio_writes_them(version: int, topics: list[TopicOffsets]) -> None:
    module = response_module(API_KEY, version)
    entity = made(
        module.ListOffsetsResponse,
        throttle_time=to_timedelta(0),
        topics=tuple(
            made(
                module.ListOffsetsTopicResponse,
                name=topic.name,
                partitions=tuple(
                    made(module.ListOffsetsPartitionResponse, **each._asdict()) for each in topic.partitions
                ),
            )
            for topic in topics
        ),
    )
    head = struct.pack(">i", 7) + (b"\0" if version >= 6 else b"")
    written = b"".join(write_list_offsets_response(7, version, topics))
    assert written == head + kio_write(entity)
    assert kio_read(module.ListOffsetsResponse, written[len(head) :]) == entity
