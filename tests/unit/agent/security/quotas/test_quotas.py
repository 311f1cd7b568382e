"""Clients that share a quota are counted together, and what they used outlives an alteration of it."""

import pytest

from agent.runtime.metrics import Metrics
from agent.security.quotas import quotas as quotas_module
from agent.security.quotas.quota_windows import CountedRate
from agent.security.quotas.quotas import ClientQuotas, Meter, Quotas
from agent.security.quotas.shared_use import use_key
from coordinator.commands.commands import QuotaUse
from coordinator.commands.rules import RULES_NEWEST
from coordinator.security.quota_rules import QuotaEntity
from coordinator.state.state import ClusterState, SessionState
from protocol.types import SessionId
from tests.support.agent.ledger_parts import ManualClock

ANN: QuotaEntity = (("user", "ann"),)
EACH_CLIENT: QuotaEntity = (("client-id", None),)


class World:
    def __init__(self, **configs: str) -> None:
        self.state = ClusterState(cluster_id="c", incarnation=1)
        self.clock = ManualClock()
        names = {name.replace("_", "."): value for name, value in configs.items()}
        self.metrics = Metrics()
        self.quotas = Quotas(state=lambda: self.state, broker_configs=names, clock=self.clock, metrics=self.metrics)

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


def session_of(number: int) -> SessionState:
    return SessionState(
        name=f"agent-{number}", node_id=number, endpoints=(), zone=None, rules_version=RULES_NEWEST, entry_next=1
    )


CLUSTER = {"penstock_quota_scope": "cluster"}


class TestQuotasOfTheCluster:
    def agents(self, world: World, count: int) -> None:
        world.state.sessions = {SessionId(number): session_of(number) for number in range(count)}

    def test_consumers_share_theirs_among_the_agents_that_there_are(self) -> None:
        world = World(**CLUSTER)
        world.set(consumer_byte_rate=60.0, producer_byte_rate=60.0, request_percentage=60.0)
        limits: list[float] = []
        counted: list[CountedRate] = []
        for count in (0, 1, 3, 2):
            self.agents(world, count)
            client = world.client("ann", "c")
            assert client.fetch is not None
            assert client.request is not None
            assert client.produce is not None
            limits.append(client.fetch.limit)
            counted.append(client.fetch.counted)
            assert (client.request.limit, client.produce.limit) == (60.0, 60.0)
        assert limits == [60.0, 60.0, 20.0, 30.0]
        assert all(each is counted[0] for each in counted)

    def test_producers_are_counted_through_all_agents(self) -> None:
        world = World(**CLUSTER)
        world.set(producer_byte_rate=100.0)
        meter = world.produce("ann", "c")
        assert meter.is_shared
        world.quotas.shared_use.applied(
            SessionId(9), (QuotaUse(key=use_key(meter.applied), byte_count=1_500), QuotaUse(key=1, byte_count=9_000))
        )
        assert meter.counted.amount == 1_500
        assert world.produce("ann", "another").counted is meter.counted

    def test_without_it_each_agent_counts_by_itself(self) -> None:
        world = World()
        self.agents(world, 3)
        world.set(producer_byte_rate=100.0, consumer_byte_rate=60.0)
        client = world.client("ann", "c")
        assert client.fetch is not None
        assert client.fetch.limit == 60.0
        meter = world.produce("ann", "c")
        assert not meter.is_shared
        world.quotas.shared_use.applied(SessionId(9), (QuotaUse(key=use_key(meter.applied), byte_count=1_500),))
        assert meter.counted.amount == 0


def test_a_metric_says_whom_the_quota_is_for_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas_module, "QUOTA_ENTITY_LABELS_MAX", 2)
    world = World()
    for user in ("a", "b", "c", "d", "a"):
        world.state.client_quotas = {(("user", user),): {"producer_byte_rate": 5.0}}
        world.quotas.throttled("produce", world.produce(user, "x"), 0.5)

    def sampled(entity: str) -> float | None:
        return world.metrics.registry.get_sample_value("penstock_quota_throttled_total", {"entity": entity})

    assert [sampled(name) for name in ("user=a", "user=b", "user=c", "other")] == [2, 1, None, 2]
