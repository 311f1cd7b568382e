"""Values that broker configs take, from options and from AlterConfigs."""

import pytest

from coordinator.configs.broker_config_checks import validate_broker, validate_dynamic
from coordinator.configs.broker_configs import (
    BROKER_CONFIGS,
    CLUSTER_WIDE,
)
from coordinator.configs.config_types import InvalidConfig, InvalidConfigRequest


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such", "1"),
        ("num.partitions", "0"),
        ("ssl.protocol", "TLS"),
        ("log.retention.hours", "0"),
        ("log.retention.ms", "0"),
        ("transaction.two.phase.commit.enable", "true"),
    ],
)
def test_unknown_names_and_bad_values_are_rejected(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig):
        validate_broker(name, value)


def test_a_sound_value_is_taken() -> None:
    validate_broker("auto.create.topics.enable", "false")


class TestAlterations:
    @pytest.mark.parametrize("is_every_broker", [True, False])
    def test_what_is_not_read_only_can_be_altered(self, *, is_every_broker: bool) -> None:
        configs = {
            "background.threads": "3",
            "message.max.bytes": "7",
            "sasl.kerberos.min.time.before.relogin": "58000",
        }
        validate_dynamic(configs, is_every_broker=is_every_broker)

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("num.partitions", "Cannot update these configs dynamically: num.partitions"),
            ("broker.id", "Unknown broker config name: broker.id"),
            ("no.such", "Unknown broker config name: no.such"),
            ("x" * 9_000, "Unknown broker config name: xxx"),
        ],
    )
    def test_what_is_read_only_or_unknown_cannot(self, name: str, told: str) -> None:
        with pytest.raises(InvalidConfigRequest, match=told) as refused:
            validate_dynamic({name: "7"}, is_every_broker=True)
        assert len(str(refused.value)) < 500

    @pytest.mark.parametrize("name", sorted(CLUSTER_WIDE))
    def test_what_all_do_alike_is_altered_for_all(self, name: str) -> None:
        value = BROKER_CONFIGS[name].default or "1"
        validate_dynamic({name: value}, is_every_broker=True)
        with pytest.raises(InvalidConfigRequest, match=f"for one broker.*{name}.*--entity-default"):
            validate_dynamic({name: value}, is_every_broker=False)
        assert not BROKER_CONFIGS[name].is_read_only

    @pytest.mark.parametrize(("name", "value"), [("background.threads", "0"), ("log.retention.ms", "0")])
    def test_a_bad_value_is_an_invalid_request_as_in_kafka(self, name: str, value: str) -> None:
        with pytest.raises(InvalidConfigRequest):
            validate_dynamic({name: value}, is_every_broker=True)
