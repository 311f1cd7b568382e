"""CPU and memory of processes, read from /proc."""

import os
import subprocess
import sys

import pytest

from benchmarks.measure.process_usage import cpu_seconds, family, main_thread_cpu_seconds, memory_mib

NO_PROCESS = 2**22 + 1
"""Above the largest process id that Linux gives."""


BUSY_PROGRAM = """
import time
while time.process_time() < 0.3:
    pass
print(time.process_time(), flush=True)
input()
"""
"""Takes some CPU, tells how much by its own clock, and waits."""


def test_cpu_seconds_are_those_of_the_clock_of_processes() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY_PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as busy:
        assert busy.stdout is not None
        own_clock_s = float(busy.stdout.readline())
        counted_s = cpu_seconds(busy.pid)
        assert main_thread_cpu_seconds(busy.pid) == pytest.approx(counted_s, abs=0.05)
        busy.communicate("\n")
    assert own_clock_s <= 2 * counted_s
    assert counted_s <= 2 * own_clock_s


BUSY_CHILD_PROGRAM = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]], input="\\n", text=True, check=True, stdout=subprocess.DEVNULL)
print("ended", flush=True)
input()
"""


def test_a_child_that_has_ended_counts() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY_CHILD_PROGRAM, BUSY_PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ended\n"
        assert cpu_seconds(parent.pid) >= 0.28
        assert main_thread_cpu_seconds(parent.pid) < 0.28
        parent.communicate("\n")


def test_the_peak_of_memory_is_not_below_what_is_resident() -> None:
    assert 0 < memory_mib(os.getpid()) <= memory_mib(os.getpid(), "VmHWM") + 1


def test_a_process_that_is_gone_counts_as_nothing() -> None:
    assert list(family(NO_PROCESS)) == [NO_PROCESS]
    assert (cpu_seconds(NO_PROCESS), memory_mib(NO_PROCESS)) == (0, 0)
