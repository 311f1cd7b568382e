"""The folder of a journal: names of files, and files that wait to be used again."""

import errno
from pathlib import Path

import pytest

from protocol.limits import JOURNAL_FILES_SPARE_MAX
from storage.embedded.journal.folder import JournalFolder
from storage.embedded.journal.format import RECORDS_FIRST
from storage.embedded.journal.scan import Read, file_header
from tests.support.journal.opened_journals import nonces
from tests.support.packs.simulated_disk import PackDisk


def read_of(path: Path) -> Read:
    content = path.read_bytes()
    return lambda byte_count, position: content[position : position + byte_count]


class OneFolder:
    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.disk = PackDisk()
        self.folder = JournalFolder(str(path), self.path_of, new_nonce=nonces(1), files=self.disk)

    def path_of(self, number: int) -> str:
        return f"{self.path}/{number:016x}.journal"

    def begin(self) -> int:
        header, descriptor = self.folder.begin_file(5, is_synced=True)
        self.disk.close(descriptor)
        assert file_header(read_of(Path(self.path_of(header.number))), header.number) == header
        assert header.write_first == 5
        return header.number

    def files(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())


@pytest.fixture
def one(tmp_path: Path) -> OneFolder:
    return OneFolder(tmp_path / "journal")


def test_numbers_rise_from_the_highest_that_is_known(one: OneFolder) -> None:
    one.folder.number_highest = 9 << 32
    assert one.begin() >> 32 == 10
    assert one.begin() >> 32 == 11


def test_a_file_that_was_taken_back_gets_the_next_name(one: OneFolder) -> None:
    first = one.begin()
    with Path(one.path_of(first)).open("ab") as file:
        file.write(b"old")
    one.folder.take_back(first)
    second = one.begin()
    assert one.files() == [f"{second:016x}.journal"]
    assert Path(one.path_of(second)).read_bytes()[RECORDS_FIRST:] == b"old"


@pytest.mark.parametrize("is_spare", [False, True])
def test_a_file_has_its_name_once_its_header_is_durable(one: OneFolder, is_spare: bool) -> None:
    one.disk.sync_directory(str(one.path.parent))
    if is_spare:
        one.folder.take_back(one.begin())
    lost: list[list[str]] = []

    def lose_power() -> None:
        restored = one.disk.restore(one.path, one.path.parent / str(len(lost)))
        lost.append(sorted(path.name for path in restored.iterdir()))
        for path in restored.iterdir():
            assert file_header(read_of(path), int(path.stem, 16)) is not None

    for operation in ("rename", "sync_directory"):
        one.disk.before[operation] = lose_power
    number = one.begin()
    one.disk.before.clear()
    lose_power()
    assert lost[-1] == [f"{number:016x}.journal"]
    assert one.disk.calls["sync_data"] == 1 + is_spare


def test_more_than_some_files_are_removed(one: OneFolder) -> None:
    numbers = [one.begin() for _ in range(JOURNAL_FILES_SPARE_MAX + 2)]
    for number in numbers:
        one.folder.take_back(number)
    assert len(one.files()) == JOURNAL_FILES_SPARE_MAX
    one.folder.drop_spares()
    assert one.files() == []


def test_a_spare_file_that_cannot_be_removed_waits_on(one: OneFolder) -> None:
    one.folder.take_back(one.begin())
    one.disk.fail("unlink", errno.EIO)
    one.folder.drop_spares()
    assert len(one.files()) == 1
    one.folder.drop_spares()
    assert one.files() == []


def test_a_file_that_cannot_be_removed_is_reported_to_its_caller(one: OneFolder) -> None:
    number = one.begin()
    one.disk.fail("unlink", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        one.folder.remove(number)
    one.folder.remove(number)
    one.folder.remove(number)
    assert one.files() == []


@pytest.mark.parametrize("operation", ["open_existing", "write_at", "sync_data", "rename"])
def test_a_spare_file_that_cannot_be_used_waits_on_and_another_one_is_used(one: OneFolder, operation: str) -> None:
    first, second = one.begin(), one.begin()
    one.folder.take_back(first)
    one.folder.take_back(second)
    one.disk.fail(operation, errno.EIO)
    third = one.begin()
    assert one.files() == [f"{number:016x}.journal" for number in (first, third)]
    assert one.disk.open == set()
    fourth = one.begin()
    assert one.files() == [f"{number:016x}.journal" for number in (third, fourth)]


def test_where_no_spare_file_can_be_used_one_is_created(one: OneFolder) -> None:
    one.folder.take_back(one.begin())
    one.disk.fail("rename", errno.EIO)
    one.begin()
    assert len(one.files()) == 2


def test_spare_files_that_somebody_removed_are_forgotten(one: OneFolder) -> None:
    for number in [one.begin() for _ in range(JOURNAL_FILES_SPARE_MAX)]:
        one.folder.take_back(number)
        Path(one.path_of(number)).unlink()
    numbers = [one.begin() for _ in range(JOURNAL_FILES_SPARE_MAX)]
    for number in numbers:
        one.folder.take_back(number)
    assert one.files() == [f"{number:016x}.journal" for number in numbers]


@pytest.mark.parametrize("operation", ["create", "write_at", "sync_data"])
def test_of_a_file_that_could_not_be_begun_nothing_is_left(one: OneFolder, operation: str) -> None:
    one.disk.fail(operation, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        one.begin()
    assert (one.files(), one.disk.open) == ([], set())


@pytest.mark.parametrize("is_spare", [False, True])
def test_a_file_whose_name_could_not_be_synced_waits_to_be_used(one: OneFolder, is_spare: bool) -> None:
    if is_spare:
        one.folder.take_back(one.begin())
    one.disk.fail("sync_directory", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        one.begin()
    assert one.disk.open == set()
    one.begin()
    assert len(one.files()) == 1


def test_one_process_locks_it(one: OneFolder) -> None:
    one.folder.lock()
    other = JournalFolder(str(one.path), one.path_of, new_nonce=nonces(9), files=PackDisk())
    with pytest.raises(BlockingIOError):
        other.lock()
    one.folder.unlock()
    one.folder.unlock()
    other.lock()
    other.unlock()
