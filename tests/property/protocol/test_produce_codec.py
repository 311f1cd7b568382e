"""The Produce codec and kio read and write the same bytes, in every version."""

import datetime
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from protocol.leaders import LeaderAndEpoch, NodeEndpoint
from protocol.produce import (
    VERSION_MAX,
    VERSION_MIN,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
    ProduceTopic,
    RecordError,
    read_produce_request,
    write_produce_response,
)
from tests.support.records.kio_messages import (
    KioEntity,
    int16,
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
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
append_times_ms = st.just(-1) | st.integers(0, 1 << 42)

produce_requests = st.builds(
    ProduceRequest,
    transactional_id=st.none() | text,
    acks=int16,
    timeout_ms=int32,
    topics=st.lists(
        st.builds(
            ProduceTopic,
            name=text,
            topic_id=topic_id,
            partitions=st.lists(
                st.builds(ProducePartition, index=int32, records=st.none() | st.binary(max_size=300).map(view_of)),
                max_size=4,
            ),
        ),
        max_size=4,
    ),
)

refusals = st.builds(
    ProduceResponsePartition,
    index=int32,
    error_code=st.sampled_from(ErrorCode),
    log_append_time_ms=append_times_ms,
    log_start_offset=int64,
    record_errors=st.lists(st.builds(RecordError, batch_index=int32, message=st.none() | text), max_size=3),
    error_message=st.none() | text,
    current_leader=st.none() | st.builds(LeaderAndEpoch, leader_id=st.integers(0, 9), leader_epoch=int32),
)
acceptances = st.builds(
    ProduceResponsePartition,
    index=int32,
    base_offset=int64,
    log_append_time_ms=append_times_ms,
    log_start_offset=int64,
)
produce_responses = st.builds(
    ProduceResponse,
    throttle_time_ms=int32,
    topics=st.lists(
        st.builds(
            ProduceResponseTopic,
            name=text,
            topic_id=topic_id,
            partitions=st.lists(acceptances | refusals, max_size=4),
        ),
        max_size=4,
    ),
    node_endpoints=st.lists(
        st.builds(NodeEndpoint, node_id=int32, host=text, port=int32, rack=st.none() | text), max_size=3
    ),
)


def kio_request(request: ProduceRequest, version: int) -> KioEntity:
    module = request_module(0, version)
    return module.ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout=to_timedelta(request.timeout_ms),
        topic_data=tuple(
            made(
                module.TopicProduceData,
                name=topic.name,
                topic_id=to_uuid(topic.topic_id),
                partition_data=tuple(
                    module.PartitionProduceData(
                        index=partition.index,
                        records=None if partition.records is None else bytes(partition.records),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def kio_partition(module: ModuleType, partition: ProduceResponsePartition) -> KioEntity:
    append_time_ms = partition.log_append_time_ms
    values: dict[str, Any] = {
        "index": partition.index,
        "error_code": partition.error_code,
        "base_offset": partition.base_offset,
        "log_append_time": None if append_time_ms < 0 else EPOCH + to_timedelta(append_time_ms),
        "log_start_offset": partition.log_start_offset,
        "error_message": partition.error_message,
    }
    if hasattr(module, "BatchIndexAndErrorMessage"):
        values["record_errors"] = tuple(
            module.BatchIndexAndErrorMessage(batch_index=error.batch_index, batch_index_error_message=error.message)
            for error in partition.record_errors
        )
    if hasattr(module, "LeaderIdAndEpoch") and partition.current_leader is not None:
        values["current_leader"] = module.LeaderIdAndEpoch(
            leader_id=partition.current_leader.leader_id, leader_epoch=partition.current_leader.leader_epoch
        )
    return made(module.PartitionProduceResponse, **values)


def kio_response(response: ProduceResponse, version: int) -> KioEntity:
    module = response_module(0, version)
    values: dict[str, Any] = {}
    if hasattr(module, "NodeEndpoint"):
        values["node_endpoints"] = tuple(
            module.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in response.node_endpoints
        )
    return module.ProduceResponse(
        throttle_time=to_timedelta(response.throttle_time_ms),
        responses=tuple(
            made(
                module.TopicProduceResponse,
                name=topic.name,
                topic_id=to_uuid(topic.topic_id),
                partition_responses=tuple(kio_partition(module, partition) for partition in topic.partitions),
            )
            for topic in response.topics
        ),
        **values,
    )


def as_version_tells(request: ProduceRequest, version: int) -> ProduceRequest:
    for topic in request.topics:
        if version >= 13:
            topic.name = None
        else:
            topic.topic_id = None
    return request


@pytest.mark.parametrize("version", VERSIONS)
@given(request=produce_requests)
def test_a_request_that_kio_wrote_is_read_with_equal_values(version: int, request: ProduceRequest) -> None:
    data = kio_write(kio_request(request, version))
    assert read_produce_request(view_of(data), version) == as_version_tells(request, version)


@pytest.mark.parametrize("version", VERSIONS)
@given(response=produce_responses)
def test_a_response_is_written_as_kio_writes_it(version: int, response: ProduceResponse) -> None:
    expected = kio_response(response, version)
    (data,) = write_produce_response(7, version, response)
    header = b"\0\0\0\7\0" if version >= 9 else b"\0\0\0\7"
    body = bytes(data).removeprefix(header)
    assert len(body) == len(data) - len(header)
    assert body == kio_write(expected)
    assert kio_read(type(expected), body) == expected
