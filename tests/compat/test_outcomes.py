"""What is wrong with a run: what fails and is not listed, and what is listed and passes."""

from pathlib import Path

import pytest

from tests.compat.outcomes import Outcome, State, judge, read_known, read_recorded, write_recorded
from tests.compat.suites import KAFKA, Suite

PASSED = Outcome(name="a", state=State.PASSED, seconds=0.25)
FAILED = Outcome(name="b", state=State.FAILED, seconds=1, note="\x1b[31mtoo\n late")
SKIPPED = Outcome(name="c", state=State.SKIPPED)


def test_a_run_without_known_failures_passes_when_nothing_failed() -> None:
    assert judge([PASSED, SKIPPED], {}).is_passed


def test_a_run_in_which_nothing_passed_is_not_passed() -> None:
    assert not judge([SKIPPED], {}).is_passed
    assert not judge([], {}).is_passed


def test_a_failure_that_is_not_listed_is_wrong() -> None:
    verdict = judge([PASSED, FAILED], {})
    assert not verdict.is_passed
    assert verdict.unexpected == ["b"]
    assert list(verdict.lines())[-1] == "1 passed, 1 failed, 0 skipped"


def test_a_listed_failure_is_right() -> None:
    assert judge([PASSED, FAILED], {"b": "why"}).is_passed


def test_a_listed_failure_that_passes_is_wrong() -> None:
    verdict = judge([PASSED], {"a": "why"})
    assert not verdict.is_passed
    assert verdict.now_passes == ["a"]
    assert next(verdict.lines()).startswith("NOW-PASSES a")


def test_a_test_that_was_run_twice_counts_as_it_came_out_last() -> None:
    again = Outcome(name="b", state=State.PASSED)
    verdict = judge([PASSED, FAILED, again], {})
    assert verdict.is_passed
    assert list(verdict.outcomes) == [PASSED, again]


def test_an_outcome_is_one_line_without_colours() -> None:
    assert str(FAILED) == "FAIL b 1.0 too late"
    assert str(PASSED) == "PASS a 0.2"


def test_known_failures_are_read_for_a_number_of_agents(tmp_path: Path) -> None:
    file = tmp_path / "known_failures.txt"
    file.write_text("# why they fail\n\n* a the first reason\n3 b another\n1 c a third\n")
    assert read_known(file, 1) == {"a": "the first reason", "c": "a third"}
    assert read_known(file, 3) == {"a": "the first reason", "b": "another"}


@pytest.mark.parametrize("line", ["* a", "a because", "2 a because"])
def test_a_known_failure_needs_its_agents_and_a_reason(tmp_path: Path, line: str) -> None:
    file = tmp_path / "known_failures.txt"
    file.write_text(line)
    with pytest.raises(ValueError, match="a reason"):
        read_known(file, 1)


def test_a_known_failure_is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "known_failures.txt"
    file.write_text("* a because\n1 a of course\n")
    with pytest.raises(ValueError, match="twice"):
        read_known(file, 1)


def test_what_was_recorded_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "one-agent.txt"
    states = {"b": State.FAILED, "c": State.SKIPPED, "a": State.PASSED}
    write_recorded(states, file)
    assert file.read_text() == "PASS a\nFAIL b\nSKIP c\n"
    assert read_recorded(file) == states


def test_a_run_of_some_tests_leaves_the_others_as_they_were_recorded(tmp_path: Path) -> None:
    suite = Suite(name="s", title="A suite", version="1", folder=tmp_path, parts=())
    assert suite.recorded(KAFKA) == {}
    suite.record(KAFKA, [PASSED, FAILED], is_whole=True)
    suite.record(KAFKA, [SKIPPED, Outcome(name="b", state=State.PASSED)], is_whole=False)
    assert suite.recorded(KAFKA) == {"a": State.PASSED, "b": State.PASSED, "c": State.SKIPPED}
    suite.record(KAFKA, [PASSED], is_whole=True)
    assert suite.recorded(KAFKA) == {"a": State.PASSED}
