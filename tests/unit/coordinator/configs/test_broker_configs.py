"""Kafka's broker configs that `--set` takes."""

import pytest

from coordinator.configs.broker_configs import (
    BROKER_CONFIGS,
    broker_value,
)
from coordinator.configs.config_types import Effect


def test_defaults_are_valid_and_described() -> None:
    for name, spec in BROKER_CONFIGS.items():
        assert spec.documentation.endswith("."), name
        if spec.default is not None:
            spec.validate(spec.default)


def test_what_was_set_counts_before_the_default() -> None:
    assert broker_value({}, "num.partitions") == "1"
    assert broker_value({"num.partitions": "4"}, "num.partitions") == "4"


def test_the_time_after_which_idle_producers_are_forgotten_is_honoured() -> None:
    assert BROKER_CONFIGS["producer.id.expiration.ms"].effect is Effect.HONOURED


@pytest.mark.parametrize(
    "name",
    [
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "transaction.max.timeout.ms",
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "transactional.id.expiration.ms",
    ],
)
def test_the_times_of_transactions_are_honoured(name: str) -> None:
    assert BROKER_CONFIGS[name].effect is Effect.HONOURED
