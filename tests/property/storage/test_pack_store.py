"""The pack store against a dict: puts, deletes, failing disks, restarts and losses of power, in any order.

Rule: `now` is what was acknowledged, and what is read while a store is open. The next start finds the same, but for
what nobody was promised: a put that failed may be there, a delete that failed may be done, and after the loss of power,
or where marking failed, a deleted object may be back. Whatever is found was once put under its key, whole.
"""

import asyncio
import errno
import tempfile
from collections.abc import Collection
from itertools import count
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from protocol.limits import PACKS_SPARE_MAX
from storage.embedded.pack_store import PackStore
from storage.object_store import ObjectsNotDeleted, StoreError
from tests.support.packs.simulated_disk import PackDisk

PACK_BYTES = 1_000
KEYS = [f"intake/{number}" for number in range(5)]
OPERATIONS = ["create", "rename", "open_existing", "write_at", "sync_data", "sync_directory", "truncate", "unlink"]

key_lists = st.lists(st.sampled_from(KEYS), min_size=1, unique=True)
sizes = st.sampled_from([0, 1, 300, PACK_BYTES, 3 * PACK_BYTES])


class PackStoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.serial, self.nonces = count(1), count(1)
        self.now: dict[str, bytes] = {}
        self.ever: dict[str, set[bytes]] = {key: set() for key in KEYS}
        self.failed_since: dict[str, set[bytes]] = {key: set() for key in KEYS}
        """Puts that failed after what stands in `now`."""
        self.doubted: set[str] = set()
        """Keys whose objects a failed delete may have marked."""
        self.is_disk_sound = True
        self.folder = self.new_folder()
        self.disk = PackDisk()
        self.open()

    def teardown(self) -> None:
        self.close()
        self.runner.close()
        self.root.cleanup()

    def new_folder(self) -> Path:
        folder = Path(self.root.name) / str(next(self.serial)) / "packs"
        folder.parent.mkdir()
        return folder

    def open(self) -> None:
        self.disk.failures.clear()

        async def opening() -> PackStore:
            return PackStore(
                self.folder,
                now_ms=lambda: 0,
                new_nonce=lambda: next(self.nonces).to_bytes(16, "big"),
                files=self.disk,
                pack_bytes_target=PACK_BYTES,
            )

        self.store = self.runner.run(opening())

    def contents(self) -> dict[str, bytes]:
        async def reading() -> dict[str, bytes]:
            return {meta.key: await self.store.get(meta.key) async for meta in self.store.list("")}

        return self.runner.run(reading())

    @invariant()
    def what_was_acknowledged_is_read(self) -> None:
        failures, self.disk.failures = self.disk.failures, []
        assert self.contents() == self.now
        self.disk.failures = failures

    @invariant()
    def files_do_not_pile_up(self) -> None:
        if self.is_disk_sound:
            assert len(list(self.folder.iterdir())) <= len(KEYS) + PACKS_SPARE_MAX + 2

    @rule(keys=key_lists, size=sizes)
    def put(self, keys: list[str], size: int) -> None:
        payloads = {key: f"{key} {next(self.serial)}".encode().ljust(size, b".") for key in keys}

        async def putting() -> list[BaseException | None]:
            puts = (self.store.put(key, [payload]) for key, payload in payloads.items())
            return await asyncio.gather(*puts, return_exceptions=True)

        for (key, payload), error in zip(payloads.items(), self.runner.run(putting()), strict=True):
            self.ever[key].add(payload)
            if error is None:
                self.now[key] = payload
                self.failed_since[key].clear()
                self.doubted.discard(key)
            else:
                assert isinstance(error, StoreError)
                self.failed_since[key].add(payload)

    @rule(keys=key_lists)
    def delete(self, keys: list[str]) -> None:
        kept: Collection[str] = ()
        try:
            self.runner.run(self.store.delete(keys))
        except ObjectsNotDeleted as error:
            kept = error.reasons
            self.doubted.update(kept)
        for key in set(keys).difference(kept):
            self.now.pop(key, None)

    @rule(operation=st.sampled_from(OPERATIONS), code=st.sampled_from([errno.ENOSPC, errno.EIO]))
    def fail(self, operation: str, code: int) -> None:
        self.is_disk_sound = False
        self.disk.fail(operation, code)

    @rule()
    def restart(self) -> None:
        self.close()
        self.open()
        self.compare(may_be_back=not self.is_disk_sound)

    @rule()
    def lose_power(self) -> None:
        self.close()
        self.folder = self.disk.restore(self.folder, self.new_folder())
        self.disk = PackDisk()
        self.disk.adopt(self.folder)
        self.open()
        self.compare(may_be_back=True)

    def close(self) -> None:
        self.runner.run(self.store.close())
        assert self.disk.open == set()

    def compare(self, *, may_be_back: bool) -> None:
        """After a start; what it found is what is there from now on."""
        found = self.contents()
        assert found.keys() <= set(KEYS)
        for key in KEYS:
            allowed: set[bytes | None] = {self.now.get(key)} | self.failed_since[key]
            if key in self.doubted or (key not in self.now and may_be_back):
                allowed |= {None} | self.ever[key]
            assert found.get(key) in allowed
        self.now = found


PackStoreMachine.TestCase.settings = settings(stateful_step_count=40)
TestPackStore = PackStoreMachine.TestCase
