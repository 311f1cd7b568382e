"""Starts the proxy's process and tells it what is wrong with a link. Blocking; one user at a time."""

import json
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from tests.support.processes import Process
from tests.torture.link import LinkFault
from tests.torture.store_link import StoreFault
from tools.steps import ROOT

ANSWER_SECONDS_MAX = 20.0


class ProxyControl:
    """Use it in a `with` block: the proxy ends with it."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        command: list[str | Path] = [sys.executable, "-m", "tests.torture.proxy", str(self._seed)]
        proxy = Process(command, self._folder, name="proxy", env={"PYTHONPATH": str(ROOT)})
        self.process = self._stack.enter_context(proxy)
        port = int(self.process.read_line().removeprefix("ready "))
        self._connection = self._stack.enter_context(socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX))
        self._lines = self._stack.enter_context(self._connection.makefile("rwb"))
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def hang_up(self) -> None:
        """End the control connection, and with it the proxy."""
        self._connection.shutdown(socket.SHUT_RDWR)

    def open(self, name: str, upstream: int, *, is_store: bool = False) -> int:
        """A new link to a loopback port; returns the port that it listens on."""
        port: int = self._ask({"do": "open", "link": name, "upstream": upstream, "is_store": is_store})["port"]
        return port

    def set(self, name: str, fault: LinkFault | None) -> None:
        """Begin a fault of a link, or end the one that is there."""
        self._ask({"do": "set", "link": name, "fault": None if fault is None else asdict(fault)})

    def set_store(self, name: str, faults: Mapping[StoreFault, float]) -> None:
        """Faults of a store's link with their probabilities; none ends them."""
        self._ask({"do": "set", "link": name, "fault": {fault.value: part for fault, part in faults.items()}})

    def counts(self) -> dict[str, dict[str, int]]:
        """How often each fault struck, by store link."""
        return self._ask({"do": "counts"})

    def _ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        self._lines.write(json.dumps(command).encode() + b"\n")
        self._lines.flush()
        answer: dict[str, Any] = json.loads(self._lines.readline())
        return answer
