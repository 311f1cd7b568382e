"""A garbage collector over the parts of an agent."""

from collections.abc import Awaitable, Callable

from agent.maintenance.garbage_collector import GarbageCollector
from agent.maintenance.snapshots import Snapshots
from storage.object_store import ObjectStore
from tests.support.agent.ledger_parts import Parts, always_ours

GRACE_MS = 60_000


def garbage_collector(
    parts: Parts, store: ObjectStore, *, is_bucket_ours: Callable[[], Awaitable[bool]] = always_ours
) -> GarbageCollector:
    return GarbageCollector(
        parts.context(store=store, is_bucket_ours=is_bucket_ours),
        maintenance_leader=parts.maintenance_leader,
        snapshots=Snapshots(
            parts.context(store=store),
            maintenance_leader=parts.maintenance_leader,
            digests=parts.digests,
            entries_interval=1_000,
            bytes_interval=1 << 20,
        ),
        grace_ms=GRACE_MS,
    )
