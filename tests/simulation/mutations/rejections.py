"""What stands against stores that reject, lie or are not the cluster's, switched off: safety rules S6, S9, S20, S22.

Rule: as `tests.simulation.mutations.safety_rules`, which has them from here.
"""

import contextlib
from collections.abc import Iterator, Sequence

from agent.bucket import conditional_puts
from agent.bucket.confirmation import ConfirmedStore
from agent.cache.chunk_cache import ServedChunk
from agent.fetch import chunk_reader, served_chunks
from agent.ledger.entry_objects import UncommittedObjects
from agent.maintenance.garbage_collector import GarbageCollector
from coordinator.state.chunk_index import NO_CHECKSUM, ChunkRef
from iceberg_export.rows.checksums import FileChecksums
from protocol.types import SessionId
from storage.decorators.retrying import RetryingStore
from storage.gc_plan import EntryFate
from storage.object_store import Buffer, ObjectsNotDeleted, ObjectStore
from tests.simulation.faults.fault_names import FaultName
from tests.simulation.mutations.mutation import archives_soon, mutation
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import Plan


def starts_often(plan: Plan) -> bool:
    return FaultName.CRASH in plan.faults or FaultName.RESTART in plan.faults


@mutation(where=lambda plan: archives_soon(plan) and plan.has_operator and not plan.faults)
def s6_what_no_entry_brings_in_stays_while_its_session_lives() -> Iterator[None]:
    """A live session deletes nothing of its own."""

    async def settle(self: UncommittedObjects, session: SessionId, fate: EntryFate, keys: Sequence[str]) -> None:
        return

    with patched(UncommittedObjects, "settle", settle):
        yield


@mutation(FaultName.UNDELETABLE, where=archives_soon)
def s6_what_could_not_be_deleted_counts_as_deleted() -> Iterator[None]:
    """Nobody looks at the result of each key."""
    right = RetryingStore.delete

    async def delete(self: RetryingStore, keys: Sequence[str]) -> None:
        with contextlib.suppress(ObjectsNotDeleted):
            await right(self, keys)

    with patched(RetryingStore, "delete", delete):
        yield


@mutation(FaultName.STORE_REPLACED, where=archives_soon)
def s22_what_is_deleted_from_another_bucket_counts_as_deleted() -> Iterator[None]:
    """It is not checked whose bucket the objects were deleted from."""

    async def check(self: GarbageCollector) -> None:
        return

    with patched(GarbageCollector, "_check_bucket", check):
        yield


@mutation(FaultName.UNCONDITIONAL, where=starts_often)
def s9_conditional_puts_are_not_tried() -> Iterator[None]:
    """An agent starts on a store that overwrites what another one put."""

    async def check(store: ObjectStore, *, name: str) -> None:
        return

    with patched(conditional_puts, "check_conditional_puts", check):
        yield


@mutation(is_scripted=True)
def s20_rows_are_believed_unchecked() -> Iterator[None]:
    """What the store returns of an archive file is decoded, whatever its checksums say."""
    with patched(FileChecksums, "check", lambda self, byte_first, data: None):
        yield


@mutation(is_scripted=True)
def s20_any_whole_batches_are_believed_to_be_the_chunk() -> Iterator[None]:
    """Nobody compares a chunk's batches with the checksum that its row has."""
    right = served_chunks.serve_intake

    def serve(batches: bytearray, chunk: ChunkRef) -> ServedChunk:
        return right(batches, chunk._replace(checksum=NO_CHECKSUM))

    with patched(chunk_reader, "serve_intake", serve):
        yield


@mutation(is_scripted=True)
def s22_a_put_counts_in_any_bucket() -> Iterator[None]:
    """Nobody looks whose the bucket is beside the puts."""

    async def put(self: ConfirmedStore, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        await self._inner.put(key, parts, if_absent=if_absent)

    with patched(ConfirmedStore, "put", put):
        yield
