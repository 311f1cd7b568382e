"""A journal that was written without syncs, and then with them: what is lost of the synced part is noticed."""

from pathlib import Path

import pytest

from storage.embedded.journal.format import RECORDS_FIRST
from storage.embedded.journal.opening import EVERY_WRITE
from storage.embedded.journal.scan import NO_WRITE
from tests.support.journal.journal_bytes import a_write, an_end, an_entry, header
from tests.support.journal.journal_files import zero
from tests.support.journal.opened_journals import opened_journal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "journal"
    folder.mkdir()
    return folder


def lose(path: Path, *, is_header_left: bool) -> None:
    if is_header_left:
        zero(path, RECORDS_FIRST, path.stat().st_size)
    else:
        path.unlink()


@pytest.mark.parametrize("is_header_left", [True, False], ids=["its header is left", "nothing is left"])
def test_the_newest_file_that_was_synced_is_missed(folder: Path, is_header_left: bool) -> None:
    with opened_journal(folder, is_durable=False) as user:
        user.append("0", entry=b"0")
    with opened_journal(folder, nonce_first=10) as user:
        user.append("1", entry=b"1")
        newest = user.last_file()
    lose(newest, is_header_left=is_header_left)
    with opened_journal(folder, nonce_first=20) as user:
        assert user.content.damaged_write == EVERY_WRITE
        assert user.content.has_gaps
        assert [(damage.file, damage.is_certain) for damage in user.damages] == [(str(newest), True)]


@pytest.mark.parametrize("is_header_left", [True, False], ids=["its header is left", "nothing is left"])
def test_one_that_was_not_is_named_as_what_a_crash_has_lost(folder: Path, is_header_left: bool) -> None:
    with opened_journal(folder, is_durable=False) as user:
        user.append("0", entry=b"0")
    with opened_journal(folder, nonce_first=10, is_durable=False) as user:
        user.append("1", entry=b"1")
        newest = user.last_file()
    lose(newest, is_header_left=is_header_left)
    with opened_journal(folder, nonce_first=20) as user:
        assert (user.entries(), user.content.damaged_write) == ([b"0"], NO_WRITE)
        assert [(damage.file, damage.is_certain) for damage in user.damages] == [(str(newest), False)]


class TestEndsOfOlderPrograms:
    """They do not say whether the file behind was synced."""

    @pytest.mark.parametrize("is_first_synced", [True, False])
    @pytest.mark.parametrize("is_second_synced", [True, False])
    @pytest.mark.parametrize("is_header_left", [True, False])
    def test_the_headers_do(
        self, folder: Path, is_first_synced: bool, is_second_synced: bool, is_header_left: bool
    ) -> None:
        end = an_end(1, successor=2 << 32, is_synced=False)
        first = header(number=1 << 32, is_synced=is_first_synced) + a_write(0, an_entry(b"0")) + end
        (folder / f"{1 << 32:016x}.journal").write_bytes(first)
        if is_header_left:
            second = header(1, number=2 << 32, nonce=b"2" * 16, is_synced=is_second_synced)
            (folder / f"{2 << 32:016x}.journal").write_bytes(second)
        is_missed = is_first_synced or (is_header_left and is_second_synced)
        with opened_journal(folder) as user:
            assert user.entries() == [b"0"]
            assert (user.content.damaged_write == EVERY_WRITE) is is_missed
