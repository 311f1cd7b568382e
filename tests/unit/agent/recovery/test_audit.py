"""An audit finds what disagrees between bucket, ledger and state, and calls nothing else a fault."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.bucket.cluster_file import CLUSTER_KEY
from agent.bucket.cluster_identity import check_bucket
from agent.bucket.store_damages import StoreDamages
from agent.maintenance.snapshots import Snapshots
from agent.recovery.audit import Audit, AuditReport
from agent.recovery.preconditions import Permissions
from agent.recovery.recovery import recover
from coordinator.commands.commands import ChunksCommitted, DeleteTopic, EndSession, ReportTime
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from protocol.types import ObjectNumber, Position, SessionId
from storage.decorators.failing import FailingStore
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMeta
from storage.refs import INTAKE_PREFIX, intake_key, intake_session_prefix, reached_key, snapshot_key
from storage.store_damage import StoreDamage
from tests.support.agent.ledger_parts import ManualClock, Parts, running_parts
from tests.support.commands.commands import TOPIC, Batch, Chunk, commit, create, start
from tests.support.odd_entries import OddStore

GRACE_MS = 60_000


@asynccontextmanager
async def lived(store: MemoryStore | None = None) -> AsyncIterator[tuple[Parts, MemoryStore]]:
    """Two objects: one in the state, one released; and a session before this one, with an object that it left."""
    ledger, store = MemoryLedger(), MemoryStore() if store is None else store
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, store=store) as parts:
        dead = parts.ledger.session
        await store.put(intake_key(dead, ObjectNumber(0)), [b"never committed"])
        ledger.core.expire(dead)
    async with running_parts(ledger, start("b", node=2), store=store) as parts:
        await parts.ledger.propose(create("gone"))
        await produced(parts, 0)
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        await parts.ledger.propose(create())
        await produced(parts, 1)
        yield parts, store


async def produced(parts: Parts, number: int) -> None:
    await parts.store.put(intake_key(parts.ledger.session, ObjectNumber(number)), [b"x" * 100])
    outcome = await parts.ledger.propose(commit(number, Chunk(batches=[Batch()]), session=parts.ledger.session))
    assert isinstance(outcome, ChunksCommitted)


async def audited(parts: Parts, *, is_repairing: bool = False) -> AuditReport:
    return await Audit(parts.backend, parts.store, grace_ms=GRACE_MS).run(is_repairing=is_repairing)


def faults(report: AuditReport) -> list[tuple[str, str]]:
    return [(found.what, found.subject) for found in report.disagreements]


async def test_a_sound_cluster_agrees_and_everything_is_counted() -> None:
    async with lived() as (parts, store):
        await store.put(intake_key(parts.ledger.session, ObjectNumber(2)), [b"on its way"])
        # The dead session is still live in the state: nobody has ended it yet.
        report = await audited(parts)
        assert faults(report) == []
        assert (report.referenced, report.referenced_bytes, report.released) == (1, 100, 1)
        assert (report.in_flight, report.leftovers, report.deleted) == (2, 0, 0)
        assert report.position == parts.ledger.state.position


async def test_an_object_that_is_missing_or_of_another_size_is_named() -> None:
    async with lived() as (parts, store):
        await produced(parts, 2)
        session = parts.ledger.session
        await store.delete([intake_key(session, ObjectNumber(1))])
        await store.put(intake_key(session, ObjectNumber(2)), [b"x" * 99])
        assert sorted(faults(await audited(parts))) == [
            ("missing", intake_key(session, ObjectNumber(1))),
            ("size", intake_key(session, ObjectNumber(2))),
        ]


async def test_what_nobody_will_ever_delete_is_named() -> None:
    async with lived() as (parts, store):
        stranger = intake_key(SessionId(2), ObjectNumber(0))  # position 2 was an entry
        await store.put(stranger, [b"x"])
        await store.put("lake/readme.txt", [b"x"])
        assert faults(await audited(parts)) == [("unknown", stranger), ("unknown", "lake/readme.txt")]


async def test_a_snapshot_that_is_gone_or_other_than_its_pointer_says_is_named() -> None:
    async with lived() as (parts, store):
        snapshots = Snapshots(
            parts.context(store=store),
            maintenance_leader=parts.maintenance_leader,
            digests=parts.digests,
            entries_interval=1_000,
            bytes_interval=1 << 20,
        )
        await snapshots.take()
        pointer = (await parts.backend.load()).pointer
        assert pointer is not None
        assert faults(await audited(parts)) == []
        kept = await store.get(pointer.object_key)
        await store.put(pointer.object_key, [b"damaged"])
        assert faults(await audited(parts)) == [("ledger", "memory")]
        await store.delete([pointer.object_key])
        assert faults(await audited(parts)) == [("ledger", "memory")]
        await store.put(pointer.object_key, [kept])
        assert faults(await audited(parts)) == []


async def test_s9_a_ledger_that_is_behind_its_bucket_or_of_another_cluster_is_named() -> None:
    async with lived() as (parts, store):
        for key in (reached_key(Position(1 << 40)), snapshot_key(Position(1 << 40))):
            await store.put(key, [b"x"])
            assert faults(await audited(parts)) == [("ledger", "memory")]
            await store.delete([key])
        await store.put(CLUSTER_KEY, [b'{"cluster_id":"other","incarnation":1}'])
        assert faults(await audited(parts)) == [("ledger", "memory")]
        await store.delete([CLUSTER_KEY])
        assert faults(await audited(parts)) == [("ledger", "memory")]
        assert CLUSTER_KEY not in [meta.key async for meta in store.list("")]


async def test_a_repair_deletes_what_ended_sessions_left_once_the_grace_has_passed() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, store=store) as parts:
        dead = parts.ledger.session
        left = intake_key(dead, ObjectNumber(0))
        await store.put(left, [b"never committed"])
        ledger.core.expire(dead)
    async with running_parts(ledger, store=store) as parts:
        report = await audited(parts, is_repairing=True)
        assert (report.leftovers, report.deleted, faults(report)) == (1, 0, [])
        parts.clock.seconds += GRACE_MS / 1000
        await parts.ledger.propose(ReportTime())
        live = intake_key(parts.ledger.session, ObjectNumber(0))
        await store.put(live, [b"on its way"])
        assert (await audited(parts)).deleted == 0
        report = await audited(parts, is_repairing=True)
        assert (report.leftovers, report.deleted, faults(report)) == (1, 1, [])
        assert [meta.key async for meta in store.list("intake/")] == [live]


async def test_what_the_store_does_not_delete_is_named() -> None:
    ledger, store = MemoryLedger(), FailingStore(MemoryStore())
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, store=store) as parts:
        dead = parts.ledger.session
        ledger.core.expire(dead)
    left = [intake_key(dead, ObjectNumber(number)) for number in range(3)]
    for key in left:
        await store.put(key, [b"never committed"])
    store.undeletable.add(left[1])
    async with running_parts(ledger, start("b", node=2), store=store) as parts:
        await parts.ledger.propose(EndSession(session=dead))
        parts.clock.seconds += GRACE_MS / 1000
        await parts.ledger.propose(ReportTime())
        report = await audited(parts, is_repairing=True)
        assert (report.leftovers, report.deleted) == (3, 2)
        assert faults(report) == [("undeletable", left[1])]
        known = {left[1]: "the cleaner's reason", left[0]: "gone by now"}
        report = await Audit(ledger, store, grace_ms=GRACE_MS, undeletable=known).run(is_repairing=False)
        assert faults(report) == [("undeletable", left[1])]
        assert "the cleaner's reason" in report.disagreements[0].detail


async def test_a_recovered_cluster_agrees() -> None:
    async with lived() as (parts, _):
        ledger = parts.backend
        assert isinstance(ledger, MemoryLedger)
        for session in list(parts.ledger.state.sessions):
            ledger.core.expire(session)
        store = parts.store
    # Objects of one hundred letters are no intake objects: they are damaged, and stay where they are.
    wiped = MemoryLedger(MemoryLedgerCore(cluster_id="another"))
    report = await recover(wiped, store, ManualClock(), Permissions(is_loss_accepted=True))
    assert len(report.damaged) == 3
    audit = await Audit(wiped, store, grace_ms=GRACE_MS).run(is_repairing=False)
    assert faults(audit) == []


async def test_everything_that_is_told_is_counted_but_not_all_of_it_named() -> None:
    async with lived() as (parts, store):
        for number in range(1_010):
            await store.put(f"lake/{number}", [b"x"])
        told = (await audited(parts)).to_dict()
        assert told["disagreements_count"] == 1_010
        named = told["disagreements"]
        assert isinstance(named, list)
        assert len(named) == 1_000
        assert named[0] == {
            "what": "unknown",
            "subject": "lake/0",
            "detail": "no ledger entry names it or its session, so no agent will ever delete it",
        }


async def test_damage_that_the_store_has_found_is_listed_and_what_may_be_torn_is_not() -> None:
    damages = StoreDamages()
    damages.report(StoreDamage(file="/d/1.pack", key="intake/1/0", detail="its checksum is wrong"))
    damages.report(StoreDamage(file="/d/2.pack", detail="its header is unreadable"))
    damages.report(StoreDamage(file="/d/3.pack", detail="torn", is_certain=False))
    async with lived() as (parts, store):
        report = await Audit(parts.backend, store, grace_ms=GRACE_MS, damages=damages).run(is_repairing=False)
    assert faults(report) == [("damaged", "intake/1/0"), ("damaged", "/d/2.pack")]


STRANGE = (
    "ledger/snapshots/.DS_Store",
    "ledger/snapshots/old/0000000000000001",
    "ledger/reached/0000000000000001.bak",
    "ledger/tail/current~",
    "ledger/notes",
    "lake/.DS_Store",
)


async def test_s20_what_lies_beside_the_ledgers_objects_is_named_and_is_no_damage() -> None:
    async with lived() as (parts, store):
        for key in STRANGE:
            await store.put(key, [b"x"])
        audit = Audit(parts.backend, parts.store, grace_ms=GRACE_MS)
        report = await audit.run(is_repairing=False, is_deep=True)
        # The intake objects of these tests are none: the deep audit names them, too.
        named = [fault for fault in faults(report) if not fault[1].startswith(INTAKE_PREFIX)]
        assert sorted(named) == sorted(("unknown", key) for key in STRANGE)


class NoKeys(MemoryStore):
    """Lists what another program put, under a name that is no key here."""

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        async for meta in super().list(prefix, after=after):
            yield meta
        if prefix == "lake/":
            yield ObjectMeta(key="lake/a\nb/", size_bytes=0, modified_ms=0)


async def test_s20_a_name_that_is_no_key_is_one_row_and_holds_up_no_other() -> None:
    async with lived(NoKeys()) as (parts, store):
        await store.put("lake/readme.txt", [b"x"])
        assert faults(await audited(parts)) == [("unknown", "lake/readme.txt"), ("unknown", "lake/a\\x0ab/")]


async def test_s20_what_cannot_be_looked_at_is_named_and_is_not_missing() -> None:
    store = OddStore()
    async with lived(store) as (parts, _):
        await produced(parts, 2)
        await produced(parts, 3)
        session = parts.ledger.session
        kept, unreadable, gone = (intake_key(session, ObjectNumber(number)) for number in (1, 2, 3))
        assert kept in parts.ledger.state.object_ids
        store.faults = {
            "lake/loop": "a link to a folder, which is not followed",
            "lake/x": "Too many levels of symbolic links",
            "lake/t/": "the folder cannot be listed",
            unreadable: "Input/output error",
            gone: "a link that leads nowhere",
        }
        report = await audited(parts)
        assert sorted(faults(report)) == [
            ("missing", gone),
            ("unknown", "lake/loop"),
            ("unknown", "lake/x"),
            ("unreadable", unreadable),
            ("unreadable", "lake/t/"),
        ]
        assert (report.referenced, report.in_flight) == (3, 1)


@pytest.mark.parametrize("is_readable", [True, False], ids=["behind a link", "cannot be read"])
async def test_s20_what_a_folder_hides_is_asked_for(*, is_readable: bool) -> None:
    store = OddStore()
    async with lived(store) as (parts, _):
        folder = intake_session_prefix(parts.ledger.session)
        store.faults = {folder.removesuffix("/") if is_readable else folder: "Input/output error"}
        store.is_readable_behind = is_readable
        expected = {("unknown", folder.removesuffix("/"))}
        if not is_readable:
            expected = {("unreadable", folder), ("unreadable", intake_key(parts.ledger.session, ObjectNumber(1)))}
        assert set(faults(await audited(parts))) == expected
