"""Chooses the snapshot with which a recovery begins: the newest one that is intact (safety rules S9, S20).

A snapshot is intact if its own checksum matches, and its digest where the ledger's pointer names it. Older versions
wrote no checksum. Such a snapshot, if the pointer does not name it, counts as intact if it can be decoded, and the
report says so.
"""

from collections.abc import Callable
from dataclasses import dataclass

from agent.runtime.clock import Clock
from coordinator.codec.snapshot_frame import has_checksum
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.port import Ledger, LedgerCorrupt, NewerRules, SnapshotPointer, newer_rules
from coordinator.snapshot import decode_with_digest
from coordinator.state.state import ClusterState
from protocol.limits import RECOVERY_READ_RETRY_S, RECOVERY_READS_MAX
from protocol.types import Position
from storage.object_store import ObjectDamaged, ObjectMissing, ObjectStore
from storage.refs import SNAPSHOT_PREFIX, position_of_key


@dataclass(slots=True, kw_only=True)
class FoundSnapshot:
    """The chosen snapshot; an empty key where none can be read."""

    key: str = ""
    content: bytes = b""
    checked_by: str = ""
    """The checks that the snapshot passed, in words."""

    @property
    def position(self) -> Position:
        return position_of_key(self.key) or Position(0)

    def state(self, cluster_id: str, incarnation: int) -> ClusterState:
        """A new copy of its state; the empty state of the incarnation where there is no snapshot."""
        return decode_with_digest(self.content)[0] if self.key else ClusterState.empty(cluster_id, incarnation)


async def newest_snapshot(
    store: ObjectStore,
    clock: Clock,
    ledger: Ledger,
    cluster_id: str,
    *,
    is_counted: Callable[[Position], bool],
    damaged: list[tuple[str, str]],
) -> FoundSnapshot:
    """The newest intact snapshot of the cluster.

    Raises `NewerRules` where a newer program wrote it: an older snapshot lacks what came after it. Damaged and missing
    snapshots are added to `damaged`, with the reasons. `is_counted`: whether the snapshot of a
    position belongs to an incarnation that was begun. Other files below the prefix are ignored.
    """
    pointer = await _pointer(ledger)
    chosen = FoundSnapshot()
    keys = [meta.key async for meta in store.list(SNAPSHOT_PREFIX)]
    for key in sorted(keys, reverse=True):
        position = position_of_key(key)
        if position is None or not is_counted(position):
            continue
        digest = pointer.digest if pointer is not None and pointer.object_key == key else None
        read = await _read(store, clock, key, cluster_id, digest)
        if isinstance(read, FoundSnapshot):
            chosen = read
            break
        damaged.append((key, read))
    if pointer is not None and pointer.object_key not in keys and pointer.position > chosen.position:
        damaged.append((pointer.object_key, "the bucket lacks it, and the ledger begins after it"))
    return chosen


async def _pointer(ledger: Ledger) -> SnapshotPointer | None:
    """The ledger's pointer; None where there is none, or it is damaged."""
    try:
        return await ledger.pointer()
    except LedgerCorrupt:
        return None


async def _read(
    store: ObjectStore, clock: Clock, key: str, cluster_id: str, digest: bytes | None
) -> FoundSnapshot | str:
    """Read and check a snapshot; the reason as text where it is not intact. `digest`: of the ledger's pointer."""
    fault = ""
    for number in range(RECOVERY_READS_MAX):
        await clock.sleep(RECOVERY_READ_RETRY_S if number else 0)
        try:
            content = await store.get(key)
            state, digest_read = decode_with_digest(content)
        except NewerRules:
            raise
        except (LedgerCorrupt, ObjectDamaged, ObjectMissing) as error:
            fault = str(error)
            continue
        if digest is not None and digest_read != digest:
            fault = "its digest differs from the one in the ledger's pointer"
            continue
        if state.cluster_id != cluster_id:
            return f"it belongs to cluster {state.cluster_id}"
        if state.rules_version > RULES_NEWEST:
            raise newer_rules(state.rules_version, RULES_NEWEST)
        return FoundSnapshot(key=key, content=content, checked_by=_words(content, digest))
    return fault


def _words(content: bytes, digest: bytes | None) -> str:
    checks = ["its checksum"] if has_checksum(content) else []
    checks += ["the ledger's digest"] if digest is not None else []
    return " and ".join(checks) or "decoding alone: an older version wrote it, without a checksum"
