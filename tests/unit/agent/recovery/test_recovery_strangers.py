"""A recovery forgets nothing that is not gone for certain, and stops at nothing that is no object (S9, S20)."""

import pytest

from agent.recovery.preconditions import Permissions
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from protocol.types import ObjectNumber, SessionId
from storage.object_store import ObjectMeta, StoreMisconfigured
from storage.refs import INTAKE_PREFIX, REACHED_PREFIX, intake_key, intake_session_prefix
from tests.support.agent.ledger_parts import ManualClock
from tests.support.agent.recovery_clusters import ACCEPTING, FORCED, lived_whole, log_end, recover, state_of
from tests.support.commands.commands import TOPIC
from tests.support.odd_entries import OddStore

SESSION = SessionId(1)
KNOWN, UNKNOWN = (intake_key(SESSION, ObjectNumber(number)) for number in (0, 1))
"""In the snapshot, and in the ledger's entries alone."""


def wiped() -> MemoryLedger:
    return MemoryLedger(MemoryLedgerCore(cluster_id="another"))


@pytest.mark.parametrize("name", [KNOWN, intake_session_prefix(SESSION)], ids=["object", "folder"])
async def test_s9_an_object_that_cannot_be_looked_at_is_not_forgotten(name: str) -> None:
    """The disk does not answer for it, or for its folder; the loss of it can be accepted all the same."""
    store = OddStore()
    ledger = await lived_whole(store)
    store.faults = {name: "Input/output error"}
    report = await recover(ledger, store, Permissions(is_forced=True, is_loss_accepted=True))
    assert report.is_carried_out
    assert report.missing == []
    store.faults = {}
    state = await state_of(ledger, store)
    assert KNOWN in state.object_ids
    assert log_end(state) == 12


async def test_s9_an_object_that_is_gone_for_certain_is_missing_also_where_a_link_is_left_of_it() -> None:
    store = OddStore()
    ledger = await lived_whole(store)
    store.faults = {KNOWN: "a link that leads nowhere"}
    report = await recover(ledger, store, FORCED)
    assert (report.missing, report.is_carried_out) == ([KNOWN], False)


@pytest.mark.parametrize(
    ("name", "lost"),
    [(UNKNOWN, UNKNOWN), (intake_session_prefix(SESSION), intake_session_prefix(SESSION))],
    ids=["object", "folder"],
)
async def test_s9_what_may_have_been_acknowledged_and_cannot_be_read_is_a_loss_to_be_accepted(
    name: str, lost: str
) -> None:
    store = OddStore()
    await lived_whole(store)
    store.faults = {name: "Input/output error"}
    ledger = wiped()
    report = await recover(ledger, store)
    assert (report.is_carried_out, [key for key, _ in report.damaged]) == (False, [lost])
    assert (await recover(ledger, store, ACCEPTING)).is_carried_out


async def test_s20_a_folder_of_the_lake_that_cannot_be_listed_is_no_loss() -> None:
    store = OddStore()
    await lived_whole(store)
    store.faults = {"lake/t/": "Input/output error", "lake/loop": "a link to a folder, which is not followed"}
    report = await recover(wiped(), store)
    assert report.is_carried_out
    assert report.passed_over == [(name, fault) for name, fault in sorted(store.faults.items())]


class Forbidden(OddStore):
    async def head(self, key: str) -> ObjectMeta:
        raise StoreMisconfigured(f"{key}: Permission denied: check the directory and its permissions")


async def test_s9_where_it_cannot_be_told_the_recovery_says_so_and_stops() -> None:
    store = Forbidden()
    ledger = await lived_whole(store)
    store.faults = {intake_session_prefix(SESSION): "Permission denied"}
    with pytest.raises(StoreMisconfigured, match=f"{KNOWN}: Permission denied"):
        await recover(ledger, store, FORCED)


class Coming(ManualClock):
    """Another program writes while the bucket is watched."""

    def __init__(self, store: OddStore) -> None:
        super().__init__()
        self.store = store

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        for prefix in (INTAKE_PREFIX, REACHED_PREFIX):
            await self.store.put(f"{prefix}.DS_Store.{self.seconds}", [b"x"])
        self.store.faults["intake/loop"] = "a link to a folder, which is not followed"


async def test_a_file_managers_files_are_no_agents_at_work() -> None:
    store = OddStore()
    await lived_whole(store)
    assert (await recover(wiped(), store, clock=Coming(store))).is_carried_out


async def test_a_topic_is_named_by_its_files_alone() -> None:
    """Not by what others have put into a folder with its id, nor by a folder without a name."""
    store = OddStore()
    await lived_whole(store)
    await store.delete([key async for meta in store.list("ledger/") for key in [meta.key]])
    await store.put(f"lake/zz-{TOPIC.hex()}/data/notes.txt", [b"x"])
    await store.put(f"lake/{TOPIC.hex()}/data/{SESSION:016x}-{9:016x}.parquet", [b"x"])
    ledger = wiped()
    report = await recover(ledger, store, ACCEPTING)
    assert [topic.topic for topic in report.topics] == [f"recovered-{TOPIC.hex()}"]
