"""Says at a start which intake objects are not in the embedded store though the state needs them (safety rule S9).

Rule: one listing, which the embedded store answers from memory; a cluster's bucket is not asked. Nothing is changed.
"""

import logging

from coordinator.state.state import ClusterState
from storage.object_store import ObjectStore
from storage.refs import INTAKE_PREFIX

log = logging.getLogger(__name__)


async def report_missing(store: ObjectStore, state: ClusterState) -> None:
    """Log what is missing, in one line: a pack may have been moved away. Raises `StoreError`s."""
    there = {meta.key async for meta in store.list(INTAKE_PREFIX)}
    needed = {known.key for known in state.objects.values() if known.key.startswith(INTAKE_PREFIX)}
    missing = sorted(needed - there)
    if missing:
        log.error(
            "records cannot be read: intake objects are missing from the store; penstock audit names them all, and a "
            'pack that was moved away can be moved back: docs/operations/damage.md, "Objects are missing"',
            extra={"objects": len(missing), "key": missing[0]},
        )
