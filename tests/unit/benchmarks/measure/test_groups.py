"""What is made of the lines that members of many groups tell, and of what their broker took."""

import pytest

from benchmarks.measure.groups import Phase, Taken, read_phase, taken_figures
from benchmarks.peers.tool_output import UnreadableOutput


def test_a_phase_begins_without_figures_and_ends_with_them() -> None:
    assert read_phase('{"phase": "idle", "event": "begun"}') == Phase(name="idle", is_over=False, figures={})
    ended = read_phase('{"phase": "idle", "event": "ended", "figures": {"heartbeats_per_s": 33}}')
    assert ended == Phase(name="idle", is_over=True, figures={"heartbeats_per_s": 33.0})


@pytest.mark.parametrize(
    "line", ["", "Traceback", "[]", '{"phase": "idle"}', '{"phase": "idle", "event": 1, "figures": 2}']
)
def test_another_line_is_no_result(line: str) -> None:
    with pytest.raises(UnreadableOutput):
        read_phase(line)


def test_entries_are_counted_where_somebody_does() -> None:
    before, after = Taken(cpu_s=1.0, entries=100.0), Taken(cpu_s=3.0, entries=150.0)
    assert taken_figures("commit", before, after, 10.0) == {"commit_cpu_percent": 20.0, "commit_entries_per_s": 5.0}
    before, after = Taken(cpu_s=1.0, entries=None), Taken(cpu_s=3.0, entries=None)
    assert taken_figures("idle", before, after, 10.0) == {"idle_cpu_percent": 20.0}
