"""Kafka's topic configs and where their values come from."""

import pytest

from coordinator.configs.topic_configs import (
    BROKER_CONFIGS,
    BROKER_SYNONYMS,
    PLACEMENT,
    TABLE_COLUMNS,
    TABLE_FILE_BYTES,
    TABLE_RAW_VALUES,
    TABLE_RETENTION,
    TOPIC_CONFIGS,
    Effect,
    InvalidConfig,
    are_reproducible_values_omitted,
    effective,
    stamped_by,
    validate_topic_config,
    validate_topic_configs,
)
from protocol.limits import CONFIG_VALUE_CHARS_MAX, CONFIGS_BYTES_MAX


def test_every_topic_config_of_kafka_is_known() -> None:
    ours = {TABLE_COLUMNS, TABLE_FILE_BYTES, TABLE_RAW_VALUES, TABLE_RETENTION, PLACEMENT}
    assert len(TOPIC_CONFIGS.keys() - ours) == 33
    assert list(TOPIC_CONFIGS) == sorted(TOPIC_CONFIGS)


def test_defaults_are_valid_and_described() -> None:
    for name, spec in TOPIC_CONFIGS.items():
        assert spec.default is not None, name
        spec.validate(spec.default)
        assert spec.documentation.endswith("."), name


@pytest.mark.parametrize("name", BROKER_SYNONYMS)
def test_a_default_is_the_one_of_the_broker_config_behind_it(name: str) -> None:
    synonyms = BROKER_SYNONYMS[name]
    assert all(synonym in BROKER_CONFIGS for synonym, _ in synonyms)
    if len(synonyms) == 1:
        assert BROKER_CONFIGS[synonyms[0][0]].default == TOPIC_CONFIGS[name].default or name == "flush.ms"


@pytest.mark.parametrize(
    ("value", "is_omitted"), [("always", False), ("irreproducible", True), ("all", False), ("needed", True)]
)
def test_former_names_of_raw_values_have_the_effect_of_the_present_ones(value: str, is_omitted: bool) -> None:
    configs = {TABLE_RAW_VALUES: value}
    validate_topic_configs(configs)
    assert are_reproducible_values_omitted(configs) is is_omitted
    assert not are_reproducible_values_omitted({})


def test_an_error_does_not_offer_former_values() -> None:
    with pytest.raises(InvalidConfig, match=r"must be one of always, irreproducible$"):
        validate_topic_config(TABLE_RAW_VALUES, "some")


class TestEffectiveValue:
    @pytest.mark.parametrize(
        ("topic", "broker", "value"),
        [
            ({}, {}, "604800000"),
            ({}, {"log.retention.hours": "2"}, "7200000"),
            ({}, {"log.retention.hours": "-1"}, "-1"),
            ({}, {"log.retention.hours": "2", "log.retention.minutes": "1"}, "60000"),
            ({}, {"log.retention.minutes": "1", "log.retention.ms": "5"}, "5"),
            ({"retention.ms": "9"}, {"log.retention.ms": "5"}, "9"),
        ],
    )
    def test_the_nearest_place_counts(self, topic: dict[str, str], broker: dict[str, str], value: str) -> None:
        assert effective(topic, broker, "retention.ms") == value

    def test_a_config_without_a_synonym_has_its_default(self) -> None:
        assert effective({}, {}, "remote.storage.enable") == "false"


class TestValidation:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("no.such.config", "1"),
            ("retention.ms", "soon"),
            ("retention.ms", "-2"),
            ("cleanup.policy", "sometimes"),
            ("cleanup.policy", "delete,delete"),
            ("max.message.bytes", "-1"),
            ("compression.type", "zip"),
            ("compression.gzip.level", "0"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("remote.storage.enable", "true"),
            ("leader.replication.throttled.replicas", "one"),
        ],
    )
    def test_what_kafka_refuses_is_refused(self, name: str, value: str) -> None:
        with pytest.raises(InvalidConfig):
            validate_topic_config(name, value)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("retention.ms", "-1"),
            ("cleanup.policy", "compact,delete"),
            ("compression.gzip.level", "-1"),
            ("leader.replication.throttled.replicas", "0:1,2:3"),
            ("leader.replication.throttled.replicas", "*"),
        ],
    )
    def test_what_kafka_takes_is_taken(self, name: str, value: str) -> None:
        validate_topic_config(name, value)

    def test_a_value_has_a_greatest_length(self) -> None:
        throttled = "leader.replication.throttled.replicas"
        value = ",".join(f"{row:07}:0" for row in range(CONFIG_VALUE_CHARS_MAX // 10)) + ",1:1"
        validate_topic_configs({throttled: value})
        with pytest.raises(InvalidConfig, match=f"has {CONFIG_VALUE_CHARS_MAX + 8} characters"):
            validate_topic_configs({throttled: value.ljust(CONFIG_VALUE_CHARS_MAX + 8)})

    def test_so_have_all_together(self) -> None:
        padded = {name: TOPIC_CONFIGS[name].default or "" for name in TOPIC_CONFIGS}
        validate_topic_configs(padded)
        with pytest.raises(InvalidConfig, match=f"bytes together, {CONFIGS_BYTES_MAX} is the most"):
            validate_topic_configs({name: value.ljust(CONFIG_VALUE_CHARS_MAX) for name, value in padded.items()})

    def test_a_message_does_not_grow_with_what_was_sent(self) -> None:
        for configs in ({"x" * 70_000: "1"}, {"retention.ms": "x" * 30_000}, {"retention.ms": "1" * 70_000}):
            with pytest.raises(InvalidConfig) as refused:
                validate_topic_configs(configs)
            assert len(str(refused.value)) < 500

    def test_overrides_must_not_contradict_each_other(self) -> None:
        validate_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
        with pytest.raises(InvalidConfig, match="above"):
            validate_topic_configs({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})
        with pytest.raises(InvalidConfig, match="Unknown"):
            validate_topic_configs({"no.such.config": "6"})
        with pytest.raises(InvalidConfig, match=r"name: penstock\.columns; did you mean penstock\.table\.columns\?"):
            validate_topic_configs({"penstock.columns": "key"})


def test_what_is_not_honoured_says_so() -> None:
    assert TOPIC_CONFIGS["segment.bytes"].effect is Effect.NONE
    assert TOPIC_CONFIGS["max.message.bytes"].effect is Effect.HONOURED


STAMPED = {"log.message.timestamp.type": "LogAppendTime"}


@pytest.mark.parametrize(
    ("settings", "every_broker", "override"),
    [
        ({"log.retention.ms": "5"}, {}, {}),
        (STAMPED, {}, {"message.timestamp.type": "LogAppendTime"}),
        ({"log.message.timestamp.type": "CreateTime"}, {}, {}),
        (STAMPED, {"log.message.timestamp.type": "CreateTime"}, {}),
        ({}, STAMPED, {}),
    ],
)
def test_s14_a_topic_gets_an_override_for_what_applying_cannot_know(
    settings: dict[str, str], every_broker: dict[str, str], override: dict[str, str]
) -> None:
    assert stamped_by(settings, every_broker) == override
