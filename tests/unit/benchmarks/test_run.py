"""What a failed row says."""

import subprocess

from benchmarks.run import failure_text
from tests.support.processes import ProcessFailed


def test_a_failure_is_one_line_without_paths_of_the_machine() -> None:
    error = ProcessFailed("kafka: ended with status 1; process 7:\nno such file: /srv/data/libs/kafka.jar\n\n")
    assert failure_text(error) == ("ProcessFailed: kafka: ended with status 1; process 7: no such file: PATH")


def test_a_tool_that_failed_is_quoted() -> None:
    error = subprocess.CalledProcessError(1, ["/opt/java/bin/java"], output="TimeoutException: Topic t not present")
    text = failure_text(error)
    assert text.startswith("CalledProcessError: ")
    assert text.endswith("TimeoutException: Topic t not present")
    assert "/opt" not in text


def test_what_a_tool_printed_before_its_time_was_over_is_quoted_too() -> None:
    error = subprocess.TimeoutExpired(["java"], 5, output=b"100 records sent\xff")
    assert failure_text(error).endswith("100 records sent�")


def test_a_failure_is_short() -> None:
    assert len(failure_text(OSError("x" * 10_000))) < 450
