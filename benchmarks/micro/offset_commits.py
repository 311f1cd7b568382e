"""CPU of an OffsetCommit, from the bytes of its frame to those of its answer, in one process.

Members of classic groups, each on a connection of its own, commit one partition each in the same turn of the loop, and
again once all are answered. Between the bytes is what an agent runs: connection, codec, handler, coordinator, queue,
entry, ledger in memory, apply, answer. There are no sockets, so system calls are not in it. `heartbeats` is the same
with Heartbeats, which take no entry. Microseconds are processor time of a request, the least and the median of rounds.

Run: `.venv/bin/python -m benchmarks.micro.offset_commits [--members 1000] [--rounds 40]`. A row is a JSON line.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import uvloop
from msgspec.structs import replace

from agent.request.services import Services
from agent.runtime.clock import SystemClock
from agent.runtime.gc_tuning import collect_rarely, pass_over_what_lives
from agent.server.connection import ClientConnection
from agent.server.connection_table import ConnectionTable
from benchmarks.measure.group_frames import CommitFrame, heartbeat, read_commit_error, read_error
from storage.object_store import Buffer
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.commands.group_commands import generation, member

MEMBERS_PER_GROUP = 10
TOGETHER = (1, 10, 100, 1_000)
"""How many members ask in one turn."""
ANSWER_AT = 8
"""Where an answer goes on behind its size and its correlation id."""


class Member(asyncio.Transport):
    """The transport of one member's connection. An answer ends `pending`, whose last one wakes the caller."""

    def __init__(self, group: str, member_id: str, partition: int, connection: ClientConnection) -> None:
        super().__init__()
        self.commit_frame = CommitFrame(group, 1, member_id, "t", partition)
        self.heartbeat = heartbeat(group, 1, member_id)
        self.answered: Callable[[bytes], None] = print
        self._connection = connection
        connection.connection_made(self)

    def ask(self, frame: bytes) -> None:
        """What the loop does with the bytes of a socket."""
        while frame:
            buffer = self._connection.get_buffer(-1)
            count = min(len(buffer), len(frame))
            buffer[:count] = frame[:count]
            self._connection.buffer_updated(count)
            frame = frame[count:]

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.answered(b"".join(list_of_data)[ANSWER_AT:])

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 50_000)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        self._connection.connection_lost(None)


@asynccontextmanager
async def joined(members_count: int) -> AsyncIterator[Sequence[Member]]:
    """The members of groups that are stable, and whose agent runs until the end of the block."""
    async with data_paths(partitions=MEMBERS_PER_GROUP) as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, SystemClock(), tasks)
        table = ConnectionTable(metrics=paths.parts.metrics)
        accept = partial(ClientConnection, table, services, tasks, "PLAINTEXT")
        members: list[Member] = []
        for first in range(0, members_count, MEMBERS_PER_GROUP):
            group = f"bench-group-{first // MEMBERS_PER_GROUP}"
            member_ids = [f"consumer-{index:04d}" for index in range(MEMBERS_PER_GROUP)]
            await write(services, group, member_ids)
            members += [Member(group, name, index, accept()) for index, name in enumerate(member_ids)]
        collect_rarely()
        pass_over_what_lives()
        yield members
        for each in members:
            each.abort()


async def write(services: Services, group: str, member_ids: Sequence[str]) -> None:
    await services.group_ledger.claim(group)
    values = [replace(member(member_id), session_timeout_ms=1_800_000) for member_id in member_ids]
    await services.group_ledger.write(group, generation(1, *values))


async def turn(members: Sequence[Member], frames: Sequence[bytes], read: Callable[[bytes], int]) -> float:
    """The processor time in which all are answered, in seconds."""
    left = len(members)
    is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(answer: bytes) -> None:
        nonlocal left
        error_code = read(answer)
        left -= 1
        if error_code and not is_over.done():
            is_over.set_exception(RuntimeError(f"a member was answered {error_code}"))
        elif not left:
            is_over.set_result(None)

    for each in members:
        each.answered = answered
    began_s = time.process_time()
    for each, frame in zip(members, frames, strict=True):
        each.ask(frame)
    await is_over
    return time.process_time() - began_s


async def measure(members: Sequence[Member], rounds: int) -> None:
    """Print the rows."""
    offset = 0
    for together in TOGETHER:
        chosen = members[:: max(1, len(members) // together)][:together]
        commits, heartbeats = list[float](), list[float]()
        for _ in range(rounds * max(1, 100 // together)):
            offset += 1
            frames = [each.commit_frame.with_offset(offset) for each in chosen]
            commits.append(await turn(chosen, frames, read_commit_error))
            heartbeats.append(await turn(chosen, [each.heartbeat for each in chosen], read_error))
        for what, seconds in (("commits", commits), ("heartbeats", heartbeats)):
            us = [each / len(chosen) * 1e6 for each in seconds]
            row = {
                "what": what,
                "together": len(chosen),
                "us": round(min(us), 1),
                "median_us": round(statistics.median(us), 1),
            }
            print(json.dumps(row), flush=True)


async def run(options: argparse.Namespace) -> None:
    async with joined(options.members) as members:
        await measure(members, options.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=40)
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
