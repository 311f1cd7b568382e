"""What a request used is counted in its client's quotas, and the longest throttle of them holds."""

import asyncio

import pytest

from agent.runtime.metrics import Metrics
from agent.security.quotas.quotas import Quotas
from agent.security.quotas.throttling import Mute, RequestUsage, usage_of
from coordinator.state.state import ClusterState
from protocol.api_versions import ApiKey
from protocol.connection import RequestFrame
from protocol.limits import THROTTLE_MS_MAX
from protocol.types import SessionId
from tests.support.agent.ledger_parts import ManualClock

MINE = SessionId(1)


class World:
    """The quotas of ann, and requests of hers."""

    def __init__(self, scope: str = "agent", **quotas: float) -> None:
        state = ClusterState(cluster_id="c", incarnation=1)
        state.client_quotas = {(("user", "ann"),): quotas}
        self.clock = ManualClock()
        self.metrics = Metrics()
        configs = {"penstock.quota.scope": scope}
        self.quotas = Quotas(state=lambda: state, broker_configs=configs, clock=self.clock, metrics=self.metrics)

    def request(self, api_key: int, request_bytes: int = 100, user: str = "ann") -> RequestUsage:
        usage = usage_of(self.quotas, user, frame(api_key, request_bytes))
        assert usage is not None
        return usage

    async def work(self, usage: RequestUsage, seconds: float) -> None:
        """The handler of the request takes so long."""

        async def handle() -> None:
            self.clock.seconds += seconds

        await usage.measure(handle())


def frame(api_key: int, request_bytes: int) -> RequestFrame:
    return RequestFrame(
        number=0,
        api_key=api_key,
        api_version=9,
        correlation_id=7,
        client_id="c",
        header_bytes=20,
        body=memoryview(bytes(request_bytes - 20)),
    )


def test_requests_of_others_are_not_counted() -> None:
    assert usage_of(World(producer_byte_rate=1.0).quotas, "bob", frame(ApiKey.PRODUCE, 100)) is None


class TestProduce:
    def test_the_bytes_of_the_request_count_with_its_header(self) -> None:
        world = World(producer_byte_rate=100.0)
        assert world.request(ApiKey.PRODUCE, 1_000).end(is_answered=True) == 0
        assert world.request(ApiKey.PRODUCE, 500).end(is_answered=True) == 5_000

    def test_they_count_with_acks_0_too(self) -> None:
        world = World(producer_byte_rate=100.0)
        assert world.request(ApiKey.PRODUCE, 1_500).end(is_answered=False) == 5_000

    def test_other_requests_are_not_throttled_by_it(self) -> None:
        world = World(producer_byte_rate=100.0)
        world.request(ApiKey.PRODUCE, 9_000).end(is_answered=True)
        assert world.request(ApiKey.METADATA).end(is_answered=True) == 0
        fetch = world.request(ApiKey.FETCH)
        assert not fetch.is_fetch_throttled(1_000_000)
        assert fetch.end(is_answered=True) == 0

    def test_the_time_is_one_that_a_response_can_say(self) -> None:
        world = World(producer_byte_rate=1e-9)
        assert world.request(ApiKey.PRODUCE, 1_000).end(is_answered=True) == THROTTLE_MS_MAX

    def test_it_is_seen_in_the_metrics(self) -> None:
        world = World(producer_byte_rate=100.0)
        world.request(ApiKey.PRODUCE, 1_500).end(is_answered=True)
        world.request(ApiKey.METADATA).end(is_answered=True)
        sampled = world.metrics.registry.get_sample_value
        assert sampled("penstock_request_throttle_duration_seconds_sum", {"quota": "produce"}) == pytest.approx(5.0)
        assert sampled("penstock_request_throttle_duration_seconds_count", {"quota": "produce"}) == 1
        assert sampled("penstock_quota_throttled_total", {"entity": "user=ann"}) == 1


class TestProduceThroughSeveralAgents:
    def test_the_bytes_are_told_at_once_and_count_here_when_they_are_answered(self) -> None:
        world = World("cluster", producer_byte_rate=100.0)
        request = world.request(ApiKey.PRODUCE, 1_500)
        world.request(ApiKey.METADATA)
        (told,) = world.quotas.shared_use.take(MINE)
        assert told.byte_count == 1_500
        world.quotas.shared_use.applied(MINE, (told,))
        assert request.end(is_answered=True) == 5_000

    def test_what_came_through_others_throttles_this_agents_clients(self) -> None:
        world, another = World("cluster", producer_byte_rate=100.0), World("cluster", producer_byte_rate=100.0)
        for _ in range(2):
            another.request(ApiKey.PRODUCE, 500).end(is_answered=True)
        world.quotas.shared_use.applied(SessionId(2), another.quotas.shared_use.take(SessionId(2)))
        assert world.request(ApiKey.PRODUCE, 500).end(is_answered=True) == 5_000

    def test_without_it_nothing_is_told(self) -> None:
        world = World(producer_byte_rate=100.0)
        world.request(ApiKey.PRODUCE, 1_500).end(is_answered=True)
        assert world.quotas.shared_use.take(MINE) == ()


class TestFetch:
    def test_above_the_quota_nothing_is_counted(self) -> None:
        world = World(consumer_byte_rate=100.0)
        first = world.request(ApiKey.FETCH)
        assert first.fetch_bytes_max == 1_000
        assert not first.is_fetch_throttled(1_000)
        assert first.end(is_answered=True) == 0
        for _ in range(2):
            above = world.request(ApiKey.FETCH)
            assert above.is_fetch_throttled(500)
            assert above.end(is_answered=True) == 5_000

    def test_a_batch_that_is_larger_than_all_windows_is_answered_once_nothing_else_is_counted(self) -> None:
        world = World(consumer_byte_rate=100.0)
        assert not world.request(ApiKey.FETCH).is_fetch_throttled(10)
        assert world.request(ApiKey.FETCH).is_fetch_throttled(5_000)
        world.clock.seconds += 11.0
        large = world.request(ApiKey.FETCH)
        assert not large.is_fetch_throttled(5_000)
        assert large.end(is_answered=True) == 40_000
        assert world.request(ApiKey.FETCH).is_fetch_throttled(10)

    def test_without_a_quota_a_response_may_be_as_large_as_ever(self) -> None:
        assert World(producer_byte_rate=1.0).request(ApiKey.FETCH).fetch_bytes_max == (1 << 31) - 1

    async def test_one_above_the_quota_of_time_is_empty_and_its_bytes_are_not_counted(self) -> None:
        world = World(consumer_byte_rate=100.0, request_percentage=1.0)
        slow = world.request(ApiKey.FETCH)
        await world.work(slow, 0.2)
        assert slow.is_fetch_throttled(900)
        assert slow.end(is_answered=True) == 1_000
        world.clock.seconds += 11.0
        assert not world.request(ApiKey.FETCH).is_fetch_throttled(900)


class TestTime:
    async def test_the_time_of_handlers_counts_in_percents_for_a_window_at_most(self) -> None:
        world = World(request_percentage=10.0)
        first, second = world.request(ApiKey.METADATA), world.request(ApiKey.METADATA)
        await world.work(first, 1.0)
        assert first.end(is_answered=True) == 0
        await world.work(second, 0.05)
        assert second.end(is_answered=True) == 450
        third = world.request(ApiKey.METADATA)
        await world.work(third, 1.0)
        assert third.end(is_answered=True) == 1_000

    async def test_a_produce_with_acks_0_is_exempt(self) -> None:
        world = World(request_percentage=1.0)
        usage = world.request(ApiKey.PRODUCE)
        await world.work(usage, 5.0)
        assert usage.end(is_answered=False) == 0

    async def test_what_is_between_brokers_in_kafka_is_exempt(self) -> None:
        world = World(request_percentage=1.0)
        usage = world.request(ApiKey.WRITE_TXN_MARKERS)
        await world.work(usage, 5.0)
        assert usage.end(is_answered=True) == 0

    async def test_the_longest_throttle_holds(self) -> None:
        world = World(request_percentage=1.0, producer_byte_rate=100.0)
        usage = world.request(ApiKey.PRODUCE, 1_500)
        await world.work(usage, 5.0)
        assert usage.end(is_answered=True) == 5_000


class TestMutations:
    def test_strict_ones_are_rejected_while_partitions_are_owed(self) -> None:
        world = World(controller_mutation_rate=2.0)
        first = world.request(ApiKey.CREATE_TOPICS)
        assert first.take_mutations(22, is_strict=True)
        assert first.take_mutations(8, is_strict=True)
        assert not first.take_mutations(1, is_strict=True)
        assert first.end(is_answered=True) == 4_000

    def test_the_throttle_is_what_is_left_of_it_when_the_answer_leaves(self) -> None:
        world = World(controller_mutation_rate=2.0)
        usage = world.request(ApiKey.CREATE_TOPICS)
        assert usage.take_mutations(30, is_strict=False)
        world.clock.seconds += 3.0
        assert usage.end(is_answered=True) == 1_000

    def test_others_are_carried_out_and_throttled(self) -> None:
        world = World(controller_mutation_rate=2.0)
        assert world.request(ApiKey.CREATE_TOPICS).take_mutations(30, is_strict=True)
        usage = world.request(ApiKey.CREATE_TOPICS)
        assert usage.take_mutations(2, is_strict=False)
        assert usage.end(is_answered=True) == 5_000

    def test_without_a_quota_there_are_as_many_as_there_may_be(self) -> None:
        world = World(producer_byte_rate=1.0)
        usage = world.request(ApiKey.CREATE_TOPICS)
        assert usage.take_mutations(1_000_000, is_strict=True)
        assert usage.end(is_answered=True) == 0


class TestMute:
    async def test_it_ends_by_itself(self) -> None:
        ended = list[str]()
        mute = Mute(lambda: ended.append("ended"))
        await mute.wait()
        mute.extend(0.01, 5.0)
        assert (mute.is_on, mute.since_s) == (True, 5.0)
        await asyncio.gather(mute.wait(), mute.wait())
        assert (mute.is_on, ended) == (False, ["ended"])

    async def test_a_shorter_one_does_not_shorten_it(self) -> None:
        mute, short = Mute(lambda: None), Mute(lambda: None)
        mute.extend(3_600.0, 5.0)
        mute.extend(0.0, 5.0)
        short.extend(0.01, 5.0)
        await short.wait()
        states = [mute.is_on]
        mute.cancel()
        states.append(mute.is_on)
        mute.cancel()
        assert states == [True, False]

    async def test_a_longer_one_takes_its_place(self) -> None:
        ended = list[str]()
        mute = Mute(lambda: ended.append("ended"))
        mute.extend(0.0, 5.0)
        mute.extend(0.01, 5.0)
        await mute.wait()
        assert (ended, mute.since_s) == (["ended"], 5.0)
