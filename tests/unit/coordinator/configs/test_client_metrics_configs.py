"""Which telemetry subscriptions there can be (KIP-714)."""

import pytest

from coordinator.configs.client_metrics_configs import CLIENT_METRICS_CONFIGS, validate_client_metrics
from coordinator.configs.config_types import InvalidConfig, InvalidConfigRequest
from protocol.limits import CONFIG_VALUE_CHARS_MAX


@pytest.mark.parametrize("name", CLIENT_METRICS_CONFIGS)
def test_defaults_are_valid_and_described(name: str) -> None:
    spec = CLIENT_METRICS_CONFIGS[name]
    assert spec.default is not None
    validate_client_metrics({name: spec.default})
    assert spec.documentation.endswith(".")


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.", "interval.ms": "100"},
        {"match": "client_software_name=Java, client_software_version=11.1.*"},
        {"metrics": "*", "interval.ms": "3600000", "match": "client_id=[a-z]+"},
    ],
)
def test_what_kafka_takes_is_taken(configs: dict[str, str]) -> None:
    validate_client_metrics(configs)


@pytest.mark.parametrize("configs", [{"no.such": "1"}, {"interval.ms": "99"}, {"interval.ms": "3600001"}])
def test_some_of_it_is_an_invalid_request_as_in_kafka(configs: dict[str, str]) -> None:
    with pytest.raises(InvalidConfigRequest):
        validate_client_metrics(configs)


@pytest.mark.parametrize(
    "configs",
    [
        {"interval.ms": "soon"},
        {"match": "client_id"},
        {"match": "client_id=a=b"},
        {"match": "planet=earth"},
        {"metrics": "x" * (CONFIG_VALUE_CHARS_MAX + 1)},
    ],
)
def test_the_rest_is_an_invalid_config(configs: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig) as refused:
        validate_client_metrics(configs)
    assert not isinstance(refused.value, InvalidConfigRequest)
    assert len(str(refused.value)) < 500
