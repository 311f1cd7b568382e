"""What a recovery does where objects, names or snapshots are lost or damaged: no loss that nobody accepted (S5, S9)."""

import pytest

from agent.bucket.cluster_identity import check_bucket
from agent.fetch.served_chunks import serve_intake
from coordinator.commands.commands import (
    CreateTopic,
)
from coordinator.commands.rules import RULES_FIRST, RULES_NEWEST
from coordinator.invariants import check
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import (
    LedgerCorrupt,
)
from coordinator.state.chunk_index import NO_CHECKSUM
from protocol.limits import RECOVERY_READS_MAX
from protocol.records.batch import walk_batches
from protocol.types import ObjectNumber, SessionId, TopicId
from storage.refs import SNAPSHOT_PREFIX, intake_key, parquet_key, short_name
from tests.support.agent.ledger_parts import BEGAN_MS, ManualClock, running_parts
from tests.support.agent.recovery_clusters import (
    ACCEPTING,
    OTHER,
    TimedStore,
    all_keys,
    lived,
    log_end,
    produce,
    put_intake,
    recover,
    snapshot,
    state_of,
    told,
    wiped,
)
from tests.support.commands.commands import TOPIC, create, start


async def test_a_topic_that_is_younger_than_the_snapshot_comes_back_by_the_name_that_the_bucket_knows() -> None:
    store = TimedStore()
    ledger = await lived(store)
    third = TopicId(bytes([9] * 16))
    dead = SessionId(1)
    await put_intake(store, dead, 3, (-1, -1), topic_id=OTHER)
    await put_intake(store, dead, 4, (-1, -1), topic_id=third)
    await store.put(parquet_key("orders", OTHER, dead, ObjectNumber(0)), [b"a file that the snapshot does not know"])
    report = await recover(ledger, store)
    assert [(topic.topic, topic.is_name_lost) for topic in report.topics] == [
        ("orders", False),
        (f"recovered-{third.hex()}", True),
        ("t", False),
    ]
    assert report.objects_left == 1
    state = await state_of(ledger, store)
    assert (log_end(state, OTHER), log_end(state, third)) == (3, 3)
    for topic_id in (OTHER, third):  # its configs are lost: nothing of it may go before somebody has looked
        assert state.topics[topic_id].configs == {"retention.bytes": "-1", "retention.ms": "-1"}


async def test_a_snapshot_that_is_damaged_is_told_and_the_one_before_serves() -> None:
    store = TimedStore()
    ledger = await lived(store)
    await store.put(f"{SNAPSHOT_PREFIX}{100:016x}", [b"not a snapshot"])
    refused = await recover(ledger, store)
    assert not refused.is_carried_out
    report = await recover(ledger, store, ACCEPTING)
    assert [key for key, _ in report.damaged] == [f"{SNAPSHOT_PREFIX}{100:016x}"]
    assert log_end(await state_of(ledger, store)) == 12


async def test_damaged_and_missing_objects_are_reported_and_the_others_come_back() -> None:
    store = TimedStore()
    ledger = await lived(store)
    dead = SessionId(1)
    await store.delete([intake_key(dead, ObjectNumber(0))])
    torn = await store.get(intake_key(dead, ObjectNumber(2)))
    flipped = bytearray(await store.get(intake_key(dead, ObjectNumber(1))))
    flipped[40] ^= 1
    await store.put(intake_key(dead, ObjectNumber(1)), [flipped])
    await store.put(intake_key(dead, ObjectNumber(3)), [torn[:-1]])
    report = await recover(ledger, store, ACCEPTING)
    assert report.is_carried_out
    assert report.missing == [intake_key(dead, ObjectNumber(0))]
    assert [key for key, _ in report.damaged] == [intake_key(dead, ObjectNumber(n)) for n in (1, 3)]
    assert told(report) == [("t", 3, 0, 1, 0)]
    assert await store.get(intake_key(dead, ObjectNumber(3))) == torn[:-1]


class Lying(TimedStore):
    """Gives an object shortened, so many times."""

    lies: dict[str, int]

    async def get(self, key: str) -> bytes:
        content = await super().get(key)
        if self.lies.get(key, 0) > 0:
            self.lies[key] -= 1
            return content[:-1]
        return content


async def test_what_seems_to_be_damaged_is_read_again() -> None:
    store = Lying()
    store.lies = {}
    ledger = await lived(store)
    store.lies[intake_key(SessionId(1), ObjectNumber(2))] = RECOVERY_READS_MAX - 1
    report = await recover(ledger, store)
    assert (report.damaged, report.is_carried_out, told(report)) == ([], True, [("t", 9, 0, 0, 0)])


async def test_s9_without_what_cannot_be_read_nothing_begins_unless_that_is_accepted() -> None:
    store = Lying()
    store.lies = {}
    ledger = await lived(store)
    key = intake_key(SessionId(1), ObjectNumber(2))
    store.lies[key] = 1_000
    before = await all_keys(store)
    report = await recover(ledger, store)
    assert (report.is_carried_out, [bad for bad, _ in report.damaged]) == (False, [key])
    assert await all_keys(store) == before
    with pytest.raises(LedgerCorrupt, match="being recovered"):
        await ledger.open_session("a")
    clock = ManualClock()
    clock.seconds = 3_000.0
    assert (await recover(ledger, store, ACCEPTING, clock)).is_carried_out
    state = await state_of(ledger, store)
    # Its grace begins now, and not when the old state was written.
    assert state.sessions_ended[SessionId(1)] >= BEGAN_MS + 3_000_000


@pytest.mark.parametrize("rules", [RULES_FIRST, RULES_NEWEST])
async def test_s5_gaps_of_objects_that_are_lost_are_bridged_and_offsets_stay(rules: int) -> None:
    store = TimedStore()
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, start(rules=rules), store=store) as parts:
        await parts.ledger.propose(create())
        for number in range(5):
            await produce(parts, number, (7, 3 * number))
        await snapshot(parts)
        session = parts.ledger.session
        ledger.core.expire(session)
    lost = [intake_key(session, ObjectNumber(number)) for number in (0, 2, 4)]
    await store.delete(lost)
    again = wiped()
    refused = await recover(again, store)
    assert (refused.is_carried_out, refused.missing) == (False, lost)
    report = await recover(again, store, ACCEPTING)
    assert [(topic.topic, topic.offsets_lost) for topic in report.topics] == [("t", 9)]
    state = await state_of(again, store)
    assert check(state) == []
    partition = state.topics[TOPIC].partitions[0]
    assert (partition.log_start, partition.log_end) == (3, 15)
    served: list[tuple[int, int, bool]] = []
    for chunk in partition.index.rows_from(0):
        content = await store.get(state.objects[chunk.object_id].key)
        found = serve_intake(bytearray(content[chunk.byte_first : chunk.byte_first + chunk.byte_count]), chunk)
        served += [
            (b.base_offset, b.base_offset + b.last_offset_delta, b.is_control) for b in walk_batches(found.buffer)
        ]
    assert served == [(3, 5, False), (6, 8, True), (9, 11, False), (12, 14, True)]
    bridged = [row.checksum != NO_CHECKSUM for row in partition.index.rows_from(0)][1::2]
    assert bridged == [rules != RULES_FIRST] * 2
    # The next recovery takes the bridge for what it is.
    following = wiped()
    report = await recover(following, store)
    assert (report.is_carried_out, report.missing, report.damaged) == (True, [], [])
    assert log_end(await state_of(following, store)) == 15


async def test_a_name_that_its_folder_shortens_is_lost() -> None:
    store = TimedStore()
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, store=store) as parts:
        await snapshot(parts)
        session = parts.ledger.session
        ledger.core.expire(session)
    key = parquet_key(short_name("n" * 249), OTHER, session, ObjectNumber(0))
    await store.put(key, [b"a file that the snapshot does not know"])
    await put_intake(store, session, 0, (-1, -1), topic_id=OTHER)
    report = await recover(wiped(), store)
    assert [(topic.topic, topic.is_name_lost) for topic in report.topics] == [(f"recovered-{OTHER.hex()}", True)]


async def test_a_topic_gets_a_further_name_where_both_are_taken() -> None:
    store = TimedStore()
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    taken = f"recovered-{OTHER.hex()}"
    async with running_parts(ledger, store=store) as parts:
        await parts.ledger.propose(create())
        await parts.ledger.propose(
            CreateTopic(name=taken, topic_id=TopicId(bytes([3] * 16)), partition_count=1, configs=())
        )
        await snapshot(parts)
        session = parts.ledger.session
        ledger.core.expire(session)
    await store.put(parquet_key("t", OTHER, session, ObjectNumber(0)), [b"a file that the snapshot does not know"])
    await put_intake(store, session, 0, (-1, -1), topic_id=OTHER)
    report = await recover(wiped(), store)
    assert [(topic.topic, topic.is_name_lost) for topic in report.topics] == [(f"{taken}-2", True)]
