"""Clients are told what to push and how often, and a push out of turn, or of another subscription, is refused."""

import asyncio
import uuid
from collections.abc import Mapping

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)

from agent.runtime.ids import SystemIds
from agent.runtime.metrics import Metrics
from agent.telemetry import subscriptions as client_telemetry
from agent.telemetry.client_info import ConnectedClient
from agent.telemetry.subscriptions import (
    Asker,
    ClientInstance,
    ClientTelemetry,
    Push,
    TelemetryRejected,
    subscription_id,
)
from protocol.errors import ErrorCode
from protocol.records.compression import Compression, compress
from tests.support.agent.ledger_parts import ManualClock

EVERY_MINUTE = {"metrics": "org.apache.kafka.producer.,other", "interval.ms": "60000"}
METRICS = MetricsData(
    resource_metrics=[
        ResourceMetrics(
            scope_metrics=[
                ScopeMetrics(metrics=[Metric(name="g", gauge=Gauge(data_points=[NumberDataPoint(as_int=1)]))])
            ]
        )
    ]
).SerializeToString()


class World:
    """One agent, whose subscriptions and clock a test changes."""

    def __init__(self, configs: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.configs = dict(configs or {})
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.connection = ConnectedClient(software_name="java", software_version="4.3.1")
        self.telemetry = ClientTelemetry(
            configs=lambda: self.configs, clock=self.clock, ids=SystemIds(), metrics=self.metrics, bytes_max=1_000
        )

    def asker(self, client_id: str = "me") -> Asker:
        return Asker(client_id=client_id, address="127.0.0.1:5", connection=self.connection)

    async def ask(self, instance_id: uuid.UUID | None = None, client_id: str = "me") -> ClientInstance:
        return await self.telemetry.subscribe(instance_id, self.asker(client_id))

    async def push(
        self,
        instance: ClientInstance,
        *,
        compression: int = Compression.NONE,
        metrics: bytes = METRICS,
        is_terminating: bool = False,
        of_subscription: int | None = None,
    ) -> ErrorCode:
        """What the client is told."""
        push = Push(
            subscription_id=instance.subscription_id if of_subscription is None else of_subscription,
            is_terminating=is_terminating,
            compression=compression,
            metrics=metrics,
        )
        try:
            await self.telemetry.push(instance.instance_id, self.asker(), push)
        except TelemetryRejected as refused:
            return refused.error_code
        return ErrorCode.none

    def series_count(self) -> int:
        return sum(len(family.samples) for family in self.telemetry.series.collect())

    def pushes(self, outcome: str) -> float:
        value = self.metrics.registry.get_sample_value("penstock_client_telemetry_pushes_total", {"outcome": outcome})
        return value or 0.0


async def rejection(world: World, instance_id: uuid.UUID) -> ErrorCode:
    with pytest.raises(TelemetryRejected) as refused:
        await world.ask(instance_id)
    return refused.value.error_code


class TestSubscriptions:
    async def test_without_any_a_client_is_to_push_nothing_and_to_ask_again_in_five_minutes(self) -> None:
        instance = await World().ask()
        assert (list(instance.metrics), instance.interval_ms) == ([], 300_000)

    async def test_a_client_without_an_id_gets_one_and_keeps_it(self) -> None:
        world = World()
        first, second = (await world.ask()), (await world.ask())
        assert first.instance_id != second.instance_id
        world.clock.seconds = 300
        assert (await world.ask(first.instance_id)).subscription_id == first.subscription_id
        assert world.telemetry.instances_count == 2

    async def test_all_that_match_count_together_at_the_shortest_interval(self) -> None:
        world = World(
            {
                "a": EVERY_MINUTE,
                "b": {"metrics": "b", "interval.ms": "400000"},
                "c": {"metrics": "c", "interval.ms": "100", "match": "client_id=you"},
            }
        )
        instance = await world.ask()
        assert instance.metrics == ["b", "org.apache.kafka.producer.", "other"]
        assert instance.interval_ms == 60_000
        assert (await world.ask(client_id="you")).interval_ms == 100

    async def test_every_metric_stands_for_all_others(self) -> None:
        assert (await World({"a": EVERY_MINUTE, "b": {"metrics": "x,*"}}).ask()).metrics == ["*"]

    @pytest.mark.parametrize(
        "match",
        [
            "client_software_name=java,client_software_version=4\\..*",
            "client_source_address=127.0.0.1",
            "client_source_port=5",
            "client_instance_id=.{22}",
        ],
    )
    async def test_a_client_is_known_by_its_software_and_its_address(self, match: str) -> None:
        assert (await World({"a": {**EVERY_MINUTE, "match": match}}).ask()).interval_ms == 60_000

    async def test_agents_compute_the_same_id_and_another_one_for_other_metrics_intervals_or_clients(self) -> None:
        one, two = uuid.UUID(int=77), uuid.UUID(int=78)
        here = await World({"a": EVERY_MINUTE}).ask(one)
        assert here.subscription_id == (await World({"b": EVERY_MINUTE}).ask(one)).subscription_id
        ids = {
            subscription_id(metrics, interval_ms, instance_id)
            for metrics in (["a"], ["b"], ["a", "b"])
            for interval_ms in (100, 200)
            for instance_id in (one, two)
        }
        assert len(ids) == 12
        assert all(-(1 << 31) <= number < 1 << 31 for number in ids)

    async def test_a_client_that_asks_again_too_soon_is_throttled(self) -> None:
        world = World({"a": EVERY_MINUTE})
        instance_id = (await world.ask()).instance_id
        world.clock.seconds = 59.9
        assert await rejection(world, instance_id) is ErrorCode.throttling_quota_exceeded
        world.clock.seconds = 60
        assert (await world.ask(instance_id)).instance_id == instance_id

    async def test_after_a_change_a_client_may_ask_at_once(self) -> None:
        world = World({"a": EVERY_MINUTE})
        first = await world.ask()
        world.configs["a"] = {**EVERY_MINUTE, "metrics": "new"}
        second = await world.ask(first.instance_id)
        assert second.metrics == ["new"]
        assert second.subscription_id != first.subscription_id

    async def test_an_expression_that_others_need_for_ever_takes_no_time(self) -> None:
        evil = {**EVERY_MINUTE, "match": "client_id=(a+)+b"}
        assert (await World({"a": evil}).ask(client_id="a" * 10_000)).interval_ms == 300_000

    async def test_two_requests_of_one_client_at_once_find_the_same(self) -> None:
        world = World({"a": {**EVERY_MINUTE, "match": "client_id=me", "interval.ms": "100"}})
        one = uuid.UUID(int=77)

        async def ask() -> ClientInstance | None:
            try:
                return await world.ask(one)
            except TelemetryRejected:
                return None

        first, second = await asyncio.gather(ask(), ask())
        assert (first is None) is not (second is None)
        assert world.telemetry.instances_count == 1


class TestPushes:
    async def test_metrics_become_series(self) -> None:
        world = World({"a": EVERY_MINUTE})
        compressed = bytes(compress(Compression.ZSTD, METRICS))
        assert await world.push(await world.ask(), compression=Compression.ZSTD, metrics=compressed) is ErrorCode.none
        assert world.series_count() == 1
        assert world.pushes("taken") == 1

    async def test_the_first_push_comes_at_any_time_and_the_next_after_the_interval(self) -> None:
        world = World({"a": EVERY_MINUTE})
        instance = await world.ask()
        world.clock.seconds = 1
        assert await world.push(instance) is ErrorCode.none
        world.clock.seconds = 60.9
        assert await world.push(instance) is ErrorCode.throttling_quota_exceeded
        world.clock.seconds = 61
        assert await world.push(instance) is ErrorCode.none
        assert world.pushes("throttling_quota_exceeded") == 1

    async def test_a_client_that_ends_may_push_once_at_any_time_and_never_again(self) -> None:
        world = World({"a": EVERY_MINUTE})
        instance = await world.ask()
        assert await world.push(instance) is ErrorCode.none
        assert await world.push(instance, is_terminating=True) is ErrorCode.none
        world.clock.seconds = 120
        assert await world.push(instance) is ErrorCode.invalid_request

    async def test_a_push_of_another_subscription_is_refused_and_its_client_may_ask_at_once(self) -> None:
        world = World({"a": EVERY_MINUTE})
        instance = await world.ask()
        assert await world.push(instance, of_subscription=1) is ErrorCode.unknown_subscription_id
        assert (await world.ask(instance.instance_id)).subscription_id == instance.subscription_id
        assert world.series_count() == 0

    async def test_a_push_may_go_to_another_agent_than_the_one_that_was_asked(self) -> None:
        instance = await World({"a": EVERY_MINUTE}).ask()
        assert await World({"a": EVERY_MINUTE}).push(instance) is ErrorCode.none

    async def test_a_compression_that_nobody_knows_is_refused_and_its_client_may_ask_at_once(self) -> None:
        world = World({"a": EVERY_MINUTE})
        instance = await world.ask()
        assert await world.push(instance, compression=9) is ErrorCode.unsupported_compression_type
        assert (await world.ask(instance.instance_id)) is instance

    async def test_a_push_that_is_too_large_is_refused(self) -> None:
        world = World({"a": EVERY_MINUTE})
        assert await world.push(await world.ask(), metrics=bytes(1_001)) is ErrorCode.telemetry_too_large

    async def test_what_cannot_be_read_is_refused(self) -> None:
        world = World({"a": EVERY_MINUTE})
        assert await world.push(await world.ask(), metrics=b"\xff\xff") is ErrorCode.invalid_record
        assert world.pushes("invalid_record") == 1

    async def test_a_push_without_metrics_is_taken(self) -> None:
        world = World({"a": EVERY_MINUTE})
        assert await world.push(await world.ask(), metrics=b"") is ErrorCode.none
        assert world.series_count() == 0

    @pytest.mark.parametrize("instance_id", [None, uuid.UUID(int=1)])
    async def test_a_push_needs_an_id(self, instance_id: uuid.UUID | None) -> None:
        world = World({"a": EVERY_MINUTE})
        push = Push(subscription_id=0, is_terminating=False, compression=0, metrics=b"")
        with pytest.raises(TelemetryRejected) as refused:
            await world.telemetry.push(instance_id, world.asker(), push)
        assert refused.value.error_code is ErrorCode.invalid_request


class TestMemory:
    async def test_a_long_id_is_kept_cut(self) -> None:
        assert (await World().ask(client_id="x" * 30_000)).attributes["client_id"] == "x" * 200

    async def test_a_client_goes_with_its_connection(self) -> None:
        world = World({"a": EVERY_MINUTE})
        instance = await world.ask()
        world.telemetry.disconnected(world.connection)
        assert world.telemetry.instances_count == 0
        assert (await world.ask(instance.instance_id)) is not instance

    async def test_a_client_that_went_to_another_connection_stays_when_the_first_one_closes(self) -> None:
        world = World({"a": EVERY_MINUTE})
        first, instance = world.connection, (await world.ask())
        world.connection = ConnectedClient()
        world.clock.seconds = 60
        await world.ask(instance.instance_id)
        world.telemetry.disconnected(first)
        world.telemetry.disconnected(ConnectedClient())
        assert world.telemetry.instances_count == 1

    async def test_a_client_that_was_silent_for_three_intervals_is_forgotten(self) -> None:
        world = World({"a": EVERY_MINUTE})
        first = await world.ask()
        world.clock.seconds = 179.9
        second = await world.ask()
        assert world.telemetry.instances_count == 2
        world.clock.seconds = 180
        await world.ask()
        assert world.telemetry.instances_count == 2
        assert second.instance_id != first.instance_id

    async def test_so_many_clients_are_remembered_and_those_longest_unheard_of_go(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client_telemetry, "CLIENT_INSTANCES_MAX", 2)
        world = World({"a": EVERY_MINUTE})
        first, second, _ = (await world.ask()), (await world.ask()), (await world.ask())
        assert world.telemetry.instances_count == 2
        assert await rejection(world, second.instance_id) is ErrorCode.throttling_quota_exceeded
        assert (await world.ask(first.instance_id)) is not first
