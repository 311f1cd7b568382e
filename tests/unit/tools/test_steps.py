"""Steps of the set-up are done once, whole or not at all, and say why they failed."""

import sys
from pathlib import Path

import pytest

from tools import steps


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "penstock"


def test_a_step_is_done_once(tmp_path: Path) -> None:
    built: list[Path] = []
    for _ in range(2):
        assert steps.ensure("a step", tmp_path / "place", built.append) == tmp_path / "place"
    assert len(built) == 1


def test_a_step_that_fails_leaves_nothing_in_its_place(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").touch()
        raise steps.SetupFailed("no room")

    with pytest.raises(steps.SetupFailed, match="no room"):
        steps.ensure("a step", tmp_path / "place", build)
    assert not (tmp_path / "place").exists()
    steps.ensure("a step", tmp_path / "place", lambda folder: (folder / "whole").touch())
    assert [child.name for child in (tmp_path / "place").iterdir()] == ["whole"]


def test_a_failed_command_tells_the_end_of_its_log() -> None:
    script = "import sys; print('what went wrong'); sys.exit(3)"
    with pytest.raises(steps.SetupFailed, match=r"what went wrong\n\na command failed with status 3"):
        steps.run("a command", [sys.executable, "-c", script])


def test_a_command_is_tried_as_often_as_said(tmp_path: Path) -> None:
    script = f"import pathlib, sys; f = pathlib.Path({str(tmp_path / 'n')!r}); f.exists() or sys.exit(f.touch() or 1)"
    steps.run("a command", [sys.executable, "-c", script], attempts=2)


def test_a_missing_program_is_a_failed_step(tmp_path: Path) -> None:
    with pytest.raises(steps.SetupFailed, match="cannot be started"):
        steps.run("a command", [tmp_path / "nothing"])


def test_a_child_holds_the_lock_of_the_step_that_started_it(tmp_path: Path) -> None:
    script = "import fcntl, sys; fcntl.flock(int(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with steps.locked(tmp_path / "place"):
        (number,) = steps._locks_held
        steps.run("a command", [sys.executable, "-c", script, str(number)])
    assert steps._locks_held == []


def test_a_part_beside_is_waited_for(tmp_path: Path) -> None:
    script = f"import pathlib, sys; sys.stdin.read(); pathlib.Path({str(tmp_path / 'done')!r}).touch()"
    with steps.beside("the other part", [sys.executable, "-c", script]):
        pass
    assert (tmp_path / "done").exists()


def test_a_part_beside_that_fails_fails_the_set_up() -> None:
    with (
        pytest.raises(steps.SetupFailed, match="the other part is not complete"),
        steps.beside("the other part", [sys.executable, "-c", "raise SystemExit(1)"]),
    ):
        pass


def test_a_failed_step_ends_the_part_beside_it(tmp_path: Path) -> None:
    script = f"""
import pathlib, time
from tools import steps
place = pathlib.Path({str(tmp_path / "begun")!r})
def work():
    try:
        place.touch()
        time.sleep(60)
    finally:
        place.rename(place.with_name("ended"))
steps.main(work)
"""

    def fail_once_it_runs() -> None:
        while not (tmp_path / "begun").exists():
            pass
        raise steps.SetupFailed("no room")

    with (
        pytest.raises(steps.SetupFailed, match="no room"),
        steps.beside("the other part", [sys.executable, "-c", script]),
    ):
        fail_once_it_runs()
    assert (tmp_path / "ended").exists()
