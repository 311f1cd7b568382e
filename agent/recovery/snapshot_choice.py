"""Which snapshot a recovery begins with: the newest one that can be read and is as it was written (S9, S20).

Rule: a snapshot is as it was written where its own checksum matches, and where the ledger's pointer names it, its
digest. A snapshot of before has no checksum; the one that the pointer does not name, too, is believed where it can be
decoded, and the report says so.
"""

from collections.abc import Callable
from dataclasses import dataclass

from agent.runtime.clock import Clock
from coordinator.codec.snapshot_frame import has_checksum
from coordinator.ledger.port import Ledger, LedgerCorrupt, SnapshotPointer
from coordinator.snapshot import decode_with_digest
from coordinator.state.state import ClusterState
from protocol.limits import RECOVERY_READ_RETRY_S, RECOVERY_READS_MAX
from protocol.types import Position
from storage.object_store import ObjectDamaged, ObjectMissing, ObjectStore
from storage.refs import SNAPSHOT_PREFIX, position_of_key


@dataclass(slots=True, kw_only=True)
class FoundSnapshot:
    """The one to begin with; an empty key where none can be read."""

    key: str = ""
    content: bytes = b""
    checked_by: str = ""
    """The proof, in words, that the snapshot is as it was written."""

    @property
    def position(self) -> Position:
        return position_of_key(self.key) or Position(0)

    def state(self, cluster_id: str, incarnation: int) -> ClusterState:
        """A new copy of it; the beginning of an incarnation where none can be read."""
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
    """The newest snapshot of the cluster; those that cannot be believed, or are missing, are added to `damaged`, with
    the reasons. `is_counted`: whether the snapshot of a position is of an incarnation that began. What else lies beside
    them is no snapshot, and no loss.
    """
    pointer = await _pointer(ledger)
    found = FoundSnapshot()
    keys = [meta.key async for meta in store.list(SNAPSHOT_PREFIX)]
    for key in sorted(keys, reverse=True):
        position = position_of_key(key)
        if position is None or not is_counted(position):
            continue
        digest = pointer.digest if pointer is not None and pointer.object_key == key else None
        read = await _read(store, clock, key, cluster_id, digest)
        if isinstance(read, FoundSnapshot):
            found = read
            break
        damaged.append((key, read))
    if pointer is not None and pointer.object_key not in keys and pointer.position > found.position:
        damaged.append((pointer.object_key, "it is not in the bucket, and the ledger begins behind it"))
    return found


async def _pointer(ledger: Ledger) -> SnapshotPointer | None:
    """None also where it is damaged itself."""
    try:
        return await ledger.pointer()
    except LedgerCorrupt:
        return None


async def _read(
    store: ObjectStore, clock: Clock, key: str, cluster_id: str, digest: bytes | None
) -> FoundSnapshot | str:
    """In words why it cannot be believed. `digest`: what the ledger says of it."""
    fault = ""
    for number in range(RECOVERY_READS_MAX):
        await clock.sleep(RECOVERY_READ_RETRY_S if number else 0)
        try:
            content = await store.get(key)
            state, digest_read = decode_with_digest(content)
        except (LedgerCorrupt, ObjectDamaged, ObjectMissing) as error:
            fault = str(error)
            continue
        if digest is not None and digest_read != digest:
            fault = "it has another digest than the ledger's pointer says"
            continue
        if state.cluster_id != cluster_id:
            return f"it is of cluster {state.cluster_id}"
        return FoundSnapshot(key=key, content=content, checked_by=_words(content, digest))
    return fault


def _words(content: bytes, digest: bytes | None) -> str:
    checks = ["its checksum"] if has_checksum(content) else []
    checks += ["the ledger's digest"] if digest is not None else []
    return " and ".join(checks) or "decoding alone: a version of before wrote it, without a checksum"
