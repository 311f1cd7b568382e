"""The embedded broker in the world: its ledger and its intake in a journal, on a disk that tears, fails and fills.

Rule: the journal is the real one; what its threads do is done at once, and answered some moments later, in its order.
The ledger's server and the bucket of the world are the reference: what the journal has done is done there, too, and
after each start both have to hold the same. Of the writes that failed since the last one that did not, a start may find
one. Callbacks have to run in their order (`Plan.choice_max` is 1), as the journal relies on it.
"""

import asyncio
import errno
import random
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from coordinator.ledger.append_rules import Appended
from coordinator.ledger.journal import JournalLedger
from coordinator.ledger.journal_file import JournalLedgerFile
from coordinator.ledger.ledger_contents import LedgerContents
from coordinator.ledger.port import Head, LedgerEntry, LedgerIdentity, LedgerRecord, SnapshotPointer
from protocol.types import Position, SessionId
from storage.embedded.journal import open_journal
from storage.embedded.journal.format import RECORDS_FIRST
from storage.embedded.journal.open_journal import OpenJournal
from storage.embedded.journal.records import RecordLocation
from storage.embedded.journal.store import JournalStore
from storage.embedded.one_thread import OneThread
from storage.object_store import Buffer, ObjectsNotDeleted, ObjectToPut
from storage.refs import INTAKE_PREFIX
from tests.simulation.cluster.ledger import LedgerServer
from tests.simulation.cluster.store import SimulatedBucket
from tests.simulation.history import History
from tests.simulation.loop import NODE, SimulatedLoop
from tests.simulation.mutations.patches import patched
from tests.support.packs.simulated_disk import PackDisk

FILE_BYTES: Final = RECORDS_FIRST + 20_000
STEP_BYTES: Final = 8_192
SYNCS_LEFT_OUT = ""
"""The syncs that are only pretended, for the proof that it is they that keep records."""
APART_SECONDS: Final = 1e-6
"""Between two answers of a thread: what follows on one has happened before the next."""

Result = TypeVar("Result")


class PowerCut(BaseException):
    """The machine has no power any more."""


class TornDisk(PackDisk):
    """A disk whose power is cut, between two operations or after some of them; that may be full."""

    def __init__(self) -> None:
        super().__init__(left_out=SYNCS_LEFT_OUT)
        self.has_power = True
        self.operations_left = -1
        """The operations after which the power is cut; -1 for not at all."""
        self.is_full = False

    def heal(self) -> None:
        """Let nothing fail from now on."""
        self.operations_left = -1
        self.is_full = self.drops_pages = False
        self.failures.clear()

    def _begin(self, operation: str) -> None:
        if self.operations_left == 0:
            self.has_power = False
        if not self.has_power:
            raise PowerCut
        self.operations_left -= self.operations_left > 0
        if self.is_full and operation == "allocate":
            raise OSError(errno.ENOSPC, "No space left on device")
        super()._begin(operation)


class WorkAtOnce(OneThread):
    """A thread of the world. One in whose work the power is cut never answers, and ends its owner's life."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._answers: deque[Callable[[], None]] = deque()
        self._answered_s = 0.0

    def submit(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        loop, owner = asyncio.get_running_loop(), NODE.get()
        assert isinstance(loop, SimulatedLoop)
        assert owner is not None, "an agent has a disk"
        future: asyncio.Future[Result] = loop.create_future()
        if owner.is_dead:  # the callback in which its power was cut goes on to its end
            return future
        try:
            result = work()
        except PowerCut:
            owner.lose_power()
            return future
        except Exception as error:
            self._answers.append(partial(_fail, future, error))
        else:
            self._answers.append(partial(_finish, future, result))
        self._answered_s = max(self._answered_s + APART_SECONDS, loop.time() + loop.thread_seconds())
        loop.call_at(self._answered_s, lambda: self._answers.popleft()())
        return future

    def end(self) -> None:
        """Nothing runs."""

    def join(self) -> None:
        """Nothing runs."""


class JournalInWorld(OpenJournal):
    """A journal whose readers are threads of the world, too."""

    def read(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        return WorkAtOnce("journal-read").submit(work)

    async def close(self) -> None:
        self._is_closed = True
        await WorkAtOnce("journal-close").submit(self._shut_down)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalChange:
    """What one operation changes."""

    made: Callable[[LedgerContents], LedgerContents]
    """The ledger's contents after it."""
    apply: Callable[[], object]
    """Does it to the reference."""
    objects: frozenset[str] = frozenset()


@dataclass(slots=True, kw_only=True)
class Reference:
    """What the journal has to hold."""

    server: LedgerServer
    bucket: SimulatedBucket
    history: History
    failed: list[JournalChange] = field(default_factory=list[JournalChange])
    """The writes that failed since the last one that did not."""
    doubtful: set[str] = field(default_factory=set[str])
    """Objects whose deletion has failed, or was cut off."""

    def contents(self) -> LedgerContents:
        server = self.server
        return LedgerContents(
            identity=server.identity,
            is_fenced=server._is_fenced,
            position_last=server._position_last,
            head=server.head,
            trimmed=server._trimmed,
            pointer=server.pointer,
            records=server.entries_above(Position(0)),
        )

    def objects(self) -> set[str]:
        return {key for key in self.bucket.objects if key.startswith(INTAKE_PREFIX)}

    def compare(self, contents: LedgerContents, objects: set[str]) -> None:
        """Note what a start has lost or invented."""
        expected, kept = self.contents(), self.objects()
        found = [change for change in self.failed if change.made(expected) == contents and change.objects <= objects]
        if contents != expected:
            if not found:
                self.history.violation(f"the journal holds {_shown(contents)}, and {_shown(expected)} was written")
                return
            self.history.note("journal", "failed write found")
            found[-1].apply()
            kept |= found[-1].objects
        lost, invented = kept - objects - self.doubtful, objects - kept
        if lost or invented:
            self.history.violation(f"the journal has lost {sorted(lost)[:3]}, and invented {sorted(invented)[:3]}")
        for key in kept - objects:
            del self.bucket.objects[key]
        self.failed.clear()
        self.doubtful.clear()
        for session in list(self.server._newest):
            self.server.expire(session)  # it ended with the process


class LedgerFileInWorld(JournalLedgerFile):
    """The ledger in the journal, and the reference beside it."""

    _reference: Reference | None = None

    def compare(self, reference: Reference, opened: OpenJournal) -> None:
        """Hold what was found against the reference, and keep it up from now on."""
        reference.compare(self.contents(), set(opened.objects))
        self._reference = reference

    def claim_bucket(self, bucket_id: str) -> LedgerIdentity:
        reference = self._known()
        identity = replace(self.identity, bucket_id=self.identity.bucket_id or bucket_id)
        change = JournalChange(
            made=lambda contents: replace(contents, identity=identity),
            apply=lambda: reference.server.claim_bucket(bucket_id),
        )
        return self._done(change, lambda: super(LedgerFileInWorld, self).claim_bucket(bucket_id))

    def open_session(self, name: str) -> SessionId:
        reference = self._known()
        change = JournalChange(
            made=lambda contents: replace(contents, position_last=contents.position_last + 1),
            apply=lambda: reference.server.open_session(name),
        )
        return self._done(change, lambda: super(LedgerFileInWorld, self).open_session(name))

    def close_session(self, session: SessionId) -> None:
        super().close_session(session)
        self._known().server.expire(session)

    def revoke_session(self, name: str, session: SessionId) -> None:
        super().revoke_session(name, session)
        self._known().server.revoke_session(name, session)

    def append_with(
        self, session: SessionId, entries: Sequence[LedgerEntry], objects: Sequence[ObjectToPut]
    ) -> tuple[Appended, Sequence[RecordLocation]]:
        reference = self._known()
        position = Position(self._state.position_last + 1)
        payloads = {stored.key: b"".join(stored.parts) for stored in objects}
        records = [
            LedgerRecord(position=position, session=session, number=entry.number, payload=entry.payload)
            for entry in entries
        ]

        def made(contents: LedgerContents) -> LedgerContents:
            head = Head(position=position, appends_count=contents.head.appends_count + 1)
            return replace(contents, position_last=position, head=head, records=[*contents.records, *records])

        def apply() -> None:
            for key, payload in payloads.items():
                reference.bucket.put(key, payload, if_absent=False)
                reference.bucket.answered.add(key)
            reference.server.append(session, entries)

        change = JournalChange(made=made, apply=apply, objects=frozenset(payloads))
        head = self.head()
        result = self._done(
            change,
            lambda: super(LedgerFileInWorld, self).append_with(session, entries, objects),
            is_made=lambda: self.head() != head,
        )
        if result[0].is_new and reference.server.head.position != result[0].position:
            reference.history.violation(f"the journal gives position {result[0].position} to an append")
        return result

    def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        reference = self._known()
        change = JournalChange(
            made=lambda contents: replace(contents, pointer=pointer),
            apply=lambda: reference.server.set_snapshot(expected, pointer),
        )
        return self._done(change, lambda: super(LedgerFileInWorld, self).set_snapshot(expected, pointer))

    def trim_step(self, position: Position) -> tuple[Position, bool]:
        reference = self._known()

        def made(contents: LedgerContents) -> LedgerContents:
            dropped = [record.position for record in contents.records if record.position <= position]
            kept = [record for record in contents.records if record.position > position]
            return replace(contents, trimmed=max(dropped, default=contents.trimmed), records=kept)

        change = JournalChange(made=made, apply=lambda: reference.server.trim(position))
        return self._done(change, lambda: super(LedgerFileInWorld, self).trim_step(position))

    def _done(
        self, change: JournalChange, operation: Callable[[], Result], is_made: Callable[[], bool] = lambda: True
    ) -> Result:
        reference = self._known()
        reference.failed.append(change)
        result = operation()
        reference.failed.clear()
        if is_made():
            change.apply()
        return result

    def _known(self) -> Reference:
        assert self._reference is not None, "it was compared when it was opened"
        return self._reference


class StoreInWorld(JournalStore):
    """The intake in the journal: what is read is what was put, and what is deleted may go."""

    def __init__(self, opened: OpenJournal, reference: Reference, who: str, *, now_ms: Callable[[], int]) -> None:
        super().__init__(opened, now_ms=now_ms)
        self._reference = reference
        self._who = who

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        raise AssertionError(f"{key} is put without its entry")

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        found = await super().get_range(key, byte_first, byte_count)
        return self._right(key, found, byte_first)

    async def get(self, key: str) -> bytes:
        return self._right(key, await super().get(key), 0)

    async def delete(self, keys: Sequence[str]) -> None:
        asked = set(keys) & self._reference.objects()
        self._reference.doubtful |= asked
        try:
            await super().delete(keys)
        except ObjectsNotDeleted as error:
            asked -= error.reasons.keys()
            raise
        finally:
            # Those that failed may be marked all the same, which the next start finds out.
            gone = [key for key in sorted(asked) if not self.has(key)]
            self._reference.bucket.delete(self._who, gone)
            self._reference.doubtful.difference_update(gone)

    def _right(self, key: str, found: bytes, byte_first: int) -> bytes:
        stored = self._reference.bucket.objects.get(key)
        if stored is not None and stored.payload[byte_first : byte_first + len(found)] != found:
            self._reference.history.violation(f"{key} is read with other bytes than were put")
        return found


class Machine:
    """The machine of an embedded broker, whose disk outlives the lives of its process."""

    def __init__(self, *, reference: Reference, chance: random.Random, who: str, now_ms: Callable[[], int]) -> None:
        self._root = tempfile.TemporaryDirectory(prefix="penstock-simulated-")
        self._reference = reference
        self._chance = chance
        self._who = who
        self._now_ms = now_ms
        self._folders_count = 0
        self._folder = self._new_folder()
        self._folder.parent.mkdir()
        self.disk = TornDisk()

    async def open(self, new_nonce: Callable[[], bytes]) -> tuple[OpenJournal, JournalLedger, JournalStore]:
        """Start on what is on the disk."""
        self.disk.failures.clear()
        opened = await JournalInWorld.open(
            self._folder,
            new_nonce=new_nonce,
            files=self.disk,
            file_bytes_target=FILE_BYTES,
            allocated_bytes_step=STEP_BYTES,
            on_damage=lambda damage: self._note_damage(damage.detail, is_certain=damage.is_certain),
        )
        cluster_id = self._reference.server.identity.cluster_id

        def open_ledger() -> LedgerFileInWorld:
            file = LedgerFileInWorld(opened.journal, opened.content, new_cluster_id=cluster_id)
            file.compare(self._reference, opened)
            return file

        ledger = JournalLedger(await opened.write(open_ledger), opened)
        return opened, ledger, StoreInWorld(opened, self._reference, self._who, now_ms=self._now_ms)

    def end_process(self) -> None:
        """What was written stays; without power, what was synced, and some of the rest."""
        if self.disk.has_power:
            self.disk.operations_left = -1
            self.disk.kill()
            return
        self._folder = self.disk.restore(self._folder, self._new_folder(), self._chance)
        self.disk.kill()
        self.disk = TornDisk()
        self.disk.adopt(self._folder)
        self.disk.sync_directory(str(self._folder.parent))

    def remove(self) -> None:
        self.disk.kill()
        self._root.cleanup()

    def _new_folder(self) -> Path:
        self._folders_count += 1
        return Path(self._root.name) / str(self._folders_count) / "journal"

    def _note_damage(self, detail: str, *, is_certain: bool) -> None:
        if is_certain:
            self._reference.history.violation(f"the journal reports damage where there is none: {detail}")
        else:
            self._reference.history.note("journal", "torn", detail.partition("/")[0])


def threads_of_the_world() -> AbstractContextManager[None]:
    """Journals that are opened in the block have threads of the world."""
    return patched(open_journal, "OneThread", WorkAtOnce)


def _finish(future: "asyncio.Future[Result]", result: Result) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Result]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _shown(contents: LedgerContents) -> str:
    last = contents.records[-1].number if contents.records else None
    return f"{contents.position_last}, {contents.head}, trimmed {contents.trimmed}, last entry {last}"
