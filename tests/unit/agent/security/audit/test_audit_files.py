"""The audit log's file: appended whole lines, opened again when it was moved."""

import errno
import os
from pathlib import Path

import pytest

from agent.security.audit.audit_events import AuditRecord
from agent.security.audit.audit_files import BoundedFilesSink, FileSink, StderrSink, file_sink
from agent.security.audit.audit_log import AuditSinkFailed
from protocol.limits import AUDIT_LOG_FILES_KEPT
from protocol.types import Milliseconds


def records(*lines: str) -> list[AuditRecord]:
    return [AuditRecord(time_ms=Milliseconds(1), line=line.encode()) for line in lines]


def texts_of(folder: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in folder.iterdir()}


async def test_records_are_lines_of_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    sink = FileSink(path)
    await sink.write(records("a", "b"))
    await sink.write(records("c"))
    assert path.read_text() == "a\nb\nc\n"
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_file_that_was_there_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("before\n")
    await FileSink(path).write(records("a"))
    assert path.read_text() == "before\na\n"


async def test_a_renamed_file_is_left_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    sink = FileSink(path)
    await sink.write(records("a"))
    path.rename(tmp_path / "audit.log.1")
    await sink.write(records("b"))
    assert (tmp_path / "audit.log.1").read_text() == "a\n"
    assert path.read_text() == "b\n"


async def test_a_replaced_file_is_written_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    sink = FileSink(path)
    await sink.write(records("a"))
    (tmp_path / "new").write_text("")
    (tmp_path / "new").rename(path)
    await sink.write(records("b"))
    assert path.read_text() == "b\n"


async def test_a_truncated_file_is_written_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    sink = FileSink(path)
    await sink.write(records("a"))
    os.truncate(path, 0)
    await sink.write(records("b"))
    assert path.read_text() == "b\n"


async def test_a_bounded_file_is_renamed_and_the_oldest_deleted(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    sink = FileSink(path, bytes_max=4)
    for number in range(7):
        await sink.write(records(f"a{number}", "b"))
    found = texts_of(tmp_path)
    numbered = {f"audit.log.{age}": f"a{6 - age}\nb\n" for age in range(1, AUDIT_LOG_FILES_KEPT + 1)}
    assert found == {"audit.log": "a6\nb\n", **numbered}
    await FileSink(path, bytes_max=4).write(records("later"))
    assert path.read_text() == "later\n"
    assert (tmp_path / "audit.log.1").read_text() == "a6\nb\n"


async def test_two_agents_that_bound_one_file_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    first, second = FileSink(path, bytes_max=12), FileSink(path, bytes_max=12)
    for number in range(4):
        await first.write(records(f"first {number}"))
        await second.write(records(f"second {number}"))
    lines = sorted(line for text in texts_of(tmp_path).values() for line in text.splitlines())
    assert lines == [f"{name} {number}" for name in ("first", "second") for number in range(4)]


async def test_a_missing_folder_is_an_error_until_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "away" / "audit.log"
    sink = FileSink(path)
    with pytest.raises(AuditSinkFailed, match="No such file or directory"):
        await sink.write(records("a"))
    path.parent.mkdir()
    await sink.write(records("a"))
    assert path.read_text() == "a\n"


@pytest.mark.parametrize(
    ("bytes_free", "expected"),
    [
        (0, "first\nsecond\nthird\n"),
        (3, "fir\nfirst\nsecond\nthird\n"),
        (6, "first\nsecond\nthird\n"),
        (8, "first\nse\nsecond\nthird\n"),
    ],
)
async def test_after_a_full_disk_every_line_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_free: int, expected: str
) -> None:
    path = tmp_path / "audit.log"
    sink, lines = FileSink(path), records("first", "second", "third")
    write, free = os.write, bytes_free

    def on_full_disk(descriptor: int, data: memoryview) -> int:
        nonlocal free
        if not free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken, free = data[:free], 0
        return write(descriptor, taken)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", on_full_disk)
        with pytest.raises(AuditSinkFailed, match="No space left on device"):
            await sink.write(lines)
        free = 0
        with pytest.raises(AuditSinkFailed, match=str(path)):
            await sink.write(lines)
    await sink.write(lines)
    assert path.read_text() == expected
    await sink.write(records("fourth"))
    assert path.read_text() == expected + "fourth\n"


async def test_stderr_gets_the_lines(capfd: pytest.CaptureFixture[str]) -> None:
    await StderrSink().write(records("a", "b"))
    assert capfd.readouterr().err == "a\nb\n"


def change(line: str) -> AuditRecord:
    return AuditRecord(time_ms=Milliseconds(1), line=line.encode(), is_change=True)


async def test_no_number_of_denials_makes_a_change_of_a_bounded_file_go(tmp_path: Path) -> None:
    sink = file_sink(tmp_path / "audit.log", 100)
    await sink.write([change("created")])
    for number in range(20 * (AUDIT_LOG_FILES_KEPT + 1)):
        await sink.write(records(f"denial {number:020}"))
    texts = texts_of(tmp_path)
    assert texts.pop("audit-changes.log") == "created\n"
    assert len(texts) == AUDIT_LOG_FILES_KEPT + 1
    assert "created" not in "".join(texts.values())
    assert (tmp_path / "audit-changes.log").stat().st_mode & 0o777 == 0o600


async def test_a_file_without_a_bound_has_changes_too(tmp_path: Path) -> None:
    await file_sink(tmp_path / "audit.log", None).write([change("created"), *records("denied")])
    assert texts_of(tmp_path) == {"audit.log": "created\ndenied\n"}


async def test_changes_are_written_once_where_the_other_file_fails(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.mkdir()
    sink, batch = BoundedFilesSink(path, bytes_max=1000), [change("created"), *records("denied")]
    with pytest.raises(AuditSinkFailed):
        await sink.write(batch)
    path.rmdir()
    await sink.write(batch)
    await sink.write([change("deleted")])
    assert texts_of(tmp_path) == {"audit.log": "denied\n", "audit-changes.log": "created\ndeleted\n"}
