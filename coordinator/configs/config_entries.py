"""Configs as they hold for a resource, and every place that a value could come from, as DescribeConfigs lists them.

Rule: a place nearer to the resource comes first, and the first one counts. Brokers' configs come in layers, the nearest
first: what was altered for this broker, what was altered for every broker, and what its process was started with.
Source: org.apache.kafka.server.ConfigHelper (Kafka 4.3).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from coordinator.configs.broker_configs import BROKER_CONFIGS
from coordinator.configs.client_metrics_configs import CLIENT_METRICS_CONFIGS
from coordinator.configs.config_types import ConfigSource, ConfigSpec
from coordinator.configs.group_configs import GROUP_CONFIGS, broker_name_of
from coordinator.configs.security_configs import security_spec
from coordinator.configs.topic_configs import BROKER_SYNONYMS, TOPIC_CONFIGS, scaled

Layers = Sequence[tuple[ConfigSource, Mapping[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """One place that a value could come from."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A config as it holds. `synonyms` begins with the place that counts; there may be none, and no value."""

    spec: ConfigSpec
    value: str | None
    source: ConfigSource
    synonyms: tuple[Synonym, ...]


def topic_entry(configs: Mapping[str, str], layers: Layers, name: str) -> ConfigEntry:
    """The entry of a topic with these overrides."""
    spec, broker_names = TOPIC_CONFIGS[name], BROKER_SYNONYMS.get(name, ())
    # Where several broker configs stand behind one, none alone has the default.
    is_default_named = len(broker_names) == 1
    synonyms = [
        *_own(configs, name, ConfigSource.DYNAMIC_TOPIC),
        *_of_broker(layers, broker_names, with_default=is_default_named),
    ]
    return _entry(spec, synonyms)


def broker_entry(layers: Layers, name: str) -> ConfigEntry:
    """The entry of the broker with these layers. `name` is in BROKER_CONFIGS, or the config of one listener."""
    spec = BROKER_CONFIGS.get(name) or security_spec(name)
    assert spec is not None, f"{name} is no broker config"
    return _entry(spec, list(_of_broker(layers, [(name, 1)], with_default=name in BROKER_CONFIGS)))


def every_broker_entries(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """The entries that were altered for every broker, and no defaults."""
    layers = [(ConfigSource.DYNAMIC_DEFAULT_BROKER, configs)]
    return [
        _entry(BROKER_CONFIGS[name], list(_of_broker(layers, [(name, 1)], with_default=False)))
        for name in configs
        if name in BROKER_CONFIGS
    ]


def group_entry(configs: Mapping[str, str], layers: Layers, name: str) -> ConfigEntry:
    """The entry of a group with these configs."""
    spec, broker_name = GROUP_CONFIGS[name], broker_name_of(name)
    synonyms = list(_own(configs, name, ConfigSource.GROUP))
    if broker_name is not None:
        synonyms += _of_broker(layers, [(broker_name, 1)])
    else:
        assert spec.default is not None, f"{name} has no default"
        synonyms.append(Synonym(name=name, value=spec.default, source=ConfigSource.DEFAULT))
    return _entry(spec, synonyms)


def client_metrics_entry(configs: Mapping[str, str], name: str) -> ConfigEntry:
    """The entry of a telemetry subscription (KIP-714)."""
    return _entry(CLIENT_METRICS_CONFIGS[name], list(_own(configs, name, ConfigSource.CLIENT_METRICS)))


def _entry(spec: ConfigSpec, synonyms: Sequence[Synonym]) -> ConfigEntry:
    if synonyms:
        return ConfigEntry(spec=spec, value=synonyms[0].value, source=synonyms[0].source, synonyms=tuple(synonyms))
    return ConfigEntry(spec=spec, value=spec.default, source=ConfigSource.DEFAULT, synonyms=())


def _own(configs: Mapping[str, str], name: str, source: ConfigSource) -> Iterable[Synonym]:
    if name in configs:
        yield Synonym(name=name, value=configs[name], source=source)


def _of_broker(layers: Layers, names: Sequence[tuple[str, int]], *, with_default: bool = True) -> Iterable[Synonym]:
    """The values of broker configs, as synonyms, each multiplied by the factor of its unit."""
    for source, configs in layers:
        for name, factor in names:
            if name in configs:
                yield Synonym(name=name, value=scaled(configs[name], factor), source=source)
    for name, _ in names if with_default else ():
        default = BROKER_CONFIGS[name].default
        if default is not None:
            yield Synonym(name=name, value=default, source=ConfigSource.DEFAULT)
