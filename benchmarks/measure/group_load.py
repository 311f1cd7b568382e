"""Members of many classic groups: each has a connection of its own, joins, sends heartbeats, and later commits.

    python -m benchmarks.measure.group_load HOST:PORT TOPIC --groups 1000 --members 10 --idle-s 20 --commit-s 20

Rule: it costs less than a broker, so nothing but the joining is a task: heartbeats and commits are frames that are
written when their time has come, whose answers are counted. A commit waits for the one before of its member. Lines on
stdout are JSON: `formed` once every member of every group is in one generation with all others, then `begun` and
`ended` for each of the phases `idle` (heartbeats every three seconds) and `commit` (and a commit of each member every
second). At the end the members leave, and the groups are deleted.
"""

import argparse
import asyncio
import gc
import json
import resource
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import uvloop

from benchmarks.measure import group_frames as frames

HEARTBEAT_SECONDS, COMMIT_SECONDS = 3.0, 1.0
SESSION_MS, REBALANCE_MS = 45_000, 60_000
CONNECTING_MAX = 64
FORM_SECONDS_MAX = 180.0
TICK_SECONDS = 0.01
TICKS_PER_LOOK = 20
"""Ticks between two looks at whether all groups are formed."""
RETRY_SECONDS = 0.3
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 25, 27, 79
RETRIED = {14, 15, 16, 22, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS}
"""Answers upon which a member joins again: the coordinator loads, is elsewhere, or the generation is another."""


class Connection(asyncio.Protocol):
    """One member's. Answers come in the order of requests; each goes to whom its request named."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[bytes], None]] = deque()
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods alone

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting:
            raise ConnectionError(f"the broker closed a member's connection: {exc}")

    def data_received(self, data: bytes) -> None:
        data = self._received + data
        position = 0
        while len(data) - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > len(data):
                break
            self._waiting.popleft()(data[position + 8 : end])
            position = end
        self._received = data[position:]

    def send(self, frame: bytes, answered: Callable[[bytes], None]) -> None:
        assert self._transport is not None
        self._waiting.append(answered)
        self._transport.write(frame)

    async def ask(self, frame: bytes) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.send(frame, answer.set_result)
        return await answer

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


@dataclass(slots=True)
class Told:
    """What was answered in a phase."""

    latencies_s: list[float] = field(default_factory=list[float])
    errors: Counter[int] = field(default_factory=Counter[int])

    def take(self, error_code: int, began_s: float) -> None:
        self.latencies_s.append(time.perf_counter() - began_s)
        if error_code:
            self.errors[error_code] += 1

    def figures(self, name: str, seconds: float) -> dict[str, float]:
        ordered = sorted(self.latencies_s) or [0.0]
        return {
            f"{name}s_per_s": (len(self.latencies_s) - self.errors.total()) / seconds,
            f"{name}_p50_ms": statistics.median(ordered) * 1000,
            f"{name}_p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
            f"{name}_errors": self.errors.total(),
        }


@dataclass(slots=True, kw_only=True)
class Member:
    group: str
    topic: str
    partition: int
    connection: Connection
    member_id: str = ""
    generation: int = -1
    is_stable: bool = False
    """In a generation, as far as it knows."""
    _commit_frame: frames.CommitFrame | None = None
    _heartbeat: bytes = b""
    _offset: int = 0
    _is_committing: bool = False

    async def take_part(self) -> None:
        """Join until a generation is complete. Raises `RuntimeError` for an answer that no member should get."""
        while not self.is_stable:
            request = frames.join(
                self.group, self.member_id, self.topic, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS
            )
            joined = frames.read_joined(await self.connection.ask(request))
            self.member_id = joined.member_id or self.member_id
            if joined.error_code == MEMBER_ID_REQUIRED:
                continue
            if not joined.error_code:
                request = frames.sync(self.group, joined.generation, self.member_id, self.topic, joined.members)
                error_code = frames.read_error(await self.connection.ask(request))
                if not error_code:
                    self._settle(joined.generation)
                    return
                joined = joined._replace(error_code=error_code)
            await self._wait_again(joined.error_code)

    async def _wait_again(self, error_code: int) -> None:
        if error_code not in RETRIED:
            raise RuntimeError(f"a member of {self.group} was answered {error_code}")
        if error_code == UNKNOWN_MEMBER_ID:
            self.member_id = ""
        await asyncio.sleep(RETRY_SECONDS)

    def _settle(self, generation: int) -> None:
        self.generation, self.is_stable = generation, True
        self._heartbeat = frames.heartbeat(self.group, generation, self.member_id)
        self._commit_frame = frames.CommitFrame(self.group, generation, self.member_id, self.topic, self.partition)

    def beat(self, told: Told) -> None:
        if not self.is_stable:
            return
        began_s = time.perf_counter()

        def answered(answer: bytes) -> None:
            error_code = frames.read_error(answer)
            told.take(error_code, began_s)
            self.is_stable = self.is_stable and not error_code

        self.connection.send(self._heartbeat, answered)

    def commit(self, told: Told) -> None:
        if self._is_committing or self._commit_frame is None:
            return
        began_s = time.perf_counter()
        self._is_committing = True
        self._offset += 1

        def answered(answer: bytes) -> None:
            self._is_committing = False
            told.take(frames.read_commit_error(answer), began_s)

        self.connection.send(self._commit_frame.with_offset(self._offset), answered)


class Pace:
    """Says which of many members are due: each once in a period, evenly spread over it."""

    def __init__(self, members: Sequence[Member], period_s: float) -> None:
        self._members = members
        self._per_s = len(members) / period_s
        self._began_s = time.perf_counter()
        self._done = 0

    def due(self) -> Iterator[Member]:
        end = int((time.perf_counter() - self._began_s) * self._per_s)
        for number in range(self._done, end):
            yield self._members[number % len(self._members)]
        self._done = end


@dataclass(slots=True, kw_only=True)
class Load:
    """All members of all groups."""

    members: Sequence[Member]
    beats: Pace
    told: Told = field(default_factory=Told)

    def is_formed(self) -> bool:
        """Whether each group's members are all in one generation."""
        generations: dict[str, set[int]] = {}
        for member in self.members:
            if not member.is_stable:
                return False
            generations.setdefault(member.group, set()).add(member.generation)
        return all(len(found) == 1 for found in generations.values())

    async def form(self) -> float:
        """Returns the seconds that it took. Members that have to join again do so."""
        began_s = time.perf_counter()
        async with asyncio.timeout(FORM_SECONDS_MAX), asyncio.TaskGroup() as tasks:
            joining = {id(member): tasks.create_task(member.take_part()) for member in self.members}
            while not self.is_formed():
                for member in self.members:
                    if not member.is_stable and joining[id(member)].done():
                        joining[id(member)] = tasks.create_task(member.take_part())
                for _ in range(TICKS_PER_LOOK):
                    await self._tick()
        return time.perf_counter() - began_s

    async def phase(self, name: str, seconds: float, commits: Pace | None) -> None:
        """Heartbeats, and commits where they are paced, for some seconds."""
        self.told, committed = Told(), Told()
        tell(phase=name, event="begun")
        began_s, cpu_s = time.perf_counter(), _cpu_seconds()
        while (elapsed_s := time.perf_counter() - began_s) < seconds:
            if commits is not None:
                for member in commits.due():
                    member.commit(committed)
            await self._tick()
        figures = self.told.figures("heartbeat", elapsed_s)
        if commits is not None:
            figures |= committed.figures("commit", elapsed_s)
        figures["client_cpu_percent"] = (_cpu_seconds() - cpu_s) / elapsed_s * 100
        figures["seconds"] = elapsed_s
        tell(phase=name, event="ended", figures=figures)

    async def _tick(self) -> None:
        for member in self.beats.due():
            member.beat(self.told)
        await asyncio.sleep(TICK_SECONDS)

    async def leave(self) -> None:
        """Each group's members leave together; then the groups are deleted."""
        groups: dict[str, list[Member]] = {}
        for member in self.members:
            groups.setdefault(member.group, []).append(member)
        for group, members in groups.items():
            await members[0].connection.ask(frames.leave(group, [member.member_id for member in members]))
        await self.members[0].connection.ask(frames.delete_groups(list(groups)))


def tell(**values: object) -> None:
    print(json.dumps(values), flush=True)


async def run(options: argparse.Namespace) -> None:
    host, _, port = options.bootstrap.rpartition(":")
    connecting = asyncio.Semaphore(CONNECTING_MAX)

    async def connected(group: int, partition: int) -> Member:
        async with connecting:
            _, connection = await asyncio.get_running_loop().create_connection(Connection, host, int(port))
        return Member(group=f"bench-group-{group}", topic=options.topic, partition=partition, connection=connection)

    # A group's members begin together: one that came when the others have a generation would begin another.
    places = [(group, row) for group in range(options.groups) for row in range(options.members)]
    members = await asyncio.gather(*(connected(*place) for place in places))
    await wait_for_coordinator(members[0])
    load = Load(members=members, beats=Pace(members, HEARTBEAT_SECONDS))
    tell(phase="form", event="ended", figures={"form_s": await load.form()})
    gc.freeze()
    await load.phase("settle", HEARTBEAT_SECONDS, None)
    await load.phase("idle", options.idle_s, None)
    await load.phase("commit", options.commit_s, Pace(members, COMMIT_SECONDS))
    await load.leave()
    for member in members:
        member.connection.close()


async def wait_for_coordinator(member: Member) -> None:
    """Apache Kafka creates a topic for offsets when a coordinator is looked for first."""
    while True:
        answer = await member.connection.ask(frames.find_coordinator(member.group))
        if not frames.read_coordinator_error(answer):
            return
        await asyncio.sleep(RETRY_SECONDS)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", metavar="HOST:PORT")
    parser.add_argument("topic")
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--idle-s", type=float, default=20)
    parser.add_argument("--commit-s", type=float, default=20)
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
