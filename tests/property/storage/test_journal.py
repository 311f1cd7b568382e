"""A journal against a model: appends, deletions, releases, failing disks, restarts and losses of power, in any order.

Rule: what was acknowledged is there after each start, in its order and whole; a loss of power may tear the write that
was on its way, sector by sector, and then that write is there as a whole or not at all. A deleted object may be back
where its mark was lost, and released entries may be back: their owner says so again.
"""

import errno
import random
import tempfile
from itertools import count
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from protocol.limits import JOURNAL_FILES_SPARE_MAX
from storage.embedded.journal.records import RecordLocation
from tests.support.journal.opened_journals import FILE_BYTES, JournalUser, torn
from tests.support.packs.simulated_disk import PackDisk

KEYS = [f"intake/{number}" for number in range(5)]
OPERATIONS = [
    "create",
    "rename",
    "open_existing",
    "allocate",
    "write_at",
    "sync_data",
    "sync_directory",
    "truncate",
    "unlink",
]
sizes = st.sampled_from([0, 1, 300, FILE_BYTES, 3 * FILE_BYTES])


class PowerLoss(BaseException):
    """The power was cut while a file was synced."""


class TearingDisk(PackDisk):
    """Loses the power in the next sync of data: of what it should make durable any sectors are new."""

    tearing: random.Random | None = None

    def sync_data(self, descriptor: int) -> None:
        if self.tearing is None:
            super().sync_data(descriptor)
            return
        chance = self.tearing
        self.tearing = None
        path = Path(f"/proc/self/fd/{descriptor}")
        inode = path.stat().st_ino
        self._synced[inode] = torn(self._synced.get(inode, b""), path.read_bytes(), lambda _: chance.random() < 0.5)
        raise PowerLoss


class JournalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.TemporaryDirectory()
        self.serial = count(1)
        self.nonce_first = count(1, 1_000)
        self.objects: dict[str, bytes] = {}
        """What was acknowledged, and not deleted since."""
        self.ever: dict[str, set[bytes]] = {key: set() for key in KEYS}
        self.entries: list[bytes] = []
        """The entries that were acknowledged and not released, with those that a start has found."""
        self.pending: list[tuple[dict[str, bytes], bytes | None]] = []
        """Writes of unknown outcome: one of them may be found by a later start, until another write follows."""
        self.released_write = -1
        self.state = b""
        self.is_disk_sound = True
        self.locations: dict[str, RecordLocation] = {}
        self.entry_writes: dict[bytes, int] = {}
        self.folder = self.new_folder()
        self.disk = TearingDisk()
        self.open()

    def teardown(self) -> None:
        self.close()
        self.root.cleanup()

    def new_folder(self) -> Path:
        folder = Path(self.root.name) / str(next(self.serial)) / "journal"
        folder.parent.mkdir()
        return folder

    def open(self) -> None:
        self.disk.failures.clear()
        self.folder.mkdir(exist_ok=True)
        self.disk.sync_directory(str(self.folder.parent))
        self.user = JournalUser(
            self.folder,
            self.disk,
            nonce_first=next(self.nonce_first),
            is_durable=True,
            released_write=self.released_write,
            state=self.state,
        )

    def close(self) -> None:
        self.user.journal.close()
        assert self.disk.open == set()

    @invariant()
    def what_was_acknowledged_is_read(self) -> None:
        failures, self.disk.failures = self.disk.failures, []
        for key, location in self.locations.items():
            assert self.user.read(key, location) == self.objects[key]
        self.disk.failures = failures

    @invariant()
    def files_do_not_pile_up(self) -> None:
        if self.is_disk_sound:
            needed = len(KEYS) + len(self.entries)
            assert len(list(self.folder.iterdir())) <= needed + JOURNAL_FILES_SPARE_MAX + 2

    @rule(
        keys=st.lists(st.sampled_from(KEYS), max_size=3, unique=True),
        size=sizes,
        has_entry=st.booleans(),
        has_state=st.booleans(),
    )
    def append(self, keys: list[str], size: int, has_entry: bool, has_state: bool) -> None:
        self.write(keys, size, has_entry=has_entry or not keys, has_state=has_state)

    def write(self, keys: list[str], size: int, *, has_entry: bool, has_state: bool) -> None:
        payload = b"%d" % next(self.serial)
        content = payload.ljust(size, b".")
        entry = payload if has_entry else None
        state = b"state " + payload if has_state else None
        for key in keys:
            self.ever[key].add(content)
        self.pending.append((dict.fromkeys(keys, content), entry))
        try:
            written = self.user.append(*keys, payload=content, entry=entry, state=state)
        except OSError:
            return
        self.pending.clear()
        replaced = [self.locations[key] for key in keys if key in self.locations]
        self.locations |= dict(zip(keys, written.objects, strict=True))
        self.objects |= dict.fromkeys(keys, content)
        if entry is not None:
            self.entries.append(entry)
            self.entry_writes[entry] = written.write
        self.state = self.state if state is None else state
        self.mark(replaced)

    def mark(self, locations: list[RecordLocation]) -> None:
        try:
            self.user.journal.mark_dead(locations)
        except OSError:
            assert not self.is_disk_sound
        self.user.journal.take_back_unneeded()

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: str) -> None:
        location = self.locations.pop(key, None)
        if location is not None:
            del self.objects[key]
            self.mark([location])

    @rule(kept=st.integers(0, 3))
    def release(self, kept: int) -> None:
        dropped = self.entries[: max(0, len(self.entries) - kept)]
        if dropped:
            self.released_write = self.entry_writes[dropped[-1]]
            del self.entries[: len(dropped)]
            self.user.journal.release(self.released_write)
            self.user.journal.take_back_unneeded()

    @rule(operation=st.sampled_from(OPERATIONS), code=st.sampled_from([errno.ENOSPC, errno.EIO]))
    def fail(self, operation: str, code: int) -> None:
        self.is_disk_sound = False
        self.disk.fail(operation, code)

    @rule()
    def restart(self) -> None:
        self.close()
        self.open()
        self.compare()

    @rule()
    def lose_power(self) -> None:
        self.close()
        self.restore()

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=3, unique=True), size=sizes, seed=st.integers(0, 10_000))
    def lose_power_in_a_write(self, keys: list[str], size: int, seed: int) -> None:
        self.disk.failures.clear()
        self.disk.tearing = random.Random(seed)
        try:
            self.write(keys, size, has_entry=True, has_state=False)
        except PowerLoss:
            pass
        else:
            raise AssertionError("the sync of data is left out")
        restored = self.disk.restore(self.folder, self.new_folder())
        self.close()
        self.restore(restored)

    def restore(self, restored: Path | None = None) -> None:
        self.folder = self.disk.restore(self.folder, self.new_folder()) if restored is None else restored
        self.disk = TearingDisk()
        self.disk.adopt(self.folder)
        self.open()
        self.compare()

    def compare(self) -> None:
        """After a start; what it found is what is there from now on."""
        assert self.user.details() == []
        locations = [one for one in self.user.content.entries if one.write > self.released_write]
        kept = list(self.user.journal.records.payloads(locations))
        added = [entry for _, entry in self.pending if entry is not None and kept == [*self.entries, entry]]
        assert added or kept == self.entries
        objects = self.user.objects()
        for key in KEYS:
            allowed: set[bytes | None] = {self.objects.get(key), *(put[key] for put, _ in self.pending if key in put)}
            if key not in self.objects:
                allowed |= {None} | self.ever[key]  # its mark may be lost
            assert objects.get(key) in allowed
        for put, entry in self.pending:
            if entry is not None and put:
                is_put = all(objects.get(key) == content for key, content in put.items())
                assert is_put == (entry in added), "the objects and their entry"
        states = list(self.user.journal.records.payloads(self.user.content.states[-1:]))
        assert states == ([self.state] if self.state else []) or self.pending
        self.state = states[0] if states else b""
        self.user.state = self.state
        self.entry_writes |= {entry: one.write for entry, one in zip(kept, locations, strict=True)}
        self.objects, self.entries = objects, kept
        if added:
            self.pending.clear()
        self.locations = dict(self.user.content.objects)


JournalMachine.TestCase.settings = settings(stateful_step_count=40)
TestJournal = JournalMachine.TestCase
