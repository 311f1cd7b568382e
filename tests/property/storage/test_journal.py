"""A journal against a model: appends, deletions, releases, failing disks, restarts, kills and losses of power.

Rule: what was acknowledged is there after each start, in its order and whole, and what was deleted is not. A write
whose outcome is not known is there as a whole or not at all: one that failed, or during which the process was killed or
the power was lost. Of what was not synced then, any sectors of any file survive, and the first changes of names.
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
from tests.support.journal.opened_journals import FILE_BYTES, JournalUser, Killed
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
    "close",
]
sizes = st.sampled_from([0, 1, 300, FILE_BYTES, 3 * FILE_BYTES])
keys_of_a_write = st.lists(st.sampled_from(KEYS), max_size=3, unique=True)


class JournalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.TemporaryDirectory()
        self.serial = count(1)
        self.nonce_first = count(1, 1_000)
        self.objects: dict[str, bytes] = {}
        """What was acknowledged, and not deleted since."""
        self.doubtful: set[str] = set()
        """Keys of objects that could not be marked as deleted: they may be all the same."""
        self.entries: list[bytes] = []
        """The entries that were acknowledged and not released, with those that a start has found."""
        self.pending: list[tuple[dict[str, bytes], bytes | None, bytes | None]] = []
        """Writes of unknown outcome: objects, entry, state. Until another write follows, a start may find one."""
        self.released_write = -1
        self.state = b""
        self.is_disk_sound = True
        self.locations: dict[str, RecordLocation] = {}
        self.replaced: dict[str, list[RecordLocation]] = {}
        self.entry_writes: dict[bytes, int] = {}
        self.folder = self.new_folder()
        self.disk = PackDisk()
        self.open()

    def teardown(self) -> None:
        self.disk.kill()
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
            released_write=self.released_write,
            state=self.state,
        )
        self.is_disk_sound = True

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
            needed = len(KEYS) + sum(map(len, self.replaced.values())) + len(self.entries)
            assert len(list(self.folder.iterdir())) <= needed + JOURNAL_FILES_SPARE_MAX + 2

    @rule(keys=keys_of_a_write, size=sizes, has_entry=st.booleans(), has_state=st.booleans())
    def append(self, keys: list[str], size: int, has_entry: bool, has_state: bool) -> None:
        self.write(keys, size, has_entry=has_entry or not keys, has_state=has_state)

    def write(self, keys: list[str], size: int, *, has_entry: bool, has_state: bool) -> None:
        payload = b"%d" % next(self.serial)
        content = payload.ljust(size, b".")
        entry = payload if has_entry else None
        state = b"state " + payload if has_state else None
        put = dict.fromkeys(keys, content)
        self.pending.append((put, entry, state))
        try:
            written = self.user.append(*keys, payload=content, entry=entry, state=state)
        except OSError:
            assert not self.is_disk_sound
            return
        self.pending.clear()
        for key, location in zip(keys, written.objects, strict=True):
            if key in self.locations:
                self.replaced.setdefault(key, []).append(self.locations[key])
            self.locations[key] = location
        self.doubtful.difference_update(keys)
        self.objects |= put
        if entry is not None:
            self.entries.append(entry)
            self.entry_writes[entry] = written.write
        self.state = self.state if state is None else state

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: str) -> None:
        """What was replaced is marked first: else it would be back."""
        if key not in self.locations:
            return
        earlier = self.replaced.get(key, [])
        try:
            while earlier:
                self.user.journal.mark_dead(earlier[:1])
                del earlier[0]
            self.doubtful.add(key)
            self.user.journal.mark_dead([self.locations[key]])
        except OSError:
            assert not self.is_disk_sound
        else:
            self.doubtful.discard(key)
            del self.objects[key], self.locations[key]
            self.replaced.pop(key, None)
        self.user.journal.take_back_unneeded()

    @rule(kept=st.integers(0, 3))
    def release(self, kept: int) -> None:
        dropped = self.entries[: max(0, len(self.entries) - kept)]
        if dropped:
            self.released_write = self.entry_writes[dropped[-1]]
            del self.entries[: len(dropped)]
            self.user.journal.release(self.released_write)
            self.user.journal.take_back_unneeded()

    @rule()
    def leave_unneeded(self) -> None:
        self.pending.append(({}, None, self.state))
        try:
            self.user.journal.leave_unneeded()
        except OSError:
            assert not self.is_disk_sound
            return
        self.pending.pop()

    @rule(operation=st.sampled_from(OPERATIONS), code=st.sampled_from([errno.ENOSPC, errno.EIO]), drops=st.booleans())
    def fail(self, operation: str, code: int, drops: bool) -> None:
        self.is_disk_sound = False
        self.disk.drops_pages = drops
        self.disk.fail(operation, code)

    @rule()
    def restart(self) -> None:
        self.disk.failures.clear()
        self.close()
        self.open()
        self.compare()

    @rule(seed=st.none() | st.integers(0, 10_000))
    def kill(self, seed: int | None) -> None:
        """Kill the process; with a seed, the power is lost too."""
        self.restore(seed)

    @rule(
        keys=keys_of_a_write,
        size=sizes,
        operation=st.sampled_from(OPERATIONS),
        skipped=st.integers(0, 4),
        seed=st.none() | st.integers(0, 10_000),
    )
    def kill_in_a_write(self, keys: list[str], size: int, operation: str, skipped: int, seed: int | None) -> None:
        calls = count()

        def kill() -> None:
            if next(calls) >= skipped:
                raise Killed

        self.disk.before[operation] = kill
        try:
            self.write(keys, size, has_entry=True, has_state=False)
        except Killed:
            self.restore(seed)
        self.disk.before.clear()

    def restore(self, seed: int | None) -> None:
        if seed is None:
            self.disk.kill()
        else:
            self.folder = self.disk.restore(self.folder, self.new_folder(), random.Random(seed))
            self.disk.kill()
            self.disk = PackDisk()
            self.disk.adopt(self.folder)
        self.open()
        self.compare()

    def compare(self) -> None:
        """After a start; what it found is what is there from now on."""
        assert self.user.details() == []
        locations = [one for one in self.user.content.entries if one.write > self.released_write]
        kept = list(self.user.journal.records.payloads(locations))
        objects = self.user.objects()
        states = list(self.user.journal.records.payloads(self.user.content.states[-1:]))
        added = [
            (put, entry, state)
            for put, entry, state in [({}, None, None), *self.pending]
            if kept == [*self.entries, *([] if entry is None else [entry])]
            and states == [one for one in [self.state if state is None else state] if one]
            and self.are_expected(objects, put)
        ]
        assert added, (kept, objects.keys(), states)
        self.state = states[0] if states else b""
        self.user.state = self.state
        self.entry_writes |= {entry: one.write for entry, one in zip(kept, locations, strict=True)}
        self.objects, self.entries = objects, kept
        self.doubtful.clear()
        self.pending.clear()
        self.locations = dict(self.user.content.objects)
        self.replaced = dict(self.user.content.replaced)

    def are_expected(self, objects: dict[str, bytes], put: dict[str, bytes]) -> bool:
        expected = self.objects | put
        return all(
            objects.get(key) == expected.get(key) or (key in self.doubtful and key not in put and key not in objects)
            for key in KEYS
        )


JournalMachine.TestCase.settings = settings(stateful_step_count=40)
TestJournal = JournalMachine.TestCase
