"""Broker configs as an agent of node 1 has them, over a state that need not be an agent's."""

from collections.abc import Mapping

from agent.admin.config_layers import BrokerConfigs
from coordinator.state.state import ClusterState


def broker_configs(settings: Mapping[str, str] | None = None, state: ClusterState | None = None) -> BrokerConfigs:
    """What an agent has that was started with `settings`; a state without alterations where none is given."""
    held = ClusterState.empty("c", 1) if state is None else state
    return BrokerConfigs(settings or {}, node_id=1, state=lambda: held)
