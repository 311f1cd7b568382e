"""A recovery believes no snapshot that is damaged, also where it can be decoded (safety rules S9 and S20)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import cramjam
import msgspec
import pytest

from agent.bucket.cluster_identity import check_bucket
from agent.ledger.bootstrap import load_state
from agent.recovery.deep_audit import DeepAudit
from agent.recovery.preconditions import Permissions
from coordinator.codec.snapshot_frame import framed, unframed
from coordinator.codec.snapshot_wire import SnapshotContent
from coordinator.commands.rules import RULES_NEWEST
from coordinator.invariants import check
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import LedgerCorrupt, LedgerStart, NewerRules, SnapshotPointer
from coordinator.snapshot import decode_snapshot, decode_with_digest
from storage.refs import SNAPSHOT_PREFIX
from tests.support.agent.ledger_parts import running_parts
from tests.support.agent.recovery_clusters import (
    ACCEPTING,
    DRY_RUN,
    FORCED,
    TimedStore,
    all_keys,
    log_end,
    produce,
    recover,
    snapshot,
    state_of,
    wiped,
)
from tests.support.commands.commands import create

BY_CHECKSUM, BY_DIGEST, BY_NOTHING = "its checksum", "the ledger's digest", "decoding alone: an older version"


@dataclass(frozen=True, kw_only=True)
class Lived:
    """A cluster with two snapshots, of 3 records and of 6, and 3 records after them; its agent was killed."""

    store: TimedStore
    ledger: MemoryLedger
    before: str
    newest: str

    async def change(self, key: str, *changes: Callable[[bytes], bytes]) -> None:
        content = await self.store.get(key)
        for made in changes:
            content = made(content)
        await self.store.put(key, [content])

    async def found_by_deep_audit(self) -> list[str]:
        audit = DeepAudit(state=decode_snapshot(await self.store.get(self.newest)), store=self.store)
        await audit.run()
        return [found.key for found in audit.found if found.key.startswith(SNAPSHOT_PREFIX)]


async def lived() -> Lived:
    store, ledger = TimedStore(), MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, store=store) as parts:
        await parts.ledger.propose(create())
        for number in range(2):
            await produce(parts, number, (7, 3 * number))
            await snapshot(parts)
        await produce(parts, 2, (7, 6))
        ledger.core.expire(parts.ledger.session)
    before, newest = sorted(key for key in await all_keys(store) if key.startswith(SNAPSHOT_PREFIX))
    return Lived(store=store, ledger=ledger, before=before, newest=newest)


def of_before(content: bytes) -> bytes:
    """The snapshot as a program of before wrote it: without a checksum."""
    return content[:1] + bytes(unframed(content))


def flipped(content: bytes) -> bytes:
    """A bit of its compressed state turned over, so that it can be decoded as another state without contradictions."""
    compressed = bytes(unframed(content))
    state, written = decode_with_digest(content)
    for bit in range(len(compressed) * 8):
        damaged = bytearray(compressed)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            other, digest = decode_with_digest(content[:1] + bytes(damaged))
        except LedgerCorrupt:
            continue
        is_same_moment = (other.cluster_id, other.position) == (state.cluster_id, state.position)
        if digest != written and is_same_moment and not check(other):
            return content[: -len(compressed)] + bytes(damaged)
    raise AssertionError("no bit can be turned over unnoticed")


@pytest.mark.parametrize("changes", [(flipped,), (of_before, flipped)], ids=["with a checksum", "of before"])
async def test_s20_a_snapshot_with_a_flipped_bit_that_the_start_refuses_is_not_recovered_from_either(
    changes: Sequence[Callable[[bytes], bytes]],
) -> None:
    """The ledger's digest tells, also of a snapshot that a program of before wrote."""
    cluster = await lived()
    await cluster.change(cluster.newest, *changes)
    with pytest.raises(LedgerCorrupt, match=r"penstock recover.*newest snapshot that can be read"):
        await load_state(cluster.ledger, cluster.store)
    for permissions in (DRY_RUN, None):
        report = await recover(cluster.ledger, cluster.store, permissions)
        assert not report.is_carried_out
        assert report.has_losses
        ((key, reason),) = report.damaged
        assert (key, report.snapshot_key) == (cluster.newest, cluster.before)
        assert "checksum does not match" in reason or "differs from the one in the ledger's pointer" in reason
    report = await recover(cluster.ledger, cluster.store, ACCEPTING)
    assert report.is_carried_out
    assert report.snapshot_checked_by == BY_CHECKSUM
    state = await state_of(cluster.ledger, cluster.store)
    assert log_end(state) == 9
    assert state.topic_ids.keys() == {"t"}


class Unreadable(MemoryLedger):
    """It has an entry whose key or value is damaged, as etcd's adapter says where it reads entries."""

    async def load(self) -> LedgerStart:
        raise LedgerCorrupt("b'...' is no entry of a ledger")


@pytest.mark.parametrize("is_gone", [False, True], ids=["damaged", "gone"])
async def test_s20_the_ledgers_pointer_tells_where_one_of_its_entries_cannot_be_read(*, is_gone: bool) -> None:
    cluster = await lived()
    if is_gone:
        await cluster.store.delete([cluster.newest])
    else:
        await cluster.change(cluster.newest, of_before, flipped)
    ledger = Unreadable(cluster.ledger.core)
    report = await recover(ledger, cluster.store)
    assert not report.is_carried_out
    ((key, reason),) = report.damaged
    assert (key, report.snapshot_key) == (cluster.newest, cluster.before)
    assert ("the bucket lacks it" if is_gone else "differs from the one in the ledger's pointer") in reason
    assert (await recover(ledger, cluster.store, ACCEPTING)).is_carried_out
    assert log_end(await state_of(MemoryLedger(cluster.ledger.core), cluster.store)) == 9


class PointerUnreadable(Unreadable):
    async def pointer(self) -> SnapshotPointer | None:
        raise LedgerCorrupt("the key 'snapshot' holds what this program cannot read")


async def test_s20_a_pointer_that_cannot_be_read_is_stepped_over_too_but_not_onto_another_clusters_ledger() -> None:
    cluster = await lived()
    report = await recover(PointerUnreadable(cluster.ledger.core), cluster.store)
    assert report.is_carried_out
    assert (report.snapshot_key, report.snapshot_checked_by) == (cluster.newest, BY_CHECKSUM)
    with pytest.raises(LedgerCorrupt, match="in use by cluster other"):
        await recover(PointerUnreadable(MemoryLedgerCore(cluster_id="other")), cluster.store)


async def test_s20_where_the_ledger_is_lost_too_the_checksum_alone_tells() -> None:
    cluster = await lived()
    await cluster.change(cluster.newest, flipped)
    await cluster.change(cluster.before, flipped)
    report = await recover(wiped(), cluster.store, ACCEPTING)
    assert [key for key, _ in report.damaged] == [cluster.newest, cluster.before]
    assert all("checksum" in reason for _, reason in report.damaged)
    assert (report.snapshot_key, report.snapshot_checked_by) == ("", "")


async def test_a_snapshot_of_before_is_believed_where_it_can_be_decoded_and_that_is_said() -> None:
    cluster = await lived()
    for key in (cluster.before, cluster.newest):
        await cluster.change(key, of_before)
    report = await recover(wiped(), cluster.store, DRY_RUN)
    assert (report.snapshot_key, report.damaged) == (cluster.newest, [])
    assert report.snapshot_checked_by.startswith(BY_NOTHING)
    await cluster.change(cluster.newest, lambda content: content[:-1])
    report = await recover(cluster.ledger, cluster.store, DRY_RUN)
    assert report.snapshot_key == cluster.before
    assert report.snapshot_checked_by.startswith(BY_NOTHING)


@pytest.mark.parametrize(
    ("changes", "checked_by"),
    [((), f"{BY_CHECKSUM} and {BY_DIGEST}"), ((of_before,), BY_DIGEST)],
    ids=["with a checksum", "of before"],
)
async def test_what_showed_that_the_snapshot_is_whole_is_said(
    changes: Sequence[Callable[[bytes], bytes]], checked_by: str
) -> None:
    cluster = await lived()
    await cluster.change(cluster.newest, *changes)
    permissions = replace(DRY_RUN, is_forced=True)
    report = await recover(cluster.ledger, cluster.store, permissions)
    assert (report.snapshot_key, report.snapshot_checked_by, report.damaged) == (cluster.newest, checked_by, [])


async def test_s9_a_snapshot_that_the_ledger_names_and_that_is_gone_is_a_loss_to_be_accepted() -> None:
    """The entries before it were trimmed: names, configs and deletions among them come back from nothing else."""
    cluster = await lived()
    await cluster.store.delete([cluster.newest])
    report = await recover(cluster.ledger, cluster.store)
    assert not report.is_carried_out
    assert [key for key, _ in report.damaged] == [cluster.newest]
    report = await recover(cluster.ledger, cluster.store, ACCEPTING)
    assert report.is_carried_out
    assert log_end(await state_of(cluster.ledger, cluster.store)) == 9


async def test_s20_a_deep_audit_names_the_snapshot_before_the_newest() -> None:
    cluster = await lived()
    assert await cluster.found_by_deep_audit() == []
    await cluster.change(cluster.before, flipped)
    assert await cluster.found_by_deep_audit() == [cluster.before]


async def test_s20_what_is_no_snapshot_is_no_loss_and_is_said() -> None:
    """A file manager's file, a copy, a folder: nothing is lost by any of them, so nothing is to be accepted."""
    cluster = await lived()
    strange = [f"{SNAPSHOT_PREFIX}.DS_Store", f"{cluster.newest}.bak", f"{cluster.newest}/x", "lake/notes", "intake/x"]
    for key in strange:
        await cluster.store.put(key, [b"Bud1"])
    report = await recover(cluster.ledger, cluster.store, FORCED)
    assert report.is_carried_out
    assert (report.snapshot_key, report.damaged, report.has_losses) == (cluster.newest, [], False)
    assert sorted(key for key, _ in report.passed_over) == sorted(strange)
    assert await cluster.found_by_deep_audit() == []
    assert log_end(await state_of(cluster.ledger, cluster.store)) == 9


def of_newer_rules(content: bytes, *, cluster_id: str = "", is_new_form: bool = False) -> bytes:
    """The snapshot as a newer program writes it, perhaps of another cluster, or with one more field."""
    fields = msgspec.msgpack.decode(cramjam.zstd.decompress(unframed(content)))
    names = SnapshotContent.__struct_fields__
    fields[names.index("rules_version")] = RULES_NEWEST + 1
    fields[names.index("cluster_id")] = cluster_id or fields[names.index("cluster_id")]
    return framed(bytes(cramjam.zstd.compress(msgspec.msgpack.encode(fields + ["new"] * is_new_form))))


@pytest.mark.parametrize("permissions", [None, DRY_RUN, FORCED, Permissions(is_time_reset=True)])
@pytest.mark.parametrize(("is_new_form", "is_ledger_lost"), [(True, False), (True, True), (False, True)])
async def test_s3_a_program_that_is_too_old_recovers_nothing(
    permissions: Permissions | None, *, is_new_form: bool, is_ledger_lost: bool
) -> None:
    """It cannot read the newest snapshot, or would compute another state from it."""
    cluster = await lived()
    await cluster.change(cluster.newest, partial(of_newer_rules, is_new_form=is_new_form))
    before = await all_keys(cluster.store)
    ledger = wiped() if is_ledger_lost else cluster.ledger
    with pytest.raises(NewerRules, match=f"rules {RULES_NEWEST + 1} are in force, this program knows"):
        await recover(ledger, cluster.store, permissions)
    assert await all_keys(cluster.store) == before
    await ledger.open_session("of the newer program")  # nothing is fenced


async def test_s3_a_snapshot_of_another_cluster_with_newer_rules_stops_no_recovery() -> None:
    cluster = await lived()
    await cluster.change(cluster.newest, partial(of_newer_rules, cluster_id="other"))
    report = await recover(wiped(), cluster.store, ACCEPTING)
    assert report.is_carried_out
    assert (report.snapshot_key, report.damaged) == (
        cluster.before,
        [(cluster.newest, "it belongs to cluster other")],
    )
