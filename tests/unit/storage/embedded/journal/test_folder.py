"""The folder of a journal: names of files, and files that wait to be used again."""

import errno
from pathlib import Path

import pytest

from protocol.limits import JOURNAL_FILES_SPARE_MAX
from storage.embedded.journal.folder import JournalFolder
from tests.support.journal.opened_journals import nonces
from tests.support.packs.simulated_disk import PackDisk


class OneFolder:
    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.disk = PackDisk()
        self.folder = JournalFolder(str(path), self.path_of, new_nonce=nonces(1), is_durable=True, files=self.disk)

    def path_of(self, number: int) -> str:
        return f"{self.path}/{number:016x}.journal"

    def begin(self) -> int:
        number, _, descriptor = self.folder.begin_file()
        self.disk.close(descriptor)
        return number

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
    Path(one.path_of(first)).write_bytes(b"old")
    one.folder.take_back(first)
    second = one.begin()
    assert one.files() == [f"{second:016x}.journal"]
    assert Path(one.path_of(second)).read_bytes() == b"old"


def test_more_than_some_files_are_removed(one: OneFolder) -> None:
    numbers = [one.begin() for _ in range(JOURNAL_FILES_SPARE_MAX + 2)]
    for number in numbers:
        one.folder.take_back(number)
    assert len(one.files()) == JOURNAL_FILES_SPARE_MAX
    one.folder.drop_spares()
    assert one.files() == []


def test_a_file_that_cannot_be_removed_is_left_to_the_next_start(one: OneFolder) -> None:
    number = one.begin()
    one.disk.fail("unlink", errno.EIO)
    one.folder.remove(number)
    assert len(one.files()) == 1


@pytest.mark.parametrize("operation", ["rename", "open_existing", "sync_directory"])
def test_a_spare_file_that_could_not_be_renamed_waits_on(one: OneFolder, operation: str) -> None:
    number = one.begin()
    one.folder.take_back(number)
    one.disk.fail(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        one.begin()
    assert one.disk.open == set()
    one.begin()
    assert len(one.files()) == 1


def test_one_process_locks_it(one: OneFolder) -> None:
    one.folder.lock()
    other = JournalFolder(str(one.path), one.path_of, new_nonce=nonces(9), is_durable=True, files=PackDisk())
    with pytest.raises(BlockingIOError):
        other.lock()
    one.folder.unlock()
    one.folder.unlock()
    other.lock()
    other.unlock()
