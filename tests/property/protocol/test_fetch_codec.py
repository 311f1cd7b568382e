"""The Fetch codec and kio read and write the same bytes, in every version."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from protocol.fetch import (
    VERSION_MAX,
    VERSION_MIN,
    AbortedTransaction,
    DivergingEpoch,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    FetchTopic,
    ForgottenTopic,
    read_fetch_request,
    write_fetch_response,
)
from protocol.leaders import LeaderAndEpoch, NodeEndpoint
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
    to_uuid,
    topic_id,
    view_of,
)

VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)
HIGH_WATERMARK_UNTOLD = (1 << 63) - 1

fetch_partitions = st.builds(
    FetchPartition,
    index=int32,
    fetch_offset=int64,
    bytes_max=int32,
    current_leader_epoch=int32,
    last_fetched_epoch=int32,
    log_start_offset=int64,
    replica_directory_id=st.none() | topic_id.filter(any),
    high_watermark=int64,
)
fetch_requests = st.builds(
    FetchRequest,
    max_wait_ms=int32,
    bytes_min=int32,
    bytes_max=int32,
    isolation_level=st.integers(-128, 127),
    topics=st.lists(
        st.builds(FetchTopic, name=text, topic_id=topic_id, partitions=st.lists(fetch_partitions, max_size=4)),
        max_size=3,
    ),
    forgotten_topics=st.lists(
        st.builds(ForgottenTopic, name=text, topic_id=topic_id, partitions=st.lists(int32, max_size=4)), max_size=3
    ),
    session_id=int32,
    session_epoch=int32,
    rack_id=text,
    replica_id=int32,
    replica_epoch=int64,
    cluster_id=st.none() | text,
)
buffers: st.SearchStrategy[bytes | bytearray | memoryview] = st.one_of(
    st.binary(max_size=200), st.binary(max_size=200).map(view_of), st.binary(max_size=200).map(bytearray)
)
fetch_responses = st.builds(
    FetchResponse,
    topics=st.lists(
        st.builds(
            FetchResponseTopic,
            name=text,
            topic_id=topic_id,
            partitions=st.lists(
                st.builds(
                    FetchResponsePartition,
                    index=int32,
                    error_code=st.sampled_from(ErrorCode),
                    high_watermark=int64,
                    last_stable_offset=int64,
                    log_start_offset=int64,
                    aborted_transactions=st.none()
                    | st.lists(st.builds(AbortedTransaction, producer_id=int64, offset_first=int64), max_size=3),
                    preferred_read_replica=int32,
                    records=st.none() | st.lists(buffers, max_size=3),
                    diverging_epoch=st.none() | st.builds(DivergingEpoch, epoch=st.integers(0, 9), end_offset=int64),
                    current_leader=st.none()
                    | st.builds(LeaderAndEpoch, leader_id=st.integers(0, 9), leader_epoch=int32),
                ),
                max_size=4,
            ),
        ),
        max_size=3,
    ),
    error_code=st.sampled_from(ErrorCode),
    session_id=int32,
    throttle_time_ms=int32,
    node_endpoints=st.lists(
        st.builds(NodeEndpoint, node_id=int32, host=text, port=int32, rack=st.none() | text), max_size=3
    ),
)


def kio_request(request: FetchRequest, version: int) -> KioEntity:
    module = request_module(1, version)
    values: dict[str, Any] = {}
    if version >= 7:
        values["forgotten_topics_data"] = tuple(
            made(
                module.ForgottenTopic,
                topic=topic.name,
                topic_id=to_uuid(topic.topic_id),
                partitions=tuple(topic.partitions),
            )
            for topic in request.forgotten_topics
        )
    if version >= 15:
        values["replica_state"] = module.ReplicaState(
            replica_id=request.replica_id, replica_epoch=request.replica_epoch
        )
    return made(
        module.FetchRequest,
        replica_id=request.replica_id,
        max_wait=to_timedelta(request.max_wait_ms),
        min_bytes=request.bytes_min,
        max_bytes=request.bytes_max,
        isolation_level=request.isolation_level,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        rack_id=request.rack_id,
        cluster_id=request.cluster_id,
        topics=tuple(
            made(
                module.FetchTopic,
                topic=topic.name,
                topic_id=to_uuid(topic.topic_id),
                partitions=tuple(kio_request_partition(module, partition) for partition in topic.partitions),
            )
            for topic in request.topics
        ),
        **values,
    )


def kio_request_partition(module: ModuleType, partition: FetchPartition) -> KioEntity:
    directory_id = partition.replica_directory_id
    return made(
        module.FetchPartition,
        partition=partition.index,
        current_leader_epoch=partition.current_leader_epoch,
        fetch_offset=partition.fetch_offset,
        last_fetched_epoch=partition.last_fetched_epoch,
        log_start_offset=partition.log_start_offset,
        partition_max_bytes=partition.bytes_max,
        replica_directory_id=None if directory_id is None else to_uuid(directory_id),
        high_watermark=partition.high_watermark,
    )


def forget_what_is_newer(partition: FetchPartition, version: int) -> None:
    if version < 5:
        partition.log_start_offset = -1
    if version < 9:
        partition.current_leader_epoch = -1
    if version < 12:
        partition.last_fetched_epoch = -1
    if version < 17:
        partition.replica_directory_id = None
    if version < 18:
        partition.high_watermark = HIGH_WATERMARK_UNTOLD


def as_version_tells(request: FetchRequest, version: int) -> FetchRequest:
    """The request without what its version cannot tell."""
    topics: list[FetchTopic | ForgottenTopic] = [*request.topics, *request.forgotten_topics]
    for topic in topics:
        if version >= 13:
            topic.name = None
        else:
            topic.topic_id = None
    for wanted in request.topics:
        for partition in wanted.partitions:
            forget_what_is_newer(partition, version)
    if version < 7:
        request.session_id, request.session_epoch, request.forgotten_topics = 0, -1, []
    if version < 11:
        request.rack_id = ""
    if version < 12:
        request.cluster_id = None
    if version < 15:
        request.replica_epoch = -1
    return request


def kio_response_partition(module: ModuleType, partition: FetchResponsePartition) -> KioEntity:
    values: dict[str, Any] = {}
    aborted = partition.aborted_transactions
    if hasattr(module, "EpochEndOffset"):
        if partition.diverging_epoch is not None:
            values["diverging_epoch"] = module.EpochEndOffset(
                epoch=partition.diverging_epoch.epoch, end_offset=partition.diverging_epoch.end_offset
            )
        if partition.current_leader is not None:
            values["current_leader"] = module.LeaderIdAndEpoch(
                leader_id=partition.current_leader.leader_id, leader_epoch=partition.current_leader.leader_epoch
            )
    return made(
        module.PartitionData,
        partition_index=partition.index,
        error_code=partition.error_code,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else tuple(
            module.AbortedTransaction(producer_id=transaction.producer_id, first_offset=transaction.offset_first)
            for transaction in aborted
        ),
        preferred_read_replica=partition.preferred_read_replica,
        records=None if partition.records is None else b"".join(partition.records),
        **values,
    )


def kio_response(response: FetchResponse, version: int) -> KioEntity:
    module = response_module(1, version)
    values: dict[str, Any] = {}
    if version >= 16:
        values["node_endpoints"] = tuple(
            module.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in response.node_endpoints
        )
    return made(
        module.FetchResponse,
        throttle_time=to_timedelta(response.throttle_time_ms),
        error_code=response.error_code,
        session_id=response.session_id,
        responses=tuple(
            made(
                module.FetchableTopicResponse,
                topic=topic.name,
                topic_id=to_uuid(topic.topic_id),
                partitions=tuple(kio_response_partition(module, partition) for partition in topic.partitions),
            )
            for topic in response.topics
        ),
        **values,
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(request=fetch_requests)
def test_a_request_that_kio_wrote_is_read_with_equal_values(version: int, request: FetchRequest) -> None:
    data = kio_write(kio_request(request, version))
    assert read_fetch_request(view_of(data), version) == as_version_tells(request, version)


@pytest.mark.parametrize("version", VERSIONS)
@given(response=fetch_responses)
def test_a_response_is_written_as_kio_writes_it(version: int, response: FetchResponse) -> None:
    expected = kio_response(response, version)
    data = b"".join(write_fetch_response(7, version, response))
    header = b"\0\0\0\7\0" if version >= 12 else b"\0\0\0\7"
    assert data.startswith(header)
    body = data[len(header) :]
    assert body == kio_write(expected)
    assert kio_read(type(expected), body) == expected
