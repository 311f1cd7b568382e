"""Kafka's configs of groups."""

import pytest

from coordinator.configs.config_types import InvalidConfig
from coordinator.configs.group_configs import GROUP_CONFIGS, broker_name_of, group_value, validate_group


@pytest.mark.parametrize("name", GROUP_CONFIGS)
def test_defaults_are_valid_and_described(name: str) -> None:
    spec = GROUP_CONFIGS[name]
    assert spec.default is not None
    assert spec.documentation.endswith(".")
    validate_group({name: spec.default}, {})


@pytest.mark.parametrize(
    ("group", "broker", "value"),
    [
        ({}, {}, "45000"),
        ({}, {"group.consumer.session.timeout.ms": "7"}, "7"),
        ({"consumer.session.timeout.ms": "8"}, {"group.consumer.session.timeout.ms": "7"}, "8"),
    ],
)
def test_the_nearest_place_counts(group: dict[str, str], broker: dict[str, str], value: str) -> None:
    assert group_value(group, broker, "consumer.session.timeout.ms") == value


def test_without_a_broker_config_behind_it_there_is_kafkas_default() -> None:
    assert broker_name_of("consumer.session.timeout.ms") == "group.consumer.session.timeout.ms"
    assert broker_name_of("share.auto.offset.reset") is None
    assert group_value({}, {}, "share.auto.offset.reset") == "latest"


@pytest.mark.parametrize(
    "configs",
    [
        {"no.such": "1"},
        {"consumer.session.timeout.ms": "soon"},
        {"consumer.session.timeout.ms": "0"},
        {"share.record.lock.duration.ms": "999"},
        {"share.isolation.level": "snapshot"},
        {"share.auto.offset.reset": "by_duration:P"},
        {"share.auto.offset.reset": "none"},
    ],
)
def test_what_kafka_refuses_is_refused(configs: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        validate_group(configs, {})


@pytest.mark.parametrize(
    "value", ["latest", "earliest", "by_duration:P1D", "by_duration:PT1H30M", "by_duration:PT0.5S"]
)
def test_where_a_share_group_begins_may_be_a_time_ago(value: str) -> None:
    validate_group({"share.auto.offset.reset": value}, {})


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_a_member_reports_more_often_than_it_may_be_silent(kind: str) -> None:
    session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    unbounded = {f"group.{kind}.min.session.timeout.ms": "1", f"group.{kind}.max.heartbeat.interval.ms": "99999"}
    validate_group({session: "5001"}, unbounded)
    with pytest.raises(InvalidConfig, match=f"{session} must be greater than {heartbeat}"):
        validate_group({session: "5000"}, unbounded)
    with pytest.raises(InvalidConfig, match=f"{session} must be greater than {heartbeat}"):
        validate_group({session: "50000", heartbeat: "50000"}, unbounded)


@pytest.mark.parametrize(
    ("configs", "bound"),
    [
        ({"consumer.session.timeout.ms": "44999"}, "group.consumer.min.session.timeout.ms"),
        ({"consumer.session.timeout.ms": "60001"}, "group.consumer.max.session.timeout.ms"),
        ({"streams.heartbeat.interval.ms": "15001"}, "group.streams.max.heartbeat.interval.ms"),
        ({"share.record.lock.duration.ms": "14999"}, "group.share.min.record.lock.duration.ms"),
    ],
)
def test_a_brokers_bounds_hold_for_every_group(configs: dict[str, str], bound: str) -> None:
    with pytest.raises(InvalidConfig, match=bound):
        validate_group(configs, {})
    (value,) = configs.values()
    validate_group(configs, {bound: value})
