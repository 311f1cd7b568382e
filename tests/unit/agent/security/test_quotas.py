"""Clients that share a quota are counted together, and what they used outlives an alteration of it."""

import pytest

from agent.runtime.metrics import Metrics
from agent.security import quotas as quotas_module
from agent.security.quota_windows import CountedRate
from agent.security.quotas import ClientQuotas, Meter, Quotas
from coordinator.security.quota_rules import QuotaEntity
from coordinator.state.state import ClusterState
from tests.support.agent.ledger_parts import ManualClock

ANN: QuotaEntity = (("user", "ann"),)
EACH_CLIENT: QuotaEntity = (("client-id", None),)


class World:
    def __init__(self, **configs: str) -> None:
        self.state = ClusterState(cluster_id="c", incarnation=1)
        self.clock = ManualClock()
        names = {name.replace("_", "."): value for name, value in configs.items()}
        self.quotas = Quotas(state=lambda: self.state, broker_configs=names, clock=self.clock, metrics=Metrics())

    def set(self, **values: float) -> None:
        """Quotas of ann."""
        self.state.client_quotas = {ANN: values}

    def client(self, user: str, client_id: str) -> ClientQuotas:
        client = self.quotas.of_client(user, client_id)
        assert client is not None
        return client

    def produce(self, user: str, client_id: str) -> Meter[CountedRate]:
        meter = self.client(user, client_id).produce
        assert meter is not None
        return meter


def test_where_no_quota_is_set_no_client_has_one() -> None:
    world = World()
    assert world.quotas.of_client("ann", "c") is None


def test_who_is_held_to_none_has_none() -> None:
    world = World()
    world.set(producer_byte_rate=5.0)
    assert world.quotas.of_client("bob", "c") is None


def test_each_kind_has_a_limit_of_its_own() -> None:
    world = World()
    world.set(consumer_byte_rate=1.0, controller_mutation_rate=2.0, request_percentage=3.0)
    client = world.client("ann", "c")
    assert client.produce is None
    assert client.fetch is not None
    assert client.request is not None
    assert client.mutations is not None
    assert (client.fetch.limit, client.mutations.limit, client.request.limit) == (1.0, 2.0, 3.0)


def test_clients_that_share_a_quota_are_counted_together() -> None:
    world = World()
    world.set(producer_byte_rate=5.0)
    assert world.produce("ann", "a").counted is world.produce("ann", "b").counted
    world.state.client_quotas = {EACH_CLIENT: {"producer_byte_rate": 5.0}}
    assert world.produce("ann", "a").counted is not world.produce("ann", "b").counted
    assert world.produce("ann", "a").counted is world.produce("bob", "a").counted


def test_an_altered_limit_holds_for_what_was_counted_before() -> None:
    world = World()
    world.set(producer_byte_rate=5.0)
    before = world.produce("ann", "a")
    world.set(producer_byte_rate=7.0)
    after = world.produce("ann", "a")
    assert (before.limit, after.limit) == (5.0, 7.0)
    assert after.counted is before.counted


def test_a_removed_quota_holds_no_more() -> None:
    world = World()
    world.set(producer_byte_rate=5.0)
    assert world.produce("ann", "a").limit == 5.0
    world.state.client_quotas = {}
    assert world.quotas.of_client("ann", "a") is None


def test_beyond_the_limit_the_client_that_was_away_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas_module, "QUOTA_CLIENTS_COUNTED_MAX", 2)
    world = World()
    world.state.client_quotas = {EACH_CLIENT: {"producer_byte_rate": 5.0}}
    first, second = world.client("u", "1"), world.client("u", "2")
    assert world.client("u", "1") is first
    world.client("u", "3")
    assert world.client("u", "1") is first
    assert world.client("u", "2") is not second


def test_windows_are_as_the_broker_was_configured() -> None:
    world = World(quota_window_num="3", quota_window_size_seconds="2", controller_quota_window_num="5")
    assert (world.quotas.windows.count, world.quotas.windows.seconds) == (3, 2.0)
    assert (world.quotas.mutation_windows.count, world.quotas.mutation_windows.seconds) == (5, 1.0)
