"""Results are written, read again, and printed again."""

import json
import platform
import socket
from pathlib import Path

import pytest

from benchmarks.__main__ import FULL, cases_to_measure, in_order, rows_to_keep
from benchmarks.cases import Case, Kind, PeerName, cases
from benchmarks.report import result_file
from benchmarks.report.result_file import UnreadableResult, read, source, write
from benchmarks.report.results import RowResult
from benchmarks.report.table import render

FIRST, SECOND, THIRD = list(cases())[:3]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of these tests lie in a folder of their own."""
    monkeypatch.setattr(result_file, "RESULTS", tmp_path)
    return tmp_path


def found(case: Case, *, failure: str = "") -> RowResult:
    rounds = {PeerName.KAFKA: [{"mb_per_s": 40.0}, {"mb_per_s": 60.0}], PeerName.EMBEDDED: [{"mb_per_s": 25.0}]}
    return RowResult(case=case, rounds=rounds, failure=failure)


def save(rows: list[RowResult]) -> None:
    write("run", rows, FULL, 3, (0.1, 0.2, 0.3))


def test_rows_are_read_as_they_were_written_and_print_the_same_table(folder: Path) -> None:
    rows = [found(FIRST), found(SECOND, failure="OSError: no"), RowResult(case=THIRD)]
    save(rows)
    assert read("run") == rows
    assert render(read("run")) == render(rows)
    assert [path.name for path in folder.iterdir()] == ["run.json"]


def test_a_result_describes_the_machine_without_its_name_or_paths(folder: Path) -> None:
    save([found(FIRST)])
    text = (folder / "run.json").read_text()
    machine = json.loads(text)["machine"]
    assert machine["cores"] >= 1
    assert not {"node", "host", "name"} & machine.keys()
    assert not any(name in machine.values() for name in (socket.gethostname(), platform.node()))
    assert str(Path.cwd()) not in text
    assert str(folder) not in text


def test_the_source_of_a_result_is_named_in_a_line(folder: Path) -> None:
    save([found(FIRST)])
    line = source("run")
    assert line.startswith("run, 20")
    assert " and Apache Kafka 4.3.1 on " in line
    assert line.endswith(" cores, medians of 3 rounds")
    save([RowResult(case=FIRST, rounds={PeerName.CLUSTER: [{"mb_per_s": 1.0}]})])
    assert "Kafka" not in source("run")


def test_a_row_that_is_not_measured_any_more_is_left_out(folder: Path) -> None:
    save([found(FIRST)])
    path = folder / "run.json"
    path.write_text(path.read_text().replace(FIRST.plain_name, "produce 1 B p1 none"))
    assert read("run") == []


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"rows": [{}]}', '{"rows": [{"name": "x", "rounds'])
def test_what_is_no_result_is_refused(folder: Path, text: str | None) -> None:
    if text is not None:
        (folder / "run.json").write_text(text)
    for use in (read, source):
        with pytest.raises(UnreadableResult, match="'run'"):
            use("run")


def test_a_resumed_run_measures_what_is_missing() -> None:
    assert cases_to_measure([FIRST, SECOND, THIRD], [found(SECOND)]) == [FIRST, THIRD]


def test_a_row_that_failed_is_kept_until_it_is_measured_again() -> None:
    rows = [found(FIRST), found(SECOND, failure="OSError: no"), found(THIRD, failure="OSError: no")]
    assert rows_to_keep(rows, [FIRST, SECOND]) == [rows[0], rows[2]]


def test_rows_stand_in_the_order_of_the_table() -> None:
    idle = next(case for case in cases() if case.kind is Kind.IDLE)
    rows = [found(idle), found(THIRD), found(FIRST)]
    assert [row.case for row in in_order(rows)] == [FIRST, THIRD, idle]
