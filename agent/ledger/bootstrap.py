"""Loads the state at the ledger's head: at an agent's start, and where the ledger was trimmed past a reader.

Rule: pointer, head and entries come from one read of the ledger; a snapshot that goes away meanwhile (the next one was
taken) begins the load again (safety rule S9).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.runtime.gc_tuning import cyclic_gc_paused
from coordinator.commands.rules import RULES_NEWEST
from coordinator.follower import Applied, Follower
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerStart
from protocol.limits import LEDGER_LOAD_ATTEMPTS_MAX
from storage.object_store import ObjectDamaged, ObjectMissing, ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedState:
    """The result of a load, and the follower that goes on from it."""

    start: LedgerStart
    follower: Follower
    applied: Sequence[Applied]
    """The entries above the snapshot, with their outcomes."""


async def load_state(ledger: Ledger, store: ObjectStore, rules_known: int = RULES_NEWEST) -> LoadedState:
    """The state at the ledger's head.

    Raises `LedgerUnavailable` and `StoreUnavailable`: try again. Raises `LedgerCorrupt` where snapshot, entries and
    head do not fit together, or the snapshot is not in the bucket: do not serve.
    """
    identity = await ledger.identity()
    key = ""
    for _ in range(LEDGER_LOAD_ATTEMPTS_MAX):
        start = await ledger.load()
        snapshot = None
        if start.pointer is not None:
            key = start.pointer.object_key
            try:
                snapshot = await store.get(key)
            except ObjectMissing:
                continue
            except ObjectDamaged as error:
                raise _damaged(key, error) from error
        follower = Follower(identity, rules_known)
        try:
            with cyclic_gc_paused():
                applied = follower.load(start, snapshot)
        except LedgerCorrupt as error:
            if snapshot is None:
                raise
            raise _damaged(key, error) from error
        return LoadedState(start=start, follower=follower, applied=applied)
    raise LedgerCorrupt(
        f"the ledger's snapshot {key!r} is not in the bucket: was something deleted from it, or is the ledger an older "
        "copy? `penstock recover` begins again from the newest snapshot that is there "
        '(docs/operations/recovery.md, "etcd was wiped or restored from a backup"); nothing was changed'
    )


def _damaged(key: str, error: Exception) -> LedgerCorrupt:
    return LedgerCorrupt(
        f"{error}; the ledger's snapshot is {key!r}: where that object is damaged, put back a copy of it if "
        "there is one, else `penstock recover` begins again from the newest snapshot that can be read "
        '(docs/operations/recovery.md, "etcd was wiped or restored from a backup"); nothing was changed'
    )
