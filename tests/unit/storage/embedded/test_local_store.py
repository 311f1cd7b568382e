"""What is the local store's own: durability, what a crash leaves, and errors of the operating system.

What it shares with the others: tests/contract/test_object_store.py. `LostPower` stands for a machine that loses its
power: of what was written it keeps what was synced, and nothing else.
"""

import asyncio
import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from storage.embedded.local_files import Files, errors_of
from storage.embedded.local_store import LocalStore
from storage.object_store import (
    Buffer,
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    ObjectRejected,
    StoreMisconfigured,
    StoreUnavailable,
)
from tests.support.odd_entries import make_all

KEY = "intake/0000000000000001/0000000000000000"


class LostPower(Files):
    """Remembers what is durable: contents of synced files, and names in synced directories."""

    def __init__(self) -> None:
        self.synced: dict[int, bytes] = {}
        """Contents by inode."""
        self.names: dict[str, dict[str, int]] = {}
        """Inodes by name, by directory."""
        self._lock = threading.Lock()
        """Of two syncs of a directory at once, the later list of names is the one that stays."""

    def sync_file(self, descriptor: int) -> None:
        super().sync_file(descriptor)
        self.synced[os.fstat(descriptor).st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        with self._lock:
            self.names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}

    def after_power_loss(self, root: Path, key: str) -> bytes | None:
        """The object as the next start finds it; None where its name is gone."""
        folder = root.parent
        inode = 0
        for name in (root.name, *key.split("/")):
            names = self.names.get(str(folder), {})
            if name not in names:
                return None
            inode = names[name]
            folder = folder / name
        return self.synced.get(inode, b"")


class NoFileSync(LostPower):
    def sync_file(self, descriptor: int) -> None:
        """Left out."""


class NoDirectorySync(LostPower):
    """Leaves out the sync of directories whose name ends with `suffix`."""

    def __init__(self, suffix: str) -> None:
        super().__init__()
        self.suffix = suffix

    def sync_directory(self, path: str) -> None:
        if not path.endswith(self.suffix):
            super().sync_directory(path)


class FailingFiles(Files):
    """Fails as told, once."""

    def __init__(self, operation: str, code: int) -> None:
        self.operation: str | None = operation
        self.code = code

    def strike(self, operation: str) -> None:
        if self.operation == operation:
            self.operation = None
            raise OSError(self.code, os.strerror(self.code))

    def create(self, path: str) -> int:
        self.strike("create")
        return super().create(path)

    def write(self, descriptor: int, parts: Sequence[Buffer]) -> None:
        super().write(descriptor, parts[:1])
        self.strike("write")
        super().write(descriptor, parts[1:])

    def sync_file(self, descriptor: int) -> None:
        self.strike("sync_file")
        super().sync_file(descriptor)

    def rename(self, source: str, target: str) -> None:
        self.strike("rename")
        super().rename(source, target)


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


class TestDurability:
    @pytest.mark.parametrize("if_absent", [False, True])
    async def test_a_put_that_returned_survives_the_loss_of_power(self, tmp_path: Path, *, if_absent: bool) -> None:
        files = LostPower()
        store = LocalStore(tmp_path / "new" / "store", files=files)
        await store.put(KEY, [b"one", b"two"], if_absent=if_absent)
        await store.close()
        assert files.after_power_loss(tmp_path / "new" / "store", KEY) == b"onetwo"
        assert "new" in files.names[str(tmp_path)]

    async def test_without_the_sync_of_the_file_its_bytes_are_lost(self, tmp_path: Path) -> None:
        files = NoFileSync()
        store = LocalStore(tmp_path / "store", files=files)
        await store.put(KEY, [b"one"])
        await store.close()
        assert files.after_power_loss(tmp_path / "store", KEY) != b"one"

    @pytest.mark.parametrize("suffix", ["/0000000000000001", "/intake", "/store"])
    async def test_without_the_sync_of_any_directory_the_name_is_lost(self, tmp_path: Path, suffix: str) -> None:
        files = NoDirectorySync(suffix)
        store = LocalStore(tmp_path / "store", files=files)
        await store.put(KEY, [b"one"])
        await store.close()
        assert files.after_power_loss(tmp_path / "store", KEY) is None

    async def test_a_directory_that_a_crash_left_unsynced_is_synced(self, tmp_path: Path) -> None:
        (tmp_path / "store" / "intake").mkdir(parents=True)
        files = LostPower()
        store = LocalStore(tmp_path / "store", files=files)
        await store.put(KEY, [b"one"])
        await store.close()
        assert "intake" in files.names[str(tmp_path / "store")]

    async def test_puts_at_the_same_time_into_a_new_directory_are_all_durable(self, tmp_path: Path) -> None:
        files = LostPower()
        store = LocalStore(tmp_path / "store", files=files)
        keys = [f"intake/0000000000000001/{number:016x}" for number in range(24)]
        await asyncio.gather(*(store.put(key, [key.encode()]) for key in keys))
        await store.close()
        root = tmp_path / "store"
        assert [files.after_power_loss(root, key) for key in keys] == [key.encode() for key in keys]

    async def test_a_deleted_object_does_not_come_back(self, tmp_path: Path) -> None:
        files = LostPower()
        store = LocalStore(tmp_path / "store", files=files)
        await store.put(KEY, [b"one"])
        await store.delete([KEY, "intake/0000000000000002/0000000000000000"])
        await store.close()
        assert files.after_power_loss(tmp_path / "store", KEY) is None

    async def test_who_prefers_speed_syncs_nothing(self, tmp_path: Path) -> None:
        files = LostPower()
        store = LocalStore(tmp_path / "store", is_durable=False, files=files)
        await store.put(KEY, [b"one"])
        assert await store.get(KEY) == b"one"
        await store.close()
        assert (files.synced, files.names) == ({}, {})


class TestStart:
    async def test_what_a_crash_left_half_written_is_removed(self, tmp_path: Path) -> None:
        (tmp_path / ".incomplete").mkdir()
        (tmp_path / ".incomplete" / "3f").write_bytes(b"half")
        (tmp_path / "intake" / "0000000000000001").mkdir(parents=True)
        store = LocalStore(tmp_path)
        assert files_below(tmp_path) == []
        assert not (tmp_path / "intake").exists()
        assert [meta async for meta in store.list("")] == []
        await store.close()

    async def test_objects_stay(self, tmp_path: Path) -> None:
        first = LocalStore(tmp_path)
        await first.put(KEY, [b"x"])
        await first.close()
        second = LocalStore(tmp_path)
        assert await second.get(KEY) == b"x"
        assert [meta.key async for meta in second.list("")] == [KEY]
        await second.close()

    async def test_a_second_writer_is_refused_before_it_removes_anything(self, tmp_path: Path) -> None:
        first = LocalStore(tmp_path)
        (tmp_path / ".incomplete" / "0").write_bytes(b"half")
        with pytest.raises(StoreMisconfigured, match="another process"):
            LocalStore(tmp_path)
        assert files_below(tmp_path) == [".incomplete/0"]
        await first.close()
        await LocalStore(tmp_path).close()

    async def test_a_reader_changes_nothing(self, tmp_path: Path) -> None:
        writer = LocalStore(tmp_path)
        await writer.put(KEY, [b"x"])
        (tmp_path / ".incomplete" / "0").write_bytes(b"half")
        before = files_below(tmp_path)
        reader = LocalStore(tmp_path, is_writer=False)
        assert await reader.get(KEY) == b"x"
        with pytest.raises(StoreMisconfigured, match="reading only"):
            await reader.put("a", [b"x"])
        with pytest.raises(StoreMisconfigured, match="reading only"):
            await reader.delete([KEY])
        assert files_below(tmp_path) == before
        await reader.close()
        await writer.close()

    def test_a_root_that_is_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(StoreMisconfigured):
            LocalStore(tmp_path / "file" / "store")


ODD_FAULTS = {
    "lake/.odd-bytes\\xff\\xfe": "its name is no key of an object",
    "lake/.odd-dangling": "a link that leads nowhere",
    "lake/.odd-endless": os.strerror(errno.ELOOP),
    "lake/.odd-fifo": "no file, but a pipe, a socket or a device",
    "lake/.odd-line\\x0aline": "its name is no key of an object",
    "lake/.odd-loop": "a link to a folder, which is not followed",
    "lake/.odd-socket": "no file, but a pipe, a socket or a device",
}


class TestOddEntries:
    """Safety rule S20: what is no object, or cannot be looked at, holds up no other."""

    @pytest.mark.timeout(60)
    async def test_s20_each_is_named_with_its_fault_and_the_others_are_listed(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        keys = ["lake/a", "lake/t/data/1", "lake/z"]
        for key in keys:
            await store.put(key, [b"x"])
        make_all(tmp_path / "lake")
        listed = [meta async for meta in store.list("lake/")]
        assert [meta.key for meta in listed] == sorted(
            [*ODD_FAULTS, "lake/.odd-file", "lake/.odd-folder/within", *keys]
        )
        assert {meta.key: meta.fault for meta in listed if meta.fault} == ODD_FAULTS
        assert [meta.key async for meta in store.list("lake/", after="lake/.odd-socket")] == keys
        assert [meta.key async for meta in store.list("lake/", after="lake/.odd-dangling")] == [
            meta.key for meta in listed if meta.key > "lake/.odd-dangling"
        ]
        await store.close()

    @pytest.mark.timeout(60)
    @pytest.mark.parametrize(
        ("name", "error"),
        [
            ("endless", ObjectDamaged),
            *((name, ObjectMissing) for name in ("fifo", "socket", "folder", "loop", "dangling")),
        ],
    )
    async def test_s20_what_is_asked_of_one_has_an_answer_at_once(
        self, tmp_path: Path, name: str, error: type[Exception]
    ) -> None:
        store = LocalStore(tmp_path)
        make_all(tmp_path)
        with pytest.raises(error):
            await store.get(f".odd-{name}")
        with pytest.raises(error):
            await store.get_range(f".odd-{name}", 0, 1)
        with pytest.raises(error):
            await store.head(f".odd-{name}")
        await store.close()

    async def test_a_link_to_a_file_is_that_object_and_a_folder_that_is_asked_for_may_be_a_link(
        self, tmp_path: Path
    ) -> None:
        """As where somebody has moved it to another disk."""
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "one").write_bytes(b"abc")
        store = LocalStore(tmp_path / "store")
        (tmp_path / "store" / "lake").symlink_to(tmp_path / "elsewhere")
        (tmp_path / "store" / "lake" / "two").symlink_to("one")
        assert [(meta.key, meta.size_bytes, meta.fault) async for meta in store.list("lake/")] == [
            ("lake/one", 3, ""),
            ("lake/two", 3, ""),
        ]
        await store.close()

    async def test_s20_a_folder_that_cannot_be_read_is_named_and_hides_what_is_below_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The one that was asked for is an error: nothing would be known."""
        store = LocalStore(tmp_path)
        for key in ("lake/a", "lake/bad/1", "lake/c/1"):
            await store.put(key, [b"x"])
        scandir = os.scandir

        def failing(path: str) -> object:
            if path.endswith("/bad/"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return scandir(path)

        monkeypatch.setattr(os, "scandir", failing)
        listed = [meta async for meta in store.list("lake/")]
        assert [(meta.key, meta.hides_others) for meta in listed] == [
            ("lake/a", False),
            ("lake/bad/", True),
            ("lake/c/1", False),
        ]
        assert "Input/output error" in listed[1].fault
        with pytest.raises(StoreUnavailable, match="lake/bad/"):
            assert [meta async for meta in store.list("lake/bad/")] == []
        await store.close()

    @pytest.mark.timeout(60)
    async def test_a_start_passes_over_them_also_among_its_own_files(self, tmp_path: Path) -> None:
        await LocalStore(tmp_path).close()
        for folder in (tmp_path, tmp_path / ".incomplete"):
            make_all(folder)
        (tmp_path / ".incomplete" / "0").mkdir()
        store = LocalStore(tmp_path)
        await store.put("a", [b"one"])
        await store.put("b", [b"two"], if_absent=True)
        assert (await store.get("a"), await store.get("b")) == (b"one", b"two")
        await store.close()


class TestErrors:
    @pytest.mark.parametrize("operation", ["create", "write", "sync_file", "rename"])
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
    async def test_a_full_or_failing_disk_may_get_well(self, tmp_path: Path, operation: str, code: int) -> None:
        store = LocalStore(tmp_path, files=FailingFiles(operation, code))
        with pytest.raises(StoreUnavailable):
            await store.put(KEY, [b"one", b"two"])
        assert files_below(tmp_path) == []
        await store.put(KEY, [b"one", b"two"])
        assert await store.get(KEY) == b"onetwo"
        await store.close()

    async def test_missing_permission_does_not(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path, files=FailingFiles("create", errno.EACCES))
        with pytest.raises(StoreMisconfigured):
            await store.put(KEY, [b"x"])
        await store.close()

    @pytest.mark.parametrize(("is_read", "kind"), [(True, ObjectRejected), (False, StoreMisconfigured)])
    def test_missing_permission_to_read_is_of_one_object(
        self, *, is_read: bool, kind: type[StoreMisconfigured]
    ) -> None:
        with pytest.raises(StoreMisconfigured) as raised, errors_of(KEY, is_read=is_read):
            raise PermissionError(errno.EACCES, "Permission denied")
        assert raised.type is kind

    async def test_a_key_cannot_be_the_folder_of_another(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        await store.put("a", [b"x"])
        await store.put("b/c", [b"x"])
        for key in ("a/b", "b"):
            with pytest.raises((StoreMisconfigured, ObjectExists)):
                await store.put(key, [b"x"])
        assert files_below(tmp_path) == ["a", "b/c"]
        await store.close()

    @pytest.mark.parametrize("key", [".incomplete", ".incomplete/0"])
    async def test_its_own_folder_is_no_place_for_objects(self, tmp_path: Path, key: str) -> None:
        store = LocalStore(tmp_path)
        with pytest.raises(StoreMisconfigured, match="keeps for itself"):
            await store.put(key, [b"x"])
        await store.close()

    async def test_a_conditional_put_that_lost_leaves_nothing_behind(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        await store.put("cluster.json", [b"first"], if_absent=True)
        with pytest.raises(ObjectExists):
            await store.put("cluster.json", [b"second"], if_absent=True)
        assert files_below(tmp_path) == ["cluster.json"]
        await store.close()


class TestWriting:
    def test_what_the_kernel_takes_in_pieces_arrives_whole(self) -> None:
        parts = [b"ab", b"", b"cdef", b"g"] * 700
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        received = b""
        try:
            Files().write(writing, parts)
            received = os.read(reading, 1 << 16)
        finally:
            os.close(reading)
            os.close(writing)
        assert received == b"".join(parts)

    def test_the_rest_of_a_short_write_is_cut_at_the_byte(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written: list[bytes] = []

        def three_bytes(_descriptor: int, parts: Sequence[Buffer]) -> int:
            taken = b"".join(parts)[:3]
            written.append(taken)
            return len(taken)

        monkeypatch.setattr(os, "writev", three_bytes)
        Files().write(0, [b"ab", b"", b"cdef", b"", b"gh"])
        assert written == [b"abc", b"def", b"gh"]
