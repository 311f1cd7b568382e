"""Kafka's broker configs that `--set` takes."""

import pytest

from coordinator.broker_configs import BROKER_CONFIGS, broker_value, validate_broker
from coordinator.config_types import Effect, InvalidConfig


@pytest.mark.parametrize("name", BROKER_CONFIGS)
def test_defaults_are_valid_and_described(name: str) -> None:
    spec = BROKER_CONFIGS[name]
    assert spec.documentation.endswith(".")
    if spec.default is not None:
        spec.validate(spec.default)


def test_what_was_set_counts_before_the_default() -> None:
    assert broker_value({}, "num.partitions") == "1"
    assert broker_value({"num.partitions": "4"}, "num.partitions") == "4"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such", "1"),
        ("num.partitions", "0"),
        ("ssl.protocol", "TLS"),
        ("log.retention.hours", "0"),
        ("log.retention.ms", "0"),
    ],
)
def test_unknown_names_and_bad_values_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig):
        validate_broker(name, value)


def test_a_sound_value_is_taken() -> None:
    validate_broker("auto.create.topics.enable", "false")


def test_the_time_after_which_idle_producers_are_forgotten_is_honoured() -> None:
    assert BROKER_CONFIGS["producer.id.expiration.ms"].effect is Effect.HONOURED
