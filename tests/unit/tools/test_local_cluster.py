"""`make cluster` ends what it started by whatever ends it, but for what nohup keeps from it."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal
from tools.local_cluster import stop_by_signals
signal.signal(signal.SIGHUP, signal.{before})
stop_by_signals()
try:
    signal.raise_signal(signal.{number})
    print("goes on")
except KeyboardInterrupt:
    print("stops")
"""


@pytest.mark.parametrize(
    ("number", "before", "told"),
    [
        (signal.SIGINT, signal.SIG_DFL, "stops"),
        (signal.SIGTERM, signal.SIG_DFL, "stops"),
        (signal.SIGHUP, signal.SIG_DFL, "stops"),
        (signal.SIGHUP, signal.SIG_IGN, "goes on"),
    ],
)
def test_a_signal_stops_the_cluster(number: signal.Signals, before: signal.Handlers, told: str) -> None:
    program = PROGRAM.format(before=before.name, number=number.name)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == told
