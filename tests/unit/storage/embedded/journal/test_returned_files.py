"""Files of a journal that come back after it went on without them, and files of another journal (safety rule S20)."""

from pathlib import Path

import pytest

from storage.embedded.journal.format import RECORD_HEADER_BYTES, RECORDS_FIRST
from storage.embedded.journal.scan import WRITES_SKIPPED
from storage.embedded.readable_bytes import SECTOR_BYTES
from tests.support.journal.journal_bytes import a_write, an_end, an_entry, header
from tests.support.journal.journal_files import contents_of
from tests.support.journal.opened_journals import FILE_BYTES, JournalUser, opened_journal
from tests.support.packs.simulated_disk import PackDisk

LARGE = b"l" * FILE_BYTES
EVERY_ENTRY = 1 << 60
"""Above each write that a test makes."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def write_two_files(folder: Path, *, is_killed: bool) -> Path:
    """A full file, and one with three writes, which is returned."""
    with opened_journal(folder) as user:
        user.append("0", payload=LARGE, entry=b"0")
        for row in range(1, 4):
            user.append(f"{row}", entry=b"%d" % row)
        killed = contents_of(folder)
    if is_killed:
        for name, content in killed.items():
            (folder / name).write_bytes(content)
    return max(folder.iterdir())


def is_proved(user: JournalUser) -> bool:
    """Whether a ledger opens: its newest entry is behind everything that may be missing."""
    return user.content.entries[-1].write >= user.content.damaged_write


def go_on(folder: Path, nonce_first: int, *, disk: PackDisk | None = None, is_durable: bool = True) -> None:
    """What a recovery does: it goes on with what is there."""
    with opened_journal(folder, disk, nonce_first=nonce_first, is_durable=is_durable) as user:
        assert not is_proved(user)
        for row in range(2):
            user.append(f"new {row}", entry=b"new %d" % row)


def check_all_count(user: JournalUser) -> None:
    assert user.entries() == [b"0", b"1", b"2", b"3", b"new 0", b"new 1"]
    assert user.objects().keys() == {"0", "1", "2", "3", "new 0", "new 1"}
    assert is_proved(user)


class TestThatWereAway:
    @pytest.mark.parametrize("is_durable", [True, False], ids=["synced", "not synced"])
    @pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
    @pytest.mark.parametrize("nonce_first", [13, 8], ids=["a lower random half", "a higher one"])
    def test_a_file_that_was_missing_costs_nothing_of_what_was_written_without_it(
        self, folder: Path, tmp_path: Path, nonce_first: int, is_killed: bool, is_durable: bool
    ) -> None:
        away = write_two_files(folder, is_killed=is_killed)
        away.rename(tmp_path / "away")
        go_on(folder, nonce_first, is_durable=is_durable)
        assert max(folder.iterdir()) > away, "the numbers of files that are missing are not given again"
        (tmp_path / "away").rename(away)
        for start in range(2):
            with opened_journal(folder, nonce_first=100 + start, is_durable=is_durable) as user:
                check_all_count(user)
                assert user.details(is_certain=False) == []

    @pytest.mark.parametrize("is_durable", [True, False], ids=["synced", "not synced"])
    @pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
    def test_so_does_one_whose_headers_could_not_be_read(self, folder: Path, is_killed: bool, is_durable: bool) -> None:
        away = write_two_files(folder, is_killed=is_killed)
        disk = PackDisk()
        for position in (0, SECTOR_BYTES):
            disk.spoil(away, position)
        go_on(folder, 7, disk=disk, is_durable=is_durable)
        for start in range(2):
            with opened_journal(folder, nonce_first=100 + start, is_durable=is_durable) as user:
                check_all_count(user)

    @pytest.mark.parametrize("is_durable", [True, False], ids=["synced", "not synced"])
    def test_so_does_one_whose_last_sector_could_not_be_read(self, folder: Path, is_durable: bool) -> None:
        """Nothing is written into it, so it has no end that says how many writes it has."""
        with opened_journal(folder, file_bytes=5 * SECTOR_BYTES) as user:
            first = user.append(entry=b"0" * (2 * SECTOR_BYTES - RECORDS_FIRST - RECORD_HEADER_BYTES)).entries[0]
            assert first.end == 2 * SECTOR_BYTES
            user.append(entry=b"1")
            user.append(entry=b"2")
            killed = contents_of(folder)
        ((name, content),) = killed.items()
        (folder / name).write_bytes(content)
        disk = PackDisk()
        disk.spoil(folder / name, 2 * SECTOR_BYTES)
        go_on(folder, 7, disk=disk, is_durable=is_durable)
        for start in range(2):
            with opened_journal(folder, nonce_first=100 + start, is_durable=is_durable) as user:
                assert user.entries()[1:] == [b"1", b"2", b"new 0", b"new 1"]
                assert is_proved(user)


class TestThatOverlap:
    """A write that failed gets its number again, and nothing follows it in its file. So a file with more writes that a
    later file has, too, is of another journal than that one, or one of the two has come back."""

    FOREIGN = bytes(range(100, 116))

    @pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
    @pytest.mark.parametrize("write_first", [0, 1, 2])
    def test_none_of_them_is_cut_or_given_back_and_no_ledger_opens(
        self, folder: Path, is_killed: bool, write_first: int
    ) -> None:
        write_two_files(folder, is_killed=is_killed)
        own = contents_of(folder)
        foreign = folder / f"{9 << 32:016x}.journal"
        other = header(write_first, number=9 << 32, nonce=self.FOREIGN)
        other += a_write(write_first, an_entry(b"other"), nonce=self.FOREIGN)
        foreign.write_bytes(other + an_end(write_first + 1, nonce=self.FOREIGN))
        for start in range(2):
            with opened_journal(folder, nonce_first=100 + start, released_write=EVERY_ENTRY) as user:
                assert not is_proved(user)
                assert user.content.has_gaps
                detail = f"its writes from {write_first} on are in a file behind it, too, which does not follow it"
                assert detail in user.details()
                user.journal.take_back_unneeded()
                user.journal.drop_spares()
                kept = contents_of(folder)
                assert {name: kept.get(name) for name in own} == own
        foreign.unlink()
        with opened_journal(folder, nonce_first=200) as user:
            assert (user.entries(), user.details()) == ([b"0", b"1", b"2", b"3"], [])

    def test_a_recovery_goes_on_behind_all_of_them(self, folder: Path) -> None:
        write_two_files(folder, is_killed=True)
        content = header(1, number=9 << 32, nonce=self.FOREIGN) + a_write(1, an_entry(b"x"), nonce=self.FOREIGN)
        (folder / f"{9 << 32:016x}.journal").write_bytes(content)
        go_on(folder, 7)
        with opened_journal(folder, nonce_first=100) as user:
            assert user.entries() == [b"0", b"x", b"new 0", b"new 1"]
            assert is_proved(user)
            assert user.content.write_next < 2 * WRITES_SKIPPED, "the writes are skipped once"
            assert len(user.details()) == 1
