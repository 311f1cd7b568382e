"""Sends drawn frames and TLS of clients that are not in over sockets to a running agent, beside a client that is in.

Rules: no exchange ends otherwise than by answers and a closed connection; nobody is let in but the calm client; the
agent's memory stays within RESIDENT_GROWTH_MAX of what it was, its log has no exception, and the calm client's requests
are answered without an error, the slowest hundredth within CALM_P99_SECONDS_MAX.
"""

import asyncio
import os
import random
import statistics
import struct
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from protocol.limits import MIB
from tests.logins.draw import Drawing, last_token
from tests.logins.tls_draw import TlsDrawing
from tests.security.login_agent import ADMIN_TOKEN, LoginAgent, login_agent
from tests.support.auth.sasl_frames import authenticate
from tests.support.processes import Process, resident_bytes

LANES: Final = 64
ANSWER_SECONDS_MAX: Final = 0.15
"""A changed frame may be the beginning of a longer one: nobody waits for an answer to it."""
CALM_ALONE: Final = 100
"""Requests of the calm client before the others begin, to compare with."""
CALM_P99_SECONDS_MAX: Final = 0.5
"""Or CALM_SLOWDOWN_MAX times what it was before: the clients that send share the machine's cores."""
CALM_SLOWDOWN_MAX: Final = 4
RESIDENT_GROWTH_MAX: Final = 96 * MIB
"""32 MiB of frames of all clients that are not in, 24 of their buffers, and what handshakes under way hold."""
LOG_CHARS_SHOWN: Final = 5_000
SASL_LISTENERS: Final = ("CLIENTS", "SCRAMONLY", "SHORT")
TLS_LISTENERS: Final = ("SECURE", "MUTUAL")


class SocketFault(AssertionError):
    """A rule was broken."""


@dataclass(slots=True)
class Lane:
    """One client after the other, each from another address."""

    agent: LoginAgent
    number: int
    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    sent: int = 0

    async def run(self, frames: int) -> None:
        dice = random.Random(self.seed * 1_000 + self.number)
        drawing = Drawing(dice.randrange(1 << 30))
        contexts = tuple(self.agent.certificates.context(files) for files in (None, self.agent.certificates.alice))
        tls = TlsDrawing(dice.randrange(1 << 30), contexts)
        while self.sent < frames:
            is_tls = dice.random() < 0.4
            listener = dice.choice(TLS_LISTENERS if is_tls else SASL_LISTENERS)
            source = f"127.{dice.randrange(2, 250)}.{dice.randrange(250)}.{dice.randrange(1, 250)}"
            try:
                port = self.agent.ports[listener]
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            except OSError:  # the kernel's queue was full for two minutes, on a machine that is too busy
                self.outcomes["not accepted"] += 1
                self.sent += 1
                continue
            try:
                if is_tls:
                    await self._shake(reader, writer, tls)
                else:
                    await self._log_in(reader, writer, drawing, dice)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.outcomes["closed"] += 1
            finally:
                writer.transport.abort()

    async def _log_in(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, drawing: Drawing, dice: random.Random
    ) -> None:
        """An exchange of SASL without the password."""
        if drawing.chance(3):
            first = drawing.mutated(drawing.first_frame())
            if await self._answer(reader, writer, first, dice) is None:
                return
        frame, mechanism, version = drawing.handshake()
        answer = await self._answer(reader, writer, drawing.mutated(frame), dice)
        form = drawing.version() if version else None
        client = drawing.client(mechanism)
        token = {"PLAIN": drawing.plain, "OAUTHBEARER": drawing.bearer}.get(mechanism, client.first)()
        while answer is not None and not drawing.chance(8):
            request = token if form is None else bytes(authenticate(token, form))
            answer = await self._answer(reader, writer, drawing.mutated(request), dice)
            if answer is not None:
                token = last_token(client, answer, form)

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes, dice: random.Random
    ) -> bytes | None:
        """The answer to a frame; None where none comes in time."""
        length = len(frame)
        if dice.randrange(20) == 0:
            length = dice.choice((-1, 0, 1, length + 5, 400_000, 600_000, 100 * MIB, 1 << 30))
        writer.write(struct.pack(">i", length) + frame)
        self.sent += 1
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                answer = await reader.readexactly(size)
        except TimeoutError:
            self.outcomes["waiting"] += 1
            return None
        self.outcomes["answered"] += 1
        return answer

    async def _shake(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, drawing: TlsDrawing) -> None:
        """A handshake with changed bytes, and changed records behind it."""
        client = drawing.client()
        is_done = False
        for _ in range(8):
            with suppress(OSError):  # of OpenSSL: the client has failed
                is_done = is_done or client.shake_hands()
            flight = client.sent()
            if is_done and not flight:
                with suppress(OSError):
                    flight = client.write(drawing.payload())
            writer.write(drawing.mutated(flight))
            self.sent += 1
            try:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    answer = await reader.read(1 << 16)
            except TimeoutError:
                self.outcomes["waiting"] += 1
                return
            if not answer:
                self.outcomes["closed"] += 1
                return
            self.outcomes["answered"] += 1
            client.take(answer)


async def _attack(agent: LoginAgent, frames: int, seed: int, calm: Process) -> tuple[Counter[str], int, list[float]]:
    """What became of the frames, their number, and the seconds of the calm client's rounds before they began."""
    calm.wait_until(lambda: calm.stdout.count("\n") >= CALM_ALONE, "the calm client")
    alone = [float(line) for line in calm.read_lines()]
    lanes = [Lane(agent, number, seed) for number in range(LANES)]
    async with asyncio.TaskGroup() as tasks:
        for lane in lanes:
            tasks.create_task(lane.run(-(-frames // LANES)))
    return sum((lane.outcomes for lane in lanes), Counter()), sum(lane.sent for lane in lanes), alone


def logins_of(agent: LoginAgent) -> int:
    """The logins that succeeded, by the agent's metric."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    request = urllib.request.Request(f"https://{agent.http}/metrics", headers=headers)
    with urllib.request.urlopen(request, context=agent.certificates.context(None), timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("penstock_authentications_total{"))


def attack(frames: int, seed: int) -> str:
    """Sends so many frames. Raises `SocketFault`; returns what came of them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-logins-")))
        agent = stack.enter_context(login_agent(folder))
        before, began = resident_bytes(agent.process.pid), time.monotonic()
        command = [sys.executable, "-m", "tests.logins.calm_client", f"127.0.0.1:{agent.ports['CLIENTS']}"]
        calm = stack.enter_context(Process(command, folder, name="calm", env={"PYTHONPATH": os.getcwd()}))
        outcomes, sent, times_alone = asyncio.run(_attack(agent, frames, seed, calm))
        seconds = time.monotonic() - began
        grown = resident_bytes(agent.process.pid) - before
        if not calm.is_running:
            raise SocketFault(f"the calm client had an error\n{calm.stderr[-LOG_CHARS_SHOWN:]}")
        times_beside = [float(line) for line in calm.read_lines()]
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(outcomes.items()))
        alone, beside = (statistics.quantiles(each, n=100)[98] for each in (times_alone, times_beside))
        text = (
            f"{sent} frames over sockets in {seconds:.0f} s, seed {seed}: {counts}; calm client: "
            f"{len(times_beside)} rounds, p99 {beside * 1000:.0f} ms ({alone * 1000:.0f} ms alone), slowest "
            f"{max(times_beside) * 1000:.0f} ms; {before >> 20} MiB in memory before, {grown >> 20} MiB more behind"
        )
        if not agent.process.is_running or "Traceback" in agent.process.stderr:
            _, _, exception = agent.process.stderr.partition("Traceback")
            raise SocketFault(f"the agent has ended, or logged an exception\n{text}\n{exception[:LOG_CHARS_SHOWN]}")
        if logins_of(agent) != 1:
            raise SocketFault(f"a client without a password was let in\n{text}")
        if grown > RESIDENT_GROWTH_MAX:
            raise SocketFault(f"the agent's memory grew\n{text}")
        if beside > max(CALM_P99_SECONDS_MAX, CALM_SLOWDOWN_MAX * alone):
            raise SocketFault(f"the calm client waited\n{text}")
    return text
