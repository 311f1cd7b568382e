"""Logins at an agent: their answer times, one after another and a thousand at once, with another client beside them.

Rule: addresses of failed logins change (127.0.0.0/8), because an agent delays the answers of one that fails often. A
client derives a password's key once, as clients do that connect again.
"""

import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from subprocess import PIPE
from typing import Final

from protocol.auth.scram_credentials import ScramMechanism
from protocol.wire import INT32
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.auth.sasl_frames import (
    api_versions,
    authenticate,
    handshake,
    read_authenticate_answer,
)

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (*(mechanism.sasl_name for mechanism in ScramMechanism), PLAIN)
USER, PASSWORD = "alice", "wonderland"
SECONDS_MAX: Final = 60.0
PAUSE_SECONDS: Final = 0.005
FRAMES_OF_A_LOGIN: Final = 3
FAILURES_OF_AN_ADDRESS: Final = 8
"""Below protocol.limits.AUTHENTICATION_FAILURES_MAX."""
USERS_FILE: Final = "".join(
    f'[[users]]\nname = "{USER}"\npassword = "{PASSWORD}"\nmechanism = "{mechanism.sasl_name}"\n'
    for mechanism in ScramMechanism
)
"""For `--bootstrap-users`."""
SETTINGS: Final = {
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "super.users": f"User:{USER}",
    "connection.failed.authentication.delay.ms": "0",
}


@dataclass(slots=True, kw_only=True)
class RememberingClient(DrawnScramClient):
    """Derives the key of a salt once."""

    keys: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])

    def salted(self, server_first: bytes) -> bytes:
        salt = server_first.partition(b",")[2]
        if salt not in self.keys:
            self.keys[salt] = DrawnScramClient.salted(self, server_first)
        return self.keys[salt]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginTimes:
    """The seconds until each answer, and whether the login succeeded."""

    first_s: float
    """Of SCRAM's first answer; that of PLAIN's only one."""
    last_s: float
    is_success: bool


@dataclass(slots=True)
class LoginPeer:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, frame: memoryview) -> bytes:
        """The answer to a frame."""
        self.writer.write(INT32.pack(len(frame)) + frame)
        async with asyncio.timeout(SECONDS_MAX):
            (answer_bytes,) = INT32.unpack(await self.reader.readexactly(4))
            return await self.reader.readexactly(answer_bytes)

    async def log_in(self, client: DrawnScramClient, mechanism: str) -> LoginTimes:
        """Log in by SCRAM or PLAIN."""
        await self.ask(handshake(mechanism))
        if mechanism == PLAIN:
            token = f"\0{client.user}\0{client.password}".encode()
            began_s = time.perf_counter()
            answer = await self.ask(authenticate(token))
            taken_s = time.perf_counter() - began_s
            is_success = read_authenticate_answer(answer).error_code == 0
            return LoginTimes(first_s=taken_s, last_s=taken_s, is_success=is_success)
        began_s = time.perf_counter()
        first = await self.ask(authenticate(client.first()))
        first_s = time.perf_counter() - began_s
        final = client.final(read_authenticate_answer(first).token)
        began_s = time.perf_counter()
        answer = await self.ask(authenticate(final))
        last_s = time.perf_counter() - began_s
        return LoginTimes(first_s=first_s, last_s=last_s, is_success=read_authenticate_answer(answer).error_code == 0)


@asynccontextmanager
async def login_peer(bootstrap: str, address: str | None = None) -> AsyncIterator[LoginPeer]:
    """A connection, from an address of this machine."""
    host, _, port = bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=address and (address, 0))
    try:
        yield LoginPeer(reader, writer)
    finally:
        writer.transport.abort()


def client_of(mechanism: str, *, user: str = USER, password: str = PASSWORD) -> RememberingClient:
    """A client of a mechanism."""
    scram = next((each for each in ScramMechanism if each.sasl_name == mechanism), ScramMechanism.SCRAM_SHA_256)
    return RememberingClient(mechanism=scram, user=user, password=password)


async def log_in_many(bootstrap: str, client: DrawnScramClient, mechanism: str, count: int) -> None:
    """Log in so many times, one after another, again where the connection is closed.

    Raises `AssertionError` where a login is rejected.
    """
    done = 0
    while done < count:
        async with login_peer(bootstrap) as peer:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                times = await peer.log_in(client, mechanism)
                assert times.is_success, f"{client.user} is rejected by {mechanism}"
                done += 1


async def connect_many(bootstrap: str, count: int) -> None:
    """Connect so many times without a login, and send as many requests as a login has."""
    for _ in range(count):
        async with login_peer(bootstrap) as peer:
            for _ in range(FRAMES_OF_A_LOGIN):
                await peer.ask(api_versions())


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureTimes:
    """The times of failed logins: of a known user with a wrong password, and of an unknown one, in turns."""

    known: Sequence[LoginTimes]
    unknown: Sequence[LoginTimes]


async def failure_times(bootstrap: str, mechanism: str, count: int) -> FailureTimes:
    """The times of `count` pairs. Each unknown user has a name of its own."""
    known: list[LoginTimes] = []
    unknown: list[LoginTimes] = []
    numbers = itertools.count()
    for number in range(count):
        # Both derive a key anew: a client that has just worked for 3 ms is slower in reading its next answer.
        users = [(known, USER), (unknown, f"nobody{number}")]
        for times, user in users if number % 2 else reversed(users):
            client = client_of(mechanism, user=user, password="wrong")
            own = next(numbers) // FAILURES_OF_AN_ADDRESS
            async with login_peer(bootstrap, f"127.1.{own // 250}.{own % 250 + 1}") as peer:
                times.append(await peer.log_in(client, mechanism))
    assert not any(each.is_success for each in (*known, *unknown))
    return FailureTimes(known=known, unknown=unknown)


def share_slower(first: Sequence[float], second: Sequence[float]) -> float:
    """How often one of `second` is larger than one of `first`: 0.5 where nothing distinguishes them (Mann-Whitney)."""
    ranks = {value: rank for rank, value in enumerate(sorted((*first, *second)), start=1)}
    rank_sum = sum(ranks[value] for value in second)
    return (rank_sum - len(second) * (len(second) + 1) / 2) / (len(first) * len(second))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnection:
    """Many clients that connect and log in at once."""

    seconds: float
    """Until the last one is in."""
    beside_p99_ms: float
    """Of the answers to another client that is connected meanwhile."""
    beside_worst_ms: float


async def reconnect(bootstrap: str, mechanism: str, count: int) -> Reconnection:
    """Log in so many clients at once, beside one in another process that is connected and asks every 5 ms."""
    client = client_of(mechanism)
    await log_in_many(bootstrap, client, mechanism, 1)
    command = (sys.executable, "-m", "benchmarks.measure.logins", bootstrap)
    beside = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert beside.stdout is not None
    await beside.stdout.readline()
    began_s = time.perf_counter()
    await asyncio.gather(*(log_in_many(bootstrap, client, mechanism, 1) for _ in range(count)))
    seconds = time.perf_counter() - began_s
    answer, _ = await beside.communicate(b"\n")
    taken = sorted(json.loads(answer))
    return Reconnection(
        seconds=seconds, beside_p99_ms=taken[int(len(taken) * 0.99)] * 1e3, beside_worst_ms=taken[-1] * 1e3
    )


async def ask_beside(bootstrap: str) -> None:
    """Log in, and ask until a line comes on stdin; then print the seconds of all answers."""
    client, loop = client_of(MECHANISMS[0]), asyncio.get_running_loop()
    async with login_peer(bootstrap) as peer:
        await peer.log_in(client, MECHANISMS[0])
        taken: list[float] = []
        print("connected", flush=True)
        ended = loop.run_in_executor(None, sys.stdin.readline)
        while not ended.done():
            began_s = time.perf_counter()
            await peer.ask(api_versions())
            taken.append(time.perf_counter() - began_s)
            await asyncio.sleep(PAUSE_SECONDS)
    print(json.dumps(taken))


if __name__ == "__main__":
    asyncio.run(ask_beside(sys.argv[1]))
