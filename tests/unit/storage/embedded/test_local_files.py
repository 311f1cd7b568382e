"""What a few system calls promise together: all is written, reads end at a file's end, errors say what to do."""

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from storage.embedded.local_files import Files, errors_of
from storage.object_store import (
    Buffer,
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    StoreMisconfigured,
    StoreUnavailable,
)

CONTENT = bytes(range(256)) * 4


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """Of a new file, to write and read."""
    files = Files()
    files.close(files.create(str(tmp_path / "file")))
    opened = files.open_existing(str(tmp_path / "file"), is_writing=True)
    yield opened
    files.close(opened)


class Calls:
    """System calls that carry out a part of what they are asked, as they may."""

    def __init__(self, byte_count: int) -> None:
        self.byte_count = byte_count
        self.pread, self.pwritev, self.writev = os.pread, os.pwritev, os.writev
        self.bad_position: int | None = None

    def read(self, descriptor: int, byte_count: int, position: int) -> bytes:
        if self.bad_position is not None:
            if position >= self.bad_position:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            byte_count = min(byte_count, self.bad_position - position)
        return self.pread(descriptor, min(byte_count, self.byte_count), position)

    def write_at(self, descriptor: int, parts: Sequence[Buffer], position: int) -> int:
        return self.pwritev(descriptor, [b"".join(parts)[: self.byte_count]], position)

    def write(self, descriptor: int, parts: Sequence[Buffer]) -> int:
        return self.writev(descriptor, [b"".join(parts)[: self.byte_count]])


@pytest.fixture(params=[1, 7, 300])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Calls:
    made = Calls(request.param)
    monkeypatch.setattr(os, "pread", made.read)
    monkeypatch.setattr(os, "pwritev", made.write_at)
    monkeypatch.setattr(os, "writev", made.write)
    return made


PARTS: list[Buffer] = [b"one", b"", bytearray(b"two" * 200), memoryview(b"-three-")[1:6], b""]
JOINED = b"one" + b"two" * 200 + b"three"


def test_a_write_that_is_cut_short_goes_on(tmp_path: Path, descriptor: int, calls: Calls) -> None:
    files = Files()
    files.write_at(descriptor, PARTS, 5)
    assert (tmp_path / "file").read_bytes() == bytes(5) + JOINED
    other = files.create(str(tmp_path / "other"))
    files.write(other, PARTS)
    files.close(other)
    assert (tmp_path / "other").read_bytes() == JOINED


def test_more_parts_than_one_call_takes_are_written(tmp_path: Path, descriptor: int) -> None:
    parts = [b"%05d" % number for number in range(3_000)]
    Files().write_at(descriptor, parts, 0)
    assert (tmp_path / "file").read_bytes() == b"".join(parts)


def test_nothing_is_written_of_nothing(tmp_path: Path, descriptor: int) -> None:
    Files().write_at(descriptor, [b"", b""], 3)
    Files().write_at(descriptor, [], 3)
    assert (tmp_path / "file").read_bytes() == b""


def test_a_read_that_is_cut_short_goes_on(tmp_path: Path, descriptor: int, calls: Calls) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    files = Files()
    assert files.read_at(descriptor, 500, 100) == CONTENT[100:600]
    assert files.read_at(descriptor, 500, len(CONTENT) - 20) == CONTENT[-20:]
    assert files.read_at(descriptor, 0, 0) == b""
    assert files.read_at(descriptor, 9, len(CONTENT) + 5) == b""


def test_what_cannot_be_read_is_an_error_and_no_end(tmp_path: Path, descriptor: int, calls: Calls) -> None:
    """Linux gives what precedes a bad page, and tells of the page when it is asked for alone."""
    (tmp_path / "file").write_bytes(CONTENT)
    calls.bad_position = 512
    assert Files().read_at(descriptor, 512, 0) == CONTENT[:512]
    with pytest.raises(OSError, match="Input/output"):
        Files().read_at(descriptor, 513, 0)


def test_a_directory_is_locked_once_and_free_after_that(tmp_path: Path) -> None:
    files = Files()
    first = files.lock_directory(str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BlockingIOError):
        files.lock_directory(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before
    files.close(first)
    files.close(files.lock_directory(str(tmp_path)))


def test_what_is_there_is_not_created_again(tmp_path: Path) -> None:
    files = Files()
    files.close(files.create(str(tmp_path / "file")))
    with pytest.raises(FileExistsError):
        files.create(str(tmp_path / "file"))
    files.make_directory(str(tmp_path / "folder"))
    files.make_directory(str(tmp_path / "folder"))
    files.sync_directory(str(tmp_path / "folder"))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.EEXIST, ObjectExists),
        (errno.ENOENT, StoreMisconfigured),
        (errno.ENOTDIR, StoreMisconfigured),
        (errno.EISDIR, StoreMisconfigured),
        (errno.EACCES, StoreMisconfigured),
        (errno.EROFS, StoreMisconfigured),
        (errno.ENOSPC, StoreUnavailable),
        (errno.EIO, StoreUnavailable),
        (errno.EMFILE, StoreUnavailable),
    ],
)
def test_an_error_says_what_to_do_and_for_which_key(code: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="some/key"), errors_of("some/key"):
        raise OSError(code, os.strerror(code))


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENOTDIR, errno.EISDIR])
def test_what_is_not_there_to_be_read_is_missing(code: int) -> None:
    with pytest.raises(ObjectMissing, match="some/key"), errors_of("some/key", is_read=True):
        raise OSError(code, os.strerror(code))


@pytest.mark.parametrize("code", [errno.EIO, errno.EBADMSG, errno.EUCLEAN])
def test_what_the_disk_does_not_give_back_is_damaged(code: int) -> None:
    not_given = "some/key: the disk does not give back its bytes"
    with pytest.raises(ObjectDamaged, match=not_given), errors_of("some/key", is_read=True):
        raise OSError(code, os.strerror(code))
    with pytest.raises(StoreUnavailable, match="some/key"), errors_of("some/key"):
        raise OSError(code, os.strerror(code))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE, errno.ENXIO])
def test_a_read_that_may_succeed_later_is_an_outage(code: int) -> None:
    with pytest.raises(StoreUnavailable, match="some/key"), errors_of("some/key", is_read=True):
        raise OSError(code, os.strerror(code))


def test_a_range_is_read_whole_or_fails(tmp_path: Path, calls: Calls) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    assert Files().read_range(str(tmp_path / "file"), 10, 400) == CONTENT[10:410]
    assert Files().read_range(str(tmp_path / "file"), len(CONTENT) - 5, 400) == CONTENT[-5:]
    calls.bad_position = 512
    with pytest.raises(OSError, match="Input/output"):
        Files().read_range(str(tmp_path / "file"), 500, 100)


def test_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), errors_of("some/key"):
        raise ZeroDivisionError
