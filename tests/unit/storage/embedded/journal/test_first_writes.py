"""Damage in the only write of the newest file: the end of the file before says that it was synced (safety rule S20)."""

from pathlib import Path

import pytest

from storage.embedded.journal.format import RECORDS_FIRST
from storage.object_store import ObjectDamaged
from tests.support.journal.journal_bytes import flipped
from tests.support.journal.journal_files import contents_of, restore, zero
from tests.support.journal.opened_journals import FILE_BYTES, opened_journal

LARGE = b"l" * FILE_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def write(folder: Path) -> tuple[Path, int]:
    """A full file, and one with a single write; returns that one, as a kill leaves it, and where its write ends."""
    with opened_journal(folder) as user:
        user.append("0", payload=LARGE, entry=b"0")
        end = user.append("1", entry=b"one", state=b"s").entries[0].end
        killed = contents_of(folder)
        newest = user.last_file()
    restore(folder, killed)
    return newest, end


def test_no_wrong_bit_makes_it_a_torn_write(folder: Path) -> None:
    newest, end = write(folder)
    whole = contents_of(folder)
    content = whole[newest.name]
    found = set[bool]()
    for byte in range(RECORDS_FIRST, end, 3):
        newest.write_bytes(flipped(content, byte * 8 + byte % 8))
        with opened_journal(folder, nonce_first=100) as user:
            assert user.details(is_certain=False) == []
            try:
                is_right = user.entries() == [b"0", b"one"] and user.objects().keys() == {"0", "1"}
            except ObjectDamaged:
                is_right = False
            is_noticed = bool(user.details()) or len(user.content.entries) == 2
            assert is_right or is_noticed, byte
            is_proved = user.content.entries[-1].write >= user.content.damaged_write
            assert is_proved is (len(user.content.entries) == 2), byte
            found.add(is_right)
        restore(folder, whole)
    assert found == {True, False}


@pytest.mark.parametrize("first", [0, 64 + 1])
def test_zeros_in_it_are_damage_and_stay(folder: Path, first: int) -> None:
    newest, end = write(folder)
    zero(newest, RECORDS_FIRST + first, end)
    content = newest.read_bytes()
    for start in range(2):
        with opened_journal(folder, nonce_first=100 + start, released_write=1 << 60) as user:
            assert user.entries() == [b"0"]
            assert user.content.damaged_write > 0, "no ledger opens"
            assert user.details()
            user.journal.take_back_unneeded()
        assert newest.read_bytes() == content


def test_without_the_end_that_says_so_it_is_torn(folder: Path) -> None:
    newest, end = write(folder)
    older = min(folder.iterdir())
    zero(older, older.stat().st_size - 64, older.stat().st_size)
    zero(newest, end - 8, end)
    with opened_journal(folder, nonce_first=100) as user:
        assert user.entries() == [b"0"]
        assert (user.details(), len(user.details(is_certain=False))) == ([], 1)
