"""Fetch responses are written as kio writes them, in every version."""

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
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
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
    response_module,
    text,
    to_timedelta,
    to_uuid,
    topic_id,
    view_of,
)

VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)

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
@given(response=fetch_responses)
def test_a_response_is_written_as_kio_writes_it(version: int, response: FetchResponse) -> None:
    expected = kio_response(response, version)
    data = b"".join(write_fetch_response(7, version, response))
    header = b"\0\0\0\7\0" if version >= 12 else b"\0\0\0\7"
    assert data.startswith(header)
    body = data[len(header) :]
    assert body == kio_write(expected)
    assert kio_read(type(expected), body) == expected
