"""Commits the intake objects that a snapshot does not know, in the order in which they were written.

In: the listing of the bucket. Out: commits in the `StateRecovery`, and damaged objects in the report.
"""

from collections import deque
from collections.abc import AsyncIterator

from agent.recovery.bucket_listing import BucketContents
from agent.recovery.report import RecoveryReport
from agent.runtime.clock import Clock
from coordinator.apply.objects import is_key_known
from coordinator.recovery.intake_objects import FoundObject, read_object
from coordinator.recovery.lost_objects import is_bridge_session
from coordinator.recovery.state_recovery import StateRecovery, sessions_ended_unseen
from coordinator.state.state import ClusterState
from protocol.limits import RECOVERY_OBJECTS_AHEAD_MAX, RECOVERY_READ_RETRY_S, RECOVERY_READS_MAX
from protocol.types import ObjectNumber, SessionId
from storage.chunk_format import HEADER_BYTES, ChunkFormatError
from storage.object_store import ObjectDamaged, ObjectMeta, ObjectMissing, ObjectStore
from storage.refs import number_of_intake_key, session_of_key


class IntakeCommits:
    """The unknown intake objects of a bucket, to commit to a state that is recovered."""

    def __init__(self, store: ObjectStore, clock: Clock, report: RecoveryReport) -> None:
        self._store = store
        self._clock = clock
        self._report = report

    async def commit_all(self, recovery: StateRecovery, bucket: BucketContents) -> None:
        """Commit every intake object that the state does not know, in the order of their modification times.

        An object whose batches would be out of their producer's sequence waits, while any of the first
        `RECOVERY_OBJECTS_AHEAD_MAX` objects is in sequence: an agent writes several objects at a time, and a producer
        may send through several agents (safety rule S8).
        """
        # Unknown objects of a session that ended in the ledger were never acknowledged. A session that a recovery ended
        # may have acknowledged objects after the snapshot.
        ended = recovery.state.sessions_ended.keys() - sessions_ended_unseen(recovery.state)
        pending: list[FoundObject] = []  # with the columns of their batches, without records
        for session, metas in bucket.intake.items():
            if session not in ended and not is_bridge_session(session):
                pending += [intake_object async for intake_object in self._read(recovery.state, metas)]
        pending.sort(
            key=lambda intake_object: (
                intake_object.modified_ms,
                intake_object.command.object_session,
                intake_object.command.object_number,
            )
        )
        for intake_object in pending:
            recovery.expect(intake_object)
        while pending:
            ahead = enumerate(pending[:RECOVERY_OBJECTS_AHEAD_MAX])
            row = next((row for row, following in ahead if recovery.is_in_order(following)), 0)
            intake_object = pending.pop(row)
            recovery.commit(intake_object)
            self._report.objects_committed += 1

    async def _read(self, state: ClusterState, metas: "deque[ObjectMeta]") -> AsyncIterator[FoundObject]:
        """The objects of a session that the state does not know, in order of their numbers."""
        for meta in metas:
            session, number = session_of_key(meta.key), number_of_intake_key(meta.key)
            if session is None or number is None or is_key_known(state, meta.key):
                continue
            intake_object = await self._object(meta, session, number)
            if isinstance(intake_object, str):
                self._report.damaged.append((meta.key, intake_object))
            else:
                self._report.damaged += [(intake_object.key, fault) for fault in intake_object.faults]
                yield intake_object

    async def _object(self, meta: ObjectMeta, session: SessionId, number: ObjectNumber) -> FoundObject | str:
        """The object; the reason as text where nothing of it can be read.

        A damaged object is read again: it may have been damaged in transit only.
        """
        intake_object: FoundObject | str = ""
        for attempt in range(RECOVERY_READS_MAX):
            await self._clock.sleep(RECOVERY_READ_RETRY_S if attempt else 0)
            try:
                content = await self._content(meta)
                intake_object = read_object(
                    meta.key, content, session=session, number=number, modified_ms=meta.modified_ms
                )
            except (ChunkFormatError, ObjectDamaged, ObjectMissing) as error:
                intake_object = str(error) if isinstance(intake_object, str) else intake_object
                continue
            if not intake_object.faults:
                break
        return intake_object

    async def _content(self, meta: ObjectMeta) -> bytes:
        """The object's bytes, even if the store reports damage: each chunk has a checksum of its own.

        The store checks whole objects only, so reads of its parts return the bytes.
        """
        try:
            return await self._store.get(meta.key)
        except ObjectDamaged:
            if meta.fault:  # its size is not known
                raise
            header = await self._store.get_range(meta.key, 0, HEADER_BYTES)
            return header + await self._store.get_range(meta.key, HEADER_BYTES, meta.size_bytes - HEADER_BYTES)
