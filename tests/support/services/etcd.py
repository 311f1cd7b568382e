"""A real etcd for tests: one member or several, each killed and started again as a test wants.

Rule: members listen on free loopback ports and keep their data in a temporary folder; `make setup-test` provides the
program.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.support.ports import free_port
from tests.support.processes import Process, provided, stand_still
from tools import go_servers, pins


class EtcdMember:
    """One etcd process, and what it is started with."""

    def __init__(self, folder: Path, name: str, options: Sequence[str], version: str) -> None:
        self.name = name
        self._version = version
        self.client_port, self.peer_port, self._health_port = free_port(), free_port(), free_port()
        self._scheme = "https" if "--cert-file" in options else "http"
        self._folder = folder
        self._options = options
        self._process: Process | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "start it first"
        return self._process.pid

    @property
    def peer(self) -> str:
        return f"{self.name}=http://127.0.0.1:{self.peer_port}"

    def start(self, cluster: Sequence["EtcdMember"]) -> None:
        """Start, or start again with the data that is there; `wait` returns once it answers."""
        client, peer = f"{self._scheme}://{self.endpoint}", f"http://127.0.0.1:{self.peer_port}"
        command = [
            str(provided(go_servers.etcd_program(self._version))),
            *("--name", self.name, "--data-dir", str(self.data), "--log-level", "error"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--listen-metrics-urls", f"http://127.0.0.1:{self._health_port}"),
            *("--initial-cluster", ",".join(member.peer for member in cluster)),
            *self._options,
        ]
        self._process = Process(command, self._folder, name=self.name)

    def wait(self) -> None:
        assert self._process is not None, "start it first"
        self._process.wait_until(self._answers, f"etcd {self.name}")

    def wait_until(self, is_met: Callable[[], bool], what: str) -> None:
        """While it runs."""
        assert self._process is not None, "start it first"
        self._process.wait_until(is_met, what)

    def kill(self) -> None:
        """End it as a crash would."""
        assert self._process is not None, "start it first"
        self._process.kill()

    def stop(self) -> None:
        """Let it stand still, with its connections open, until `go_on`."""
        assert self._process is not None, "start it first"
        stand_still(self._process.pid)

    def go_on(self) -> None:
        assert self._process is not None, "start it first"
        os.kill(self._process.pid, signal.SIGCONT)

    @property
    def data(self) -> Path:
        """The folder that holds all it knows; only a member that is not running may find another one there."""
        return self._folder / self.name

    def _answers(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self._health_port}/health", timeout=1) as answer:
                return b"true" in answer.read()
        except (URLError, OSError):
            return False


class Etcd:
    """A cluster of etcd members."""

    def __init__(
        self, folder: Path, *, members_count: int = 1, options: Sequence[str] = (), version: str = pins.ETCD
    ) -> None:
        self.members = [EtcdMember(folder, f"member{row}", options, version) for row in range(members_count)]

    @property
    def endpoints(self) -> list[str]:
        return [member.endpoint for member in self.members]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for member in self.members:
                member.start(self.members)
                stack.callback(member.kill)
            for member in self.members:
                member.wait()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd of one member, for all tests of this run: each uses a cluster name of its own."""
    with Etcd(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest.fixture(scope="session")
def etcd_oldest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """The same, of the oldest version that is supported."""
    with Etcd(tmp_path_factory.mktemp("etcd-oldest"), version=pins.ETCD_OLDEST) as running:
        yield running
