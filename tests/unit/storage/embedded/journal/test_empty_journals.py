"""A folder of a journal in which there is none, whatever the names of its files say."""

import errno
import os
from pathlib import Path

import pytest

from storage.embedded.journal.format import RECORDS_FIRST
from storage.embedded.journal.open_journal import is_empty
from storage.embedded.local_files import Files
from tests.support.journal.journal_bytes import a_write, an_end, an_entry, header

NAME = f"{3 << 32:016x}.journal"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "journal"
    folder.mkdir()
    return folder


def test_without_a_folder_or_in_a_folder_without_a_file_there_is_none(folder: Path) -> None:
    assert is_empty(folder / "missing")
    (folder / "notes").write_bytes(b"x")
    assert is_empty(folder)
    assert is_empty(folder / "notes"), "the adapter says that it is no folder"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(RECORDS_FIRST),
        header(),
        header() + bytes(10_000),
        header() + a_write(0, an_entry(b"old"), nonce=b"o" * 16),
    ],
    ids=["no byte", "zeros", "a header", "blocks", "an earlier use of it"],
)
def test_a_file_that_was_never_written_is_none(folder: Path, content: bytes) -> None:
    (folder / NAME).write_bytes(content)
    assert is_empty(folder)


@pytest.mark.parametrize(
    "content",
    [
        header() + a_write(0, an_entry(b"1")),
        header() + an_end(0),
        header() + bytes(80) + a_write(0, an_entry(b"1")),
        bytes(100) + b"x",
        bytes(RECORDS_FIRST + 1),
    ],
    ids=["a record", "an end", "a record behind damage", "a damaged header", "a lost header"],
)
def test_a_file_with_anything_of_a_record_is_one(folder: Path, content: bytes) -> None:
    (folder / f"{2 << 32:016x}.journal").write_bytes(b"")
    (folder / NAME).write_bytes(content)
    assert not is_empty(folder)


def test_what_is_no_file_may_have_been_one(folder: Path) -> None:
    (folder / NAME).symlink_to("gone")
    assert not is_empty(folder)


def test_what_cannot_be_read_may_be_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / NAME).write_bytes(header())

    def fail(_: Files, __: str, code: int) -> int:
        raise OSError(code, os.strerror(code))

    for code in (errno.EACCES, errno.ENOENT):
        monkeypatch.setattr(Files, "open_existing", lambda files, path, code=code: fail(files, path, code))
        assert not is_empty(folder)
