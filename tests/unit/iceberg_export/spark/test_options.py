"""Options: what is meant by those that can be, and a refusal that says why for all others."""

import re

import pytest

from iceberg_export.spark.options import (
    COLUMNS,
    HEADERS,
    Edge,
    Offsets,
    OptionError,
    ReadOptions,
    Timestamps,
    TopicSubscription,
    parse_options,
)
from iceberg_export.spark.tenant.access import AgentAccess

URL = "s3://bucket/prefix"


def parse(given: dict[str, str] | None = None, /, *, is_stream: bool = False, **named: str) -> ReadOptions:
    return parse_options({"path": URL, **(given or {}), **named}, {}, is_stream=is_stream)


def test_a_batch_reads_everything_unless_it_is_told_otherwise() -> None:
    options = parse(subscribe="a, b,a")
    assert options == ReadOptions(
        store_url=URL,
        variables={},
        subscription=TopicSubscription(topics=("a", "b")),
        starting=Edge.EARLIEST,
        ending=Edge.LATEST,
    )
    assert options.columns == COLUMNS
    assert options.is_loss_fatal


def test_a_stream_begins_at_the_end_unless_it_is_told_otherwise() -> None:
    assert parse(is_stream=True, subscribe="a").starting is Edge.LATEST
    assert parse(is_stream=True, subscribe="a", startingOffsets="Earliest").starting is Edge.EARLIEST


def test_names_are_in_any_case_and_those_of_kafkas_client_mean_nothing() -> None:
    options = parse({"kafka.bootstrap.servers": "b:9092", "kafkaConsumer.pollTimeoutMs": "1"}, SUBSCRIBE="a")
    assert options.subscription == TopicSubscription(topics=("a",))
    assert parse({"kafka.isolation.level": "read_committed"}, subscribe="a").columns == COLUMNS


def test_a_time_for_all_goes_before_times_and_these_before_offsets() -> None:
    given = {
        "subscribe": "a",
        "startingOffsets": '{"a": {"0": 5, "1": -2}}',
        "endingOffsets": '{"a": {"0": -1}}',
    }
    options = parse(given)
    assert options.starting == Offsets(by_partition={("a", 0): 5, ("a", 1): -2})
    assert options.ending == Offsets(by_partition={("a", 0): -1})
    given["startingOffsetsByTimestamp"] = '{"a": {"0": 1700000000000}}'
    assert parse(given).starting == Timestamps(by_partition={("a", 0): 1_700_000_000_000})
    given["startingTimestamp"] = "17"
    assert parse(given).starting == Timestamps(by_partition={}, for_all=17)


def test_assigned_partitions_are_a_set() -> None:
    subscription = parse(assign='{"a": [2, 0, 2], "b": [1]}').subscription
    assert subscription.assigned == {"a": (0, 2), "b": (1,)}
    assert subscription.matches("b")
    assert not subscription.matches("c")
    assert subscription.partitions_of("a", 9) == (0, 2)


def test_a_pattern_has_to_match_the_whole_name() -> None:
    subscription = parse(subscribePattern="or.*s").subscription
    assert subscription.matches("orders")
    assert not subscription.matches("orders-2")
    assert not subscription.names


def test_the_bucket_comes_from_path_option_or_environment() -> None:
    environment = {"PENSTOCK_STORE": "file:///elsewhere"}
    assert parse_options({"subscribe": "a"}, environment, is_stream=False).store_url == "file:///elsewhere"
    given = {"subscribe": "a", "penstock.store": URL}
    assert parse_options(given, environment, is_stream=False).store_url == URL
    assert parse_options({**given, "path": URL}, {}, is_stream=True).store_url == URL


def test_aws_variables_are_options_too() -> None:
    assert parse(subscribe="a", AWS_Region="eu-1").variables == {"AWS_REGION": "eu-1"}


def test_columns_are_those_that_are_named() -> None:
    assert parse(subscribe="a", columns="value, offset").columns == ("value", "offset")
    assert parse(subscribe="a", includeHeaders="true").columns == (*COLUMNS, HEADERS)
    given = {"path": URL, "subscribe": "a"}
    assert parse_options(given, {}, is_stream=False, schema_columns=["key"]).columns == ("key",)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "one of the options subscribe"),
        ({"subscribe": "a", "assign": "{}"}, "not assign and subscribe"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": " "}, "is empty"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"assign": "orders"}, "option assign must be JSON"),
        ({"assign": "{}"}, "option assign must be JSON"),
        ({"assign": '{"a": []}'}, "option assign must be JSON"),
        ({"assign": '{"a": [-1]}'}, "option assign must be JSON"),
        ({"subscribe": "a", "startingofset": "b"}, "unknown option 'startingofset'; did you mean startingOffsets?"),
        ({"subscribe": "a", "failOnDataLos": "b"}, "did you mean failOnDataLoss?"),
        ({"subscribe": "a", "zzzz": "b"}, "unknown option 'zzzz'; known options are path, "),
        ({"subscribe": "a", "minOffsetsPerTrigger": "1"}, "the Kafka source has it, this source does not"),
        ({"subscribe": "a", "kafka.isolation.level": "read_uncommitted"}, "always read as read_committed"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "not valid in a batch"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "not valid in a batch"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -1}}'}, "-1 of a-0 is not valid in a batch"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "-2 of a-0 is not valid in a batch"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "-1 means latest, -2 means earliest"),
        ({"subscribe": "a", "startingOffsets": "newest"}, "must be earliest, latest or JSON"),
        ({"subscribe": "a", "startingOffsets": "[]"}, "must be earliest, latest or JSON"),
        ({"subscribe": "a", "startingOffsets": '{"a": [1]}'}, "must be earliest, latest or JSON"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"x": 1}}'}, "must be earliest, latest or JSON"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": "1"}}'}, "must be earliest, latest or JSON"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": "1"}, "must be JSON as"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "not negative"),
        ({"subscribe": "a", "startingTimestamp": "-1"}, "startingTimestamp='-1' must be milliseconds"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "none"}, "must be error or latest"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "9"}, "not valid in a batch"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions must be a positive number"),
        ({"subscribe": "a", "failOnDataLoss": "yes"}, "must be true or false"),
        ({"subscribe": "a", "read": "tail"}, "must be all or archive"),
        ({"subscribe": "a", "columns": "key,key"}, "once"),
        ({"subscribe": "a", "columns": "headers"}, "needs includeHeaders=true"),
        ({"subscribe": "a", "penstock.store": "s3://other"}, "are two buckets"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse(given)


@pytest.mark.parametrize("kind", ["Offsets", "OffsetsByTimestamp"])
def test_a_partitions_start_behind_its_end_is_refused_at_once(kind: str) -> None:
    def bounds(start: int, end: int) -> dict[str, str]:
        return {
            "subscribe": "a",
            f"starting{kind}": f'{{"a": {{"0": 1, "1": {start}}}}}',
            f"ending{kind}": f'{{"a": {{"0": 1, "1": {end}}}}}',
        }

    with pytest.raises(OptionError, match="of a-1 is 7, before its starting"):
        parse(bounds(8, 7))
    parse(bounds(7, 7))


def test_ends_of_the_log_and_a_time_for_all_are_compared_with_nothing() -> None:
    parse(subscribe="a", startingOffsets='{"a": {"0": 9}}', endingOffsets='{"a": {"0": -1}}')
    parse(subscribe="a", startingTimestamp="9", endingTimestamp="8")
    parse(subscribe="a", startingOffsets='{"a": {"0": 9}}', endingOffsetsByTimestamp='{"a": {"0": 8}}')


def test_a_stream_has_no_end_and_a_read_a_bucket() -> None:
    with pytest.raises(OptionError, match="endingOffsets is not valid in a streaming query"):
        parse(is_stream=True, subscribe="a", endingOffsets="latest")
    with pytest.raises(OptionError, match="no bucket: give its URL"):
        parse_options({"subscribe": "a"}, {}, is_stream=False)


SERVER = "https://agent.example:9644"


def tenant(**options: str) -> ReadOptions:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return parse_options({"subscribe": "a", **named}, {"AWS_CA_BUNDLE": "/store.pem"}, is_stream=False)


def test_a_tenant_names_an_agent_and_a_login() -> None:
    assert parse(subscribe="a").agent is None
    options = tenant(penstock_server=f"{SERVER}/", penstock_token="secret", penstock_ca="/ca.pem")
    assert options.agent == AgentAccess(url=SERVER, token="secret", ca_file="/ca.pem", store_ca_file="/store.pem")
    assert options.store_url == ""
    assert "secret" not in repr(options)
    by_user = tenant(penstock_server=SERVER, penstock_user="alice", penstock_password_file="/password")
    assert by_user.agent == AgentAccess(url=SERVER, user="alice", password_file="/password", store_ca_file="/store.pem")
    by_file = tenant(penstock_server="http://127.0.0.1:9644", penstock_token_file="/token").agent
    assert by_file is not None
    assert by_file.token_file == "/token"
    assert tenant(penstock_server="http://agent:9644").agent is not None, "an agent that needs no login"
    insecure = tenant(penstock_server="http://agent:9644", penstock_token="secret", penstock_insecure="true")
    assert insecure.agent is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penstock.token": "secret"}, "option penstock.token needs penstock.server"),
        ({"penstock.server": SERVER, "path": URL}, "exclude each other"),
        ({"penstock.server": SERVER, "penstock.store": URL}, "exclude each other"),
        ({"penstock.server": SERVER, "AWS_ACCESS_KEY_ID": "x"}, "AWS_ACCESS_KEY_ID is for reading the bucket"),
        ({"penstock.server": SERVER, "penstock.token": "secret", "penstock.token.file": "/f"}, "exclude each other"),
        (
            {"penstock.server": SERVER, "penstock.user": "a", "penstock.password": "secret", "penstock.token": "t"},
            "exclude each other",
        ),
        ({"penstock.server": SERVER, "penstock.user": "alice"}, "penstock.user needs penstock.password"),
        ({"penstock.server": SERVER, "penstock.password": "secret"}, "penstock.user needs penstock.password"),
        ({"penstock.server": SERVER, "penstock.token": "secret\n"}, "penstock.token has a control character"),
        ({"penstock.server": SERVER, "penstock.token": "secret\u00e9"}, "a character that no token has"),
        ({"penstock.server": "agent:9644"}, "must be https://HOST:PORT"),
        ({"penstock.server": "https://agent"}, "must be https://HOST:PORT"),
        ({"penstock.server": "https://agent:none"}, "must be https://HOST:PORT"),
        ({"penstock.server": "https://agent:9644/iceberg"}, "must be https://HOST:PORT"),
        ({"penstock.server": "https://alice:secret@agent:9644"}, "penstock.server has a login"),
        ({"penstock.server": "http://agent:9644", "penstock.token": "secret"}, "is not encrypted"),
    ],
)
def test_a_tenants_options_that_cannot_be_meant_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)) as caught:
        parse_options({"subscribe": "a", **options}, {}, is_stream=False)
    assert "secret" not in str(caught.value)
