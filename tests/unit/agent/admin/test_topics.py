"""What a topic may be created with, before anything is written to the ledger."""

import pytest

from agent.admin.topics import TopicAdmin, TopicError, TopicLookup, before, deadline_s
from agent.runtime.clock import SystemClock
from agent.runtime.ids import SystemIds
from coordinator.commands.admin import CreatePartitions
from coordinator.commands.commands import DeleteTopic, Done
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import LedgerUnavailable
from protocol.errors import ErrorCode
from protocol.limits import CONFIG_VALUE_CHARS_MAX, LEDGER_WAIT_SECONDS_MAX, PARTITIONS_PER_TOPIC_MAX
from tests.support.agent.broker_configs import broker_configs
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import create


def admin(parts: Parts) -> TopicAdmin:
    return TopicAdmin(ledger=parts.ledger, ids=SystemIds(), broker_configs=broker_configs())


@pytest.mark.parametrize(
    "configs",
    [
        {"min.cleanable.dirty.ratio": "0.5".ljust(CONFIG_VALUE_CHARS_MAX + 1, "0")},
        {"leader.replication.throttled.replicas": "1:1" + ",2:2" * (1 << 20)},
        {"cleanup.policy": "delete" + "x" * (1 << 20)},
        {"retention.ms": "1" * CONFIG_VALUE_CHARS_MAX},
        {"x" * (1 << 20): "1"},
        {"x" * (1 << 20): None},
    ],
)
async def test_configs_that_do_not_fit_are_invalid_and_the_ledger_does_not_see_them(
    configs: dict[str, str | None],
) -> None:
    async with running_parts() as parts:
        head = await parts.backend.head()
        with pytest.raises(TopicError) as refused:
            await admin(parts).create("t", partition_count=1, configs=configs)
        assert refused.value.error_code is ErrorCode.invalid_config
        assert len(refused.value.message or "") < 500
        assert await parts.backend.head() == head
        assert await parts.ledger.propose(create()) == Done()


async def test_a_ledger_that_is_away_for_longer_than_the_request_waits_is_told_as_a_timeout() -> None:
    ledger = MemoryLedger()
    clock = SystemClock()
    async with running_parts(ledger) as parts:
        ledger.is_reachable = False
        creation = admin(parts).create("t", partition_count=1, configs={})
        with pytest.raises(TopicError) as refused:
            await before(deadline_s(clock, 0.01), clock, creation)
        assert refused.value.error_code is ErrorCode.request_timed_out
        ledger.is_reachable = True
        created = await before(deadline_s(clock), clock, admin(parts).create("u", partition_count=1, configs={}))
        assert created.name == "u"


async def test_a_request_that_names_no_time_has_the_usual_one() -> None:
    async with running_parts() as parts:
        assert deadline_s(parts.clock, -1.0) == deadline_s(parts.clock) == LEDGER_WAIT_SECONDS_MAX
        assert deadline_s(parts.clock, 2.5) == 2.5


async def test_s4_that_a_topic_exists_is_said_only_after_a_barrier() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts:
        topics = admin(parts)
        first = await topics.create("t", partition_count=1, configs={})
        deletion = parts.ledger.propose(DeleteTopic(topic_id=first.topic_id))
        # The deletion is in the ledger before the barrier is answered, and this agent has not applied it yet.
        second = await topics.create("t", partition_count=1, configs={})
        assert await deletion == Done()
        assert second.topic_id != first.topic_id


async def test_a_topic_that_somebody_else_deleted_first_is_unknown_in_the_request_s_own_terms() -> None:
    async with running_parts() as parts:
        topics = admin(parts)
        topic = await topics.create("t", partition_count=1, configs={})
        await topics.delete(topic, is_by_name=True)
        with pytest.raises(TopicError) as refused:
            await topics.delete(topic, is_by_name=True)
        assert refused.value.error_code is ErrorCode.unknown_topic_or_partition


async def test_a_name_means_the_topic_that_has_it_now_not_one_that_this_agent_still_saw() -> None:
    async with running_parts() as parts:
        topics = admin(parts)
        seen = await topics.create("t", partition_count=1, configs={})
        await topics.delete(seen, is_by_name=False)
        created_again = await topics.create("t", partition_count=1, configs={})
        with pytest.raises(TopicError) as refused:
            await topics.delete(seen, is_by_name=False)
        assert refused.value.error_code is ErrorCode.unknown_topic_id
        assert await topics.delete(seen, is_by_name=True) is created_again
        assert "t" not in parts.ledger.state.topic_ids


class TestGrowth:
    async def test_s4_that_a_topic_lacks_a_partition_is_said_only_after_a_barrier(self) -> None:
        async with running_parts() as parts:
            topics = admin(parts)
            topic = await topics.create("t", partition_count=1, configs={})
            lookup = TopicLookup(topics)
            growth = parts.ledger.propose(CreatePartitions(topic_id=topic.topic_id, partition_count=3))
            found = await lookup.grown_to(topic, 2)
            assert found is topic
            assert await growth == Done()
            assert await lookup.grown_to(topic, 3) is None

    async def test_s4_one_barrier_does_for_all_of_a_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[None] = []
        async with running_parts() as parts:
            topics = admin(parts)
            topic = await topics.create("t", partition_count=1, configs={})
            barrier = parts.ledger.barrier

            async def counted() -> None:
                asked.append(None)
                await barrier()

            monkeypatch.setattr(parts.ledger, "barrier", counted)
            lookup = TopicLookup(topics)
            assert [await lookup.grown_to(topic, index) for index in (-1, PARTITIONS_PER_TOPIC_MAX)] == [None, None]
            assert asked == []
            assert [await lookup.grown_to(topic, index) for index in (1, 2, 3)] == [None, None, None]
            assert len(asked) == 1

    async def test_s4_while_the_ledger_is_away_nothing_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def away() -> None:
            raise LedgerUnavailable("away")

        async with running_parts() as parts:
            topics = admin(parts)
            topic = await topics.create("t", partition_count=1, configs={})
            monkeypatch.setattr(parts.ledger, "barrier", away)
            lookup = TopicLookup(topics)
            for _ in range(2):
                with pytest.raises(LedgerUnavailable):
                    await lookup.grown_to(topic, 1)

    async def test_a_topic_that_was_deleted_meanwhile_has_not_grown(self) -> None:
        async with running_parts() as parts:
            topics = admin(parts)
            topic = await topics.create("t", partition_count=1, configs={})
            await topics.delete(topic, is_by_name=True)
            assert await TopicLookup(topics).grown_to(topic, 1) is None
            with pytest.raises(TopicError) as refused:
                await topics.grow(topic, 2)
            assert refused.value.error_code is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
async def test_names_of_kafkas_own_topics_are_taken_and_there_is_nothing_in_them(name: str) -> None:
    async with running_parts() as parts:
        topics = admin(parts)
        with pytest.raises(TopicError) as refused:
            await topics.create(name, partition_count=1, configs={})
        assert refused.value.error_code is ErrorCode.topic_already_exists
        with pytest.raises(TopicError) as unknown:
            await topics.auto_create(name, lambda _: None)
        assert unknown.value.error_code is ErrorCode.unknown_topic_or_partition
        assert parts.ledger.state.topics == {}
