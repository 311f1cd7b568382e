"""CPU and memory of this very process, read from /proc."""

import os
import time

from benchmarks.process_usage import cpu_seconds, family, memory_mib

NO_PROCESS = 2**22 + 1
"""Above the largest process id that Linux gives."""


def test_cpu_seconds_are_those_of_the_clock_of_processes() -> None:
    assert abs(cpu_seconds(os.getpid()) - time.process_time()) < 5


def test_the_peak_of_memory_is_not_below_what_is_resident() -> None:
    assert 0 < memory_mib(os.getpid()) <= memory_mib(os.getpid(), "VmHWM") + 1


def test_a_process_that_is_gone_counts_as_nothing() -> None:
    assert list(family(NO_PROCESS)) == [NO_PROCESS]
    assert (cpu_seconds(NO_PROCESS), memory_mib(NO_PROCESS)) == (0, 0)
