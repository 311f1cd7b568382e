"""Where configs' values come from, as DescribeConfigs lists it."""

import pytest

from coordinator.configs.broker_configs import BROKER_CONFIGS
from coordinator.configs.config_entries import (
    ConfigEntry,
    Layers,
    broker_entry,
    client_metrics_entry,
    every_broker_entries,
    group_entry,
    topic_entry,
)
from coordinator.configs.config_types import ConfigSource
from coordinator.configs.topic_configs import BROKER_SYNONYMS, TOPIC_CONFIGS, effective


def layers(
    *, own: dict[str, str] | None = None, every: dict[str, str] | None = None, settings: dict[str, str] | None = None
) -> Layers:
    return (
        (ConfigSource.DYNAMIC_BROKER, own or {}),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, every or {}),
        (ConfigSource.STATIC_BROKER, settings or {}),
    )


def told(entry: ConfigEntry) -> list[tuple[str, str, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


class TestTopics:
    @pytest.mark.parametrize(
        ("topic", "settings", "name", "source", "synonyms"),
        [
            ({"retention.ms": "99"}, {}, "retention.ms", ConfigSource.DYNAMIC_TOPIC, [("retention.ms", "99", 1)]),
            ({}, {}, "segment.bytes", ConfigSource.DEFAULT, [("log.segment.bytes", "1073741824", 5)]),
            ({}, {}, "retention.ms", ConfigSource.DEFAULT, []),
            (
                {"max.message.bytes": "1"},
                {"message.max.bytes": "2"},
                "max.message.bytes",
                ConfigSource.DYNAMIC_TOPIC,
                [("max.message.bytes", "1", 1), ("message.max.bytes", "2", 4), ("message.max.bytes", "1048588", 5)],
            ),
            (
                {},
                {"log.roll.hours": "1"},
                "segment.ms",
                ConfigSource.STATIC_BROKER,
                [("log.roll.hours", "3600000", 4)],
            ),
            ({}, {}, "remote.storage.enable", ConfigSource.DEFAULT, []),
        ],
    )
    def test_every_place_is_listed(
        self,
        topic: dict[str, str],
        settings: dict[str, str],
        name: str,
        source: ConfigSource,
        synonyms: list[tuple[str, str, int]],
    ) -> None:
        entry = topic_entry(topic, layers(settings=settings), name)
        assert entry.spec is TOPIC_CONFIGS[name]
        assert entry.source is source
        assert told(entry) == synonyms

    def test_what_was_altered_for_brokers_stands_between_the_topic_and_the_settings(self) -> None:
        name = "message.max.bytes"
        places = layers(own={name: "1"}, every={name: "2"}, settings={name: "3"})
        entry = topic_entry({}, places, "max.message.bytes")
        assert (entry.value, entry.source) == ("1", ConfigSource.DYNAMIC_BROKER)
        assert told(entry) == [(name, "1", 2), (name, "2", 3), (name, "3", 4), (name, "1048588", 5)]

    @pytest.mark.parametrize("depth", range(4))
    def test_the_first_place_is_the_value_that_holds(self, depth: int) -> None:
        for name in TOPIC_CONFIGS:
            self._check_first_place(name, depth)

    def _check_first_place(self, name: str, depth: int) -> None:
        values = ["true", "delete", "gzip", "LogAppendTime", "5", "2000000", "0.25"]
        numbers: dict[str, str] = {}
        for synonym, _ in BROKER_SYNONYMS.get(name, ()):
            spec = BROKER_CONFIGS[synonym]
            numbers[synonym] = next(value for value in values if _takes(spec.validate, value))
        each = [numbers if depth == place else {} for place in range(3)]
        places = layers(own=each[0], every=each[1], settings=each[2])
        merged = {**each[2], **each[1], **each[0]}
        assert topic_entry({}, places, name).value == effective({}, merged, name), name


def _takes(validate: object, value: str) -> bool:
    assert callable(validate)
    try:
        validate(value)
    except ValueError:
        return False
    return True


class TestBrokers:
    def test_what_was_set_stands_before_the_default(self) -> None:
        entry = broker_entry(layers(settings={"num.partitions": "4"}), "num.partitions")
        assert (entry.value, entry.source) == ("4", ConfigSource.STATIC_BROKER)
        assert told(entry) == [("num.partitions", "4", 4), ("num.partitions", "1", 5)]

    def test_a_config_without_any_value_has_no_synonym(self) -> None:
        entry = broker_entry(layers(), "log.retention.ms")
        assert (entry.value, entry.source, entry.synonyms) == (None, ConfigSource.DEFAULT, ())

    def test_of_every_broker_only_what_was_altered_is_reported(self) -> None:
        (entry,) = every_broker_entries({"background.threads": "3", "gone.with.a.later.version": "1"})
        assert (entry.spec.name, entry.value, told(entry)) == (
            "background.threads",
            "3",
            [("background.threads", "3", 3)],
        )


class TestGroups:
    def test_a_groups_own_word_stands_before_the_brokers(self) -> None:
        name, broker_name = "consumer.session.timeout.ms", "group.consumer.session.timeout.ms"
        entry = group_entry({name: "1"}, layers(settings={broker_name: "2"}), name)
        assert told(entry) == [(name, "1", 8), (broker_name, "2", 4), (broker_name, "45000", 5)]
        assert (entry.value, entry.source) == ("1", ConfigSource.GROUP)

    def test_without_a_broker_config_behind_it_there_is_kafkas_default(self) -> None:
        entry = group_entry({}, layers(), "share.auto.offset.reset")
        assert told(entry) == [("share.auto.offset.reset", "latest", 5)]


def test_a_subscription_tells_what_it_was_given_and_kafkas_defaults() -> None:
    given = client_metrics_entry({"interval.ms": "100"}, "interval.ms")
    assert (given.value, told(given)) == ("100", [("interval.ms", "100", 7)])
    default = client_metrics_entry({}, "interval.ms")
    assert (default.value, default.source, default.synonyms) == ("300000", ConfigSource.DEFAULT, ())
