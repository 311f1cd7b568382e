"""Tables for pipes, figures for people."""

import pytest

from agent.cli.output import bytes_text, cell_text, print_pairs, print_table


def test_a_pipe_gets_one_aligned_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "a", "records": 5, "bytes": 2048}, {"name": "long name", "records": 123, "bytes": 1}]
    print_table(rows, ("name", "records", "bytes"), empty="none")
    assert capsys.readouterr().out.splitlines() == [
        "name       records    bytes",
        "a                5  2.0 KiB",
        "long name      123      1 B",
    ]


def test_nothing_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([], ("name",), empty="There are no topics yet.")
    assert capsys.readouterr().out == "There are no topics yet.\n"


def test_pairs_leave_tables_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_pairs({"cluster_id": "c", "sessions": [{"name": "a"}], "configs": {}})
    assert capsys.readouterr().out == "cluster id  c\nconfigs     -\n"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 20, "3.0 MiB"), (5 << 30, "5.0 GiB")]
)
def test_bytes_are_shown_in_units(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_values_are_shown_as_people_read_them() -> None:
    assert [cell_text("x", value) for value in (None, True, False, 3, [], ["a", 1], {"k": "v"})] == [
        "-",
        "yes",
        "no",
        "3",
        "-",
        "a, 1",
        "k=v",
    ]
