"""Names and ports of the agents under one command, and what becomes of those that end."""

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent.cli.serving.processes import settings_of_processes
from agent.config.addresses import HostPort, HttpAddress
from agent.config.settings import CliCommand, InvalidSettings, Settings, load_settings
from tests.support.processes import Process

ETCD = "etcd://127.0.0.1:2379/c"


def loaded(*, processes: int = 3, ledger: str = ETCD, **values: object) -> Settings:
    given = {"ledger": ledger, "store": "memory:", "name": "n", "processes": str(processes), **values}
    return load_settings(CliCommand.AGENT, given, environment={})


class TestSettings:
    def test_each_process_has_a_name_and_ports_of_its_own(self) -> None:
        each = settings_of_processes(
            loaded(listen=["127.0.0.1:9092", "OUT://127.0.0.1:9192"], advertise=["OUT://example.org:19192"])
        )
        assert [one.name for one in each] == ["n-0", "n-1", "n-2"]
        assert [[listener.port for listener in one.listeners] for one in each] == [
            [9092, 9192],
            [9093, 9193],
            [9094, 9194],
        ]
        assert [[shown.port for shown in one.advertised] for one in each] == [
            [9092, 19192],
            [9093, 19193],
            [9094, 19194],
        ]
        assert [one.http.port for one in each] == [9644, 9645, 9646]
        assert [str(one.advertised_http) for one in each] == [f"http://127.0.0.1:{port}" for port in (9644, 9645, 9646)]
        assert {one.processes for one in each} == {1}

    def test_a_name_in_the_host_of_the_http_address_keeps_its_port(self) -> None:
        named = HttpAddress(is_https=True, address=HostPort(host="{name}.example", port=443))
        each = settings_of_processes(replace(loaded(), advertised_http=named))
        assert {str(one.advertised_http) for one in each} == {"https://{name}.example:443"}

    def test_free_ports_stay_free_ports(self) -> None:
        each = settings_of_processes(loaded(listen=["127.0.0.1:0"], http="127.0.0.1:0"))
        assert {(one.listeners[0].port, one.advertised[0].port, one.http.port) for one in each} == {(0, 0, 0)}

    def test_addresses_that_run_into_each_other_are_refused(self) -> None:
        with pytest.raises(InvalidSettings, match=r"n-0 and n-1 .*:9093; keep addresses 3 ports"):
            settings_of_processes(loaded(listen=["127.0.0.1:9092", "OUT://127.0.0.1:9093"]))

    def test_a_ledger_that_one_process_holds_is_refused(self) -> None:
        with pytest.raises(InvalidSettings, match="etcd"):
            loaded(ledger="sqlite:///tmp/ledger")
        assert loaded(ledger="sqlite:///tmp/ledger", processes=1).processes == 1


CHILDREN = """
import signal, sys, time
from agent.runtime.clock import SystemClock
from agent.cli.serving.processes import supervise
from agent.config.settings import CliCommand, load_settings

settings = load_settings(
    CliCommand.AGENT,
    {"ledger": "etcd://127.0.0.1:2379/c", "store": "memory:", "name": "n", "processes": "2"},
    environment={},
)
own = supervise(settings, SystemClock().monotonic_s)
if isinstance(own, int):
    print("over", flush=True)
    sys.exit(own)
import os
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
sys.stdout.write(f"{own.name} {os.getpid()}\\n")
sys.stdout.flush()
if sys.argv[1] == "refused" and own.name == "n-1":
    sys.exit(3)
while True:
    time.sleep(0.1)  # short: a signal right before a sleep does not end it
"""


def started(folder: Path, mode: str) -> Process:
    return Process([sys.executable, "-c", CHILDREN, mode], folder, name="parent")


def pids_of(process: Process, lines: int = 2) -> dict[str, int]:
    """Names and process ids, the newest of each name."""
    found = [process.read_line().split() for _ in range(lines)]
    return {name: int(pid) for name, pid in found}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_running(pid: int) -> bool:
    """Whether it runs: one that has ended and lost its parent may wait for somebody to collect it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class TestSupervision:
    def test_all_are_told_to_stop_and_the_parent_is_the_last(self, tmp_path: Path) -> None:
        with started(tmp_path, "serve") as process:
            pids = pids_of(process)
            assert set(pids) == {"n-0", "n-1"}
            assert process.stop() == 0
            assert process.read_line() == "over"
            assert not any(map(is_alive, pids.values()))

    def test_one_that_crashes_is_started_again_and_the_others_are_left_alone(self, tmp_path: Path) -> None:
        with started(tmp_path, "serve") as process:
            pids = pids_of(process)
            os.kill(pids["n-1"], signal.SIGKILL)
            again = pids_of(process, 1)
            assert set(again) == {"n-1"}
            assert again["n-1"] != pids["n-1"]
            assert is_alive(pids["n-0"])
            assert process.stop() == 0
            assert not any(map(is_alive, [*pids.values(), *again.values()]))

    def test_one_that_cannot_start_ends_all_with_its_status(self, tmp_path: Path) -> None:
        with started(tmp_path, "refused") as process:
            pids = pids_of(process)
            process.wait_until(process.has_line, "the end")
            assert process.read_line() == "over"
            assert process.stop() == 3
            assert not any(map(is_alive, pids.values()))

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children that their parent is gone")
    def test_children_end_with_their_parent(self, tmp_path: Path) -> None:
        with started(tmp_path, "serve") as process:
            pids = pids_of(process)
            process.kill()
            deadline_s = time.monotonic() + 30
            while any(map(is_running, pids.values())) and time.monotonic() < deadline_s:
                threading.Event().wait(0.01)
            assert not any(map(is_running, pids.values()))
