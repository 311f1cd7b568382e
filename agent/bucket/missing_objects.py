"""The check at a start for intake objects that the state refers to and the embedded store does not have (S9).

It takes one listing, which the embedded store answers from memory. A cluster's bucket is not checked: to list it may
take long.
"""

import logging

from coordinator.state.state import ClusterState
from storage.object_store import ObjectStore
from storage.refs import INTAKE_PREFIX

log = logging.getLogger(__name__)


async def report_missing(store: ObjectStore, state: ClusterState) -> None:
    """Log missing objects in one line: a pack may have been moved away. Raises `StoreError`s."""
    present = {meta.key async for meta in store.list(INTAKE_PREFIX)}
    referenced = {stored.key for stored in state.objects.values() if stored.key.startswith(INTAKE_PREFIX)}
    missing = sorted(referenced - present)
    if missing:
        log.error(
            "records cannot be read: intake objects are missing from the store. Run penstock audit for their names, "
            'and move back a pack that was moved away: docs/operations/damage.md, "Objects are missing"',
            extra={"objects": len(missing), "key": missing[0]},
        )
