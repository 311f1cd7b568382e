"""A client's process, stood in for by small programs: it answers, is silent, dies, is killed."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.jepsen.workload.worker import WorkerProcess

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
SILENT = "import sys\nfor line in sys.stdin: pass"
DYING = "import sys\nsys.stdin.readline()\nprint('no', file=sys.stderr)\nsys.exit(3)"

Start = Callable[[str], WorkerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[WorkerProcess] = []

    def begin(program: str) -> WorkerProcess:
        started.append(WorkerProcess([sys.executable, "-c", program], tmp_path / "log", {}))
        return started[-1]

    yield begin
    for worker in started:
        worker.kill()


def test_a_call_has_its_answer_however_long_it_is(start: Start) -> None:
    worker = start(ECHO)
    for call in ({"f": "poll"}, {"f": "x" * 300_000}):
        assert worker.ask(call, seconds_max=20) == call


def test_a_call_without_an_answer_in_time_has_none_and_the_process_lives_until_it_is_killed(start: Start) -> None:
    worker = start(SILENT)
    assert worker.ask({"f": "poll"}, seconds_max=0.05) is None
    assert worker.is_running
    worker.kill()
    assert not worker.is_running


def test_a_process_that_dies_does_not_answer_and_left_its_words_in_the_log(start: Start, tmp_path: Path) -> None:
    worker = start(DYING)
    assert worker.ask({"f": "poll"}, seconds_max=20) is None
    worker.kill()
    assert (tmp_path / "log").read_text() == "no\n"
