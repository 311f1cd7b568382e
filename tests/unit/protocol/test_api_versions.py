"""The table: what clients are told, what is served, and which header each version has."""

import pytest
from kio.index import load_request_schema, load_response_schema

from protocol.api_versions import API_VERSIONS, ApiKey, ApiRange, range_of

SERVED = [(row, version) for row in API_VERSIONS for version in range(row.version_served_min, row.version_max + 1)]


def test_clients_are_told_the_stable_versions_of_kafka_4_3_1() -> None:
    assert [(int(row.api_key), row.name, row.version_min, row.version_max) for row in API_VERSIONS] == [
        (0, "Produce", 0, 13),
        (1, "Fetch", 4, 18),
        (2, "ListOffsets", 1, 11),
        (3, "Metadata", 0, 13),
        (10, "FindCoordinator", 0, 6),
        (18, "ApiVersions", 0, 4),
        (19, "CreateTopics", 2, 7),
        (20, "DeleteTopics", 1, 6),
        (21, "DeleteRecords", 0, 2),
        (22, "InitProducerId", 0, 5),
        (23, "OffsetForLeaderEpoch", 2, 4),
        (32, "DescribeConfigs", 1, 4),
        (60, "DescribeCluster", 0, 2),
        (75, "DescribeTopicPartitions", 0, 0),
    ]


@pytest.mark.parametrize(("row", "version"), SERVED, ids=lambda value: getattr(value, "name", str(value)))
def test_headers_and_flexibility_are_those_of_the_schemas(row: ApiRange, version: int) -> None:
    request = load_request_schema(row.api_key, version)
    response = load_response_schema(row.api_key, version)
    assert row.is_served(version)
    assert row.is_flexible(version) == request.__flexible__
    assert row.request_header_version(version) == request.__header_schema__.__version__
    assert row.response_header_version(version) == response.__header_schema__.__version__


def test_produce_0_to_2_is_told_but_not_served() -> None:
    produce = range_of(0)
    assert produce is not None
    assert [version for version in range(-1, 16) if produce.is_served(version)] == list(range(3, 14))


def test_an_api_that_is_not_served_has_no_row() -> None:
    assert range_of(999) is None
    assert range_of(-1) is None
    assert {row.api_key for row in API_VERSIONS} == set(ApiKey)
