"""The broker configs of this agent: altered for it, altered for every broker, or given at its start, in that order.

Configs change while the agent runs (KIP-226), so a value is read again for each use. Read-only configs
(`coordinator.configs.broker_configs`) may be kept.
"""

from collections.abc import Callable, Iterator, Mapping

from coordinator.configs.config_entries import Layers
from coordinator.configs.config_types import ConfigSource
from coordinator.state.state import EVERY_BROKER, ClusterState

NOTHING: Mapping[str, str] = {}


class BrokerConfigs(Mapping[str, str]):
    """The configs that are set, by Kafka's names. `coordinator.configs.broker_configs.broker_value` knows defaults."""

    def __init__(self, settings: Mapping[str, str], *, node_id: int, state: Callable[[], ClusterState]) -> None:
        self.settings = settings
        """The configs that the agent was started with."""
        self._name = str(node_id)
        self._state = state
        self._altered: Mapping[str, Mapping[str, str]] | None = None
        self._now = settings

    @property
    def now(self) -> Mapping[str, str]:
        """All configs that are set: the same mapping object until any broker's configs are altered."""
        altered = self._state().broker_configs
        if altered is not self._altered:
            self._altered = altered
            self._now = {**self.settings, **self.every_broker, **altered.get(self._name, NOTHING)}
        return self._now

    @property
    def every_broker(self) -> Mapping[str, str]:
        """The configs that were altered for every broker."""
        return self._state().broker_configs.get(EVERY_BROKER, NOTHING)

    @property
    def layers(self) -> Layers:
        """The sources of values with their configs, the one that takes precedence first."""
        return (
            (ConfigSource.DYNAMIC_BROKER, self._state().broker_configs.get(self._name, NOTHING)),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.every_broker),
            (ConfigSource.STATIC_BROKER, self.settings),
        )

    def __getitem__(self, name: str) -> str:
        return self.now[name]

    def __contains__(self, name: object) -> bool:  # that of `Mapping` catches an exception where it is not
        return name in self.now

    def __iter__(self) -> Iterator[str]:
        return iter(self.now)

    def __len__(self) -> int:
        return len(self.now)
