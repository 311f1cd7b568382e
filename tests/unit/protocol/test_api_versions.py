"""The table: what clients are told, what is served, and which header each version has."""

from kio.index import load_request_schema, load_response_schema

from protocol.api_versions import API_VERSIONS, ApiKey, name_of, range_of
from tests.compat.protocol_diff.comparison import read_recorded

SERVED = [(row, version) for row in API_VERSIONS for version in range(row.version_served_min, row.version_max + 1)]


NOT_TOLD_BY_KAFKA = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
"""It tells them where a plugin takes the metrics; the one that was asked had none."""


def test_clients_are_told_the_versions_that_kafka_4_3_1_tells() -> None:
    ((_, answer),) = read_recorded()["versions.apis"]
    kafkas = {row["ApiKey"]: (row["MinVersion"], row["MaxVersion"]) for row in answer["ApiKeys"]}
    told = {row.api_key: (row.version_min, row.version_max) for row in API_VERSIONS}
    assert told == {key: (0, 0) if key in NOT_TOLD_BY_KAFKA else kafkas[key] for key in told}
    assert list(told) == sorted(told)


def test_headers_and_flexibility_are_those_of_the_schemas() -> None:
    for row, version in SERVED:
        case = f"{row.name} {version}"
        request = load_request_schema(row.api_key, version)
        response = load_response_schema(row.api_key, version)
        assert request.__name__ == f"{row.name}Request", case
        assert row.is_served(version), case
        assert row.is_flexible(version) == request.__flexible__, case
        assert row.request_header_version(version) == request.__header_schema__.__version__, case
        assert row.response_header_version(version) == response.__header_schema__.__version__, case


def test_produce_0_to_2_is_reported_but_not_served() -> None:
    produce = range_of(0)
    assert produce is not None
    assert [version for version in range(-1, 16) if produce.is_served(version)] == list(range(3, 14))


def test_an_api_that_is_not_served_has_no_row() -> None:
    assert range_of(999) is None
    assert range_of(-1) is None
    assert {row.api_key for row in API_VERSIONS} == set(ApiKey)


def test_an_api_is_named_as_in_kafkas_schemas() -> None:
    assert (name_of(ApiKey.PRODUCE), name_of(ApiKey.SASL_HANDSHAKE)) == ("Produce", "SaslHandshake")
