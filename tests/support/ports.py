"""Loopback ports for servers that cannot be asked to choose one themselves.

Rule: a port that `free_port` gave is given to no other caller of it, in this process or in another one on this machine,
until this process ends: also not before its server listens, nor while that server is killed to be started again.
"""

import fcntl
import functools
import random
import socket
from contextlib import suppress
from typing import BinaryIO

from tools.steps import cache_folder

PORTS = range(15_000, 30_000)
"""Below the ports that connections, and servers that ask for any, are given."""
PORTS_TRIED_MAX = 200
_ENTROPY = random.SystemRandom()
"""Not the seeded one: tests that run side by side would all choose the same ports."""
_claimed: set[int] = set()


class NoFreePort(AssertionError):
    """Too many ports are in use, or claimed by other tests."""


def free_port() -> int:
    """A port that nothing listens on, claimed for this process. Raises `NoFreePort`."""
    for _ in range(PORTS_TRIED_MAX):
        port = _ENTROPY.choice(PORTS)
        if port not in _claimed and _is_unused(port) and _claim(port):
            return port
    raise NoFreePort(f"none of {PORTS_TRIED_MAX} loopback ports tried from {PORTS.start} to {PORTS.stop} is free")


def _is_unused(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def _claim(port: int) -> bool:
    """Whether no other process has claimed it. The operating system ends claims with their process."""
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    _claimed.add(port)
    return True


@functools.cache
def _claims() -> BinaryIO:
    """The file whose byte `port` stands for that port. Closing it would end all claims of this process."""
    folder = cache_folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / "ports").open("wb")
