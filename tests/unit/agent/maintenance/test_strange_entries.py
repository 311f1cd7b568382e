"""Whoever keeps house deletes what Penstock wrote, passes over everything else, and says so once (S6, S20)."""

import pytest

from agent.bucket.strangers import Strangers
from agent.lake.hadoop_metadata import HadoopMetadata
from agent.maintenance.garbage_collector import GarbageCollector
from agent.maintenance.progress_marks import ProgressMarks
from agent.maintenance.snapshots import Snapshots
from coordinator.commands.commands import ReportTime
from coordinator.ledger.memory import MemoryLedger
from protocol.limits import ENDED_SESSION_LISTED_AGAIN_MS
from protocol.types import ObjectNumber
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMeta, ObjectStore
from storage.refs import REACHED_PREFIX, SNAPSHOT_PREFIX, intake_key, position_of_key, table_metadata_folder
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import TOPIC, create
from tests.support.commands.table_commits import commit_table, metadata_key, table_commit
from tests.support.odd_entries import OddStore

GRACE_MS = 60_000
LOOP = "a link to a folder, which is not followed"


def snapshots(parts: Parts, store: ObjectStore) -> Snapshots:
    return Snapshots(
        parts.context(store=store),
        maintenance_leader=parts.maintenance_leader,
        digests=parts.digests,
        entries_interval=10,
        bytes_interval=1 << 20,
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str, str]]:
    """How many, the first and its reason, of each warning."""
    told = [record.__dict__ for record in caplog.records if "did not write" in record.message]
    return [(record["count"], record["first"], record["reason"]) for record in told]


async def test_s6_what_cannot_be_looked_at_holds_up_nothing_and_its_session_is_remembered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By its name it is garbage like any other. A session is not forgotten while a folder may hide what it left."""
    ledger, store = MemoryLedger(), OddStore()
    async with running_parts(ledger) as parts:
        dead = parts.ledger.session
        ledger.core.expire(dead)
    left = [intake_key(dead, ObjectNumber(number)) for number in range(2)]
    for key in left:
        await store.put(key, [b"x"])
    async with running_parts(ledger) as parts:
        assert await parts.maintenance_leader.claim()
        cleaning = GarbageCollector(
            parts.context(store=store),
            maintenance_leader=parts.maintenance_leader,
            snapshots=snapshots(parts, store),
            grace_ms=GRACE_MS,
        )
        store.faults = {"intake/bad/": "Input/output error", left[1]: "Input/output error", "lake/loop": LOOP}
        parts.clock.seconds += (GRACE_MS + ENDED_SESSION_LISTED_AGAIN_MS) / 1000
        assert await cleaning.collect() == 2
        assert not store._objects.keys() & set(left)
        assert dead in parts.ledger.state.sessions_ended
        del store.faults[left[1]]
        for _ in range(2):
            await cleaning.collect()
        assert dead in parts.ledger.state.sessions_ended
        del store.faults["intake/bad/"]
        await cleaning.collect()
        assert dead not in parts.ledger.state.sessions_ended
    assert warnings(caplog) == [
        (3, left[1], "Input/output error"),
        (2, "intake/bad/", "Input/output error"),
        (1, "lake/loop", LOOP),
    ]


async def test_s20_old_snapshots_are_dropped_and_nothing_that_lies_beside_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = OddStore()
    strange = {f"{SNAPSHOT_PREFIX}.DS_Store", f"{SNAPSHOT_PREFIX}0000000000000000/x", f"{SNAPSHOT_PREFIX}notes"}
    for key in strange:
        await store.put(key, [b"x"])
    async with running_parts(store=store) as parts:
        taking = snapshots(parts, store)
        for _ in range(3):
            await parts.ledger.propose(ReportTime())
            assert await taking.take()
        found = {meta.key async for meta in store.list(SNAPSHOT_PREFIX)}
        assert found > strange
        assert len([key for key in found if position_of_key(key) is not None]) == 2
    assert warnings(caplog) == [
        (3, f"{SNAPSHOT_PREFIX}.DS_Store", "its name, or its session, is unknown"),
    ]


async def test_s20_old_marks_are_dropped_and_nothing_that_lies_beside_them(caplog: pytest.LogCaptureFixture) -> None:
    store = OddStore()
    strange = [f"{REACHED_PREFIX}.DS_Store", f"{REACHED_PREFIX}0"]
    for key in (*strange, f"{REACHED_PREFIX}{0:016x}"):
        await store.put(key, [b"x"])
    store.faults = {f"{REACHED_PREFIX}loop": LOOP}
    async with running_parts(store=store) as parts:
        await ProgressMarks(store=store, ledger=parts.ledger, maintenance_leader=parts.maintenance_leader).mark()
        found = [meta.key async for meta in store.list(REACHED_PREFIX)]
        mark = f"{REACHED_PREFIX}{parts.ledger.state.position:016x}"
        assert sorted(found) == sorted([*strange, mark, f"{REACHED_PREFIX}loop"])
    assert [count for count, _, _ in warnings(caplog)] == [3]


async def test_s20_copies_of_a_tables_metadata_are_those_of_its_own_folder() -> None:
    store = MemoryStore()
    folder = table_metadata_folder("t", TOPIC)
    strange = [f"{folder}vold/v7.metadata.json", f"{folder}v.metadata.json", f"{folder}vacuum.txt"]
    for key in strange:
        await store.put(key, [b"x"])
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        session = parts.ledger.session
        await store.put(metadata_key(1, session=session), (b"version 1",))
        await parts.ledger.propose(commit_table(table_commit(1, session=session), session=session))
        copies = HadoopMetadata(parts.context(store=store))
        topic = parts.ledger.state.topics[TOPIC]
        assert await copies._listed_versions(topic) == []
        await copies.copy(TOPIC)
        assert await copies._listed_versions(topic) == [1]
        assert {meta.key async for meta in store.list(folder)} > set(strange)


def test_what_is_there_is_reported_once_and_again_when_it_is_another(caplog: pytest.LogCaptureFixture) -> None:
    strangers = Strangers()
    one = ObjectMeta(key="lake/a\nb", size_bytes=1, modified_ms=0)
    for found in ([one], [one], [], [one], [one, one]):
        strangers.report_those_of(found)
    assert [(count, first) for count, first, _ in warnings(caplog)] == [
        (1, "lake/a\\x0ab"),
        (1, "lake/a\\x0ab"),
        (2, "lake/a\\x0ab"),
    ]
