"""Loads the state at the ledger's head: at an agent's start, and where the ledger was trimmed past a reader."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.runtime.gc_tuning import cyclic_gc_paused
from coordinator.commands.rules import RULES_NEWEST
from coordinator.follower import Applied, Follower
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerStart, NewerRules
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
    head do not fit together, or the snapshot is not in the bucket: do not serve. It is `NewerRules` where another
    version of this program can load it.
    """
    identity = await ledger.identity()
    key = ""
    for _ in range(LEDGER_LOAD_ATTEMPTS_MAX):
        # Pointer, head and entries come from one read: of two reads the second could lack entries that a trim between
        # them has dropped, or the ledger could be another one (S9).
        start = await ledger.load()
        snapshot = None
        if start.pointer is not None:
            key = start.pointer.object_key
            try:
                snapshot = await store.get(key)
            except ObjectMissing:  # a newer snapshot was taken meanwhile, and this one deleted: read the pointer again
                continue
            except ObjectDamaged as error:
                raise _damaged(key, error) from error
        follower = Follower(identity, rules_known)
        try:
            with cyclic_gc_paused():
                applied = follower.load(start, snapshot)
        except NewerRules:  # nothing is damaged: to recover would lose what a newer program reads
            raise
        except LedgerCorrupt as error:
            if snapshot is None:
                raise
            raise _damaged(key, error) from error
        return LoadedState(start=start, follower=follower, applied=applied)
    raise LedgerCorrupt(
        f"the ledger's snapshot {key!r} is not in the bucket: it was deleted there, or the ledger is an older copy. "
        "`penstock recover` begins again from the newest snapshot that is there (docs/operations/recovery.md, "
        '"etcd was wiped or restored from a backup"); nothing was changed'
    )


def _damaged(key: str, error: Exception) -> LedgerCorrupt:
    return LedgerCorrupt(
        f"{error}; the ledger's snapshot is {key!r}: where that object is damaged, put a copy of it back. Without "
        "a copy, `penstock recover` begins again from the newest snapshot that can be read "
        '(docs/operations/recovery.md, "etcd was wiped or restored from a backup"); nothing was changed'
    )
