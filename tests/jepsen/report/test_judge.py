"""The command that judges a file: its status, what it prints, and the page that it writes."""

from pathlib import Path

import pytest

from tests.jepsen.checks.history_fixtures import Made, read, sent
from tests.jepsen.checks.simulated_log import SimulatedLog
from tests.jepsen.history.history import History
from tests.jepsen.report.judge import main


def file_of(history: History, folder: Path) -> str:
    path = folder / "history.jsonl"
    path.write_text("".join(f"{op.to_json()}\n" for op in history.ops), encoding="utf-8")
    return str(path)


def test_a_valid_history_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file_of(SimulatedLog(7).run(400), tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("valid\nallowed int-send-skip: ")


def test_interleaved_writes_are_wrong_with_commit_placement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file_of(SimulatedLog(7).run(400), tmp_path), "--commit-placement"]) == 1
    assert "\nERROR G0: " in capsys.readouterr().out


def test_interleaved_writes_need_not_be_looked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file_of(SimulatedLog(7).run(400), tmp_path), "--no-ww-deps"]) == 0
    assert "G0" not in capsys.readouterr().out


def test_a_skip_is_an_error_unless_consumers_subscribed(tmp_path: Path) -> None:
    made = Made().did(0, sent(1, 0)).did(0, sent(2, 1)).did(0, sent(3, 2)).did(2, read((1, 2)))
    path = file_of(made.did(1, read((0, 1))).did(1, read((2, 3))).history(), tmp_path)
    assert main([path]) == 1
    assert main([path, "--subscribed"]) == 0


def test_the_report_is_written_where_it_should_be(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    path = file_of(Made().did(0, sent(1, 0)).history(), tmp_path)
    assert main([path, "--report", str(report)]) == 1
    assert f"History {tmp_path.name}/history.jsonl: not valid" in report.read_text(encoding="utf-8")


def test_what_is_no_history_is_reported_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("{}\n")
    assert main([str(path)]) == 2
    assert "history.jsonl:1: type: one of invoke" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none")]) == 2
    assert "no history: " in capsys.readouterr().err
