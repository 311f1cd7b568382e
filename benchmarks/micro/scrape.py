"""What a scrape costs the maintenance leader of a large cluster: 200,000 partitions, and a million committed offsets.

Run: `.venv/bin/python -m benchmarks.micro.scrape [--rounds 3]`. One JSON line a row on stdout. `refresh_ms`: computing
the metrics in turns; `render_ms`: writing them as text; `..._blocked_ms`: the longest time in which nothing else ran on
the event loop, by a task that looks at the clock in every turn of it. Goal: nothing else waits for more than 50 ms.

Rows: few large topics, whose groups consume all of their partitions; and many topics with groups that consume from
each of them, a million pairs of a group and a topic.
"""

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from agent.runtime.clock import SystemClock
from agent.runtime.gc_tuning import collect_rarely, pass_over_what_lives
from agent.runtime.metrics import Metrics
from agent.views.cluster_metrics import ClusterMetrics
from coordinator.apply.apply import apply_proposal
from coordinator.commands.commands import (
    BatchColumns,
    ChunkColumns,
    Command,
    CommitChunks,
    CreateTopic,
    Proposal,
    RaiseRules,
    StartSession,
)
from coordinator.commands.group import ClaimGroups, CommitOffsets
from coordinator.commands.rules import RULES_NEWEST
from coordinator.state.state import ClusterState
from protocol.records.crc import pack_crcs
from protocol.types import Milliseconds, ObjectNumber, SessionId, TopicId

SESSION: Final = SessionId(1)
PARTITIONS: Final = 200_000
RECORDS: Final = 10
RECORD_BYTES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeCluster:
    """A cluster. Each group has committed offsets of so many topics, and of so many partitions of each."""

    topics: int
    groups: int
    group_topics: int
    group_partitions: int

    @property
    def partitions(self) -> int:
        """Of each topic."""
        return PARTITIONS // self.topics


CLUSTERS: Final[Sequence[LargeCluster]] = (
    LargeCluster(topics=200, groups=1_000, group_topics=1, group_partitions=1_000),
    LargeCluster(topics=5_000, groups=200, group_topics=5_000, group_partitions=1),
)


class Applier:
    """A state, and the commands that make it."""

    def __init__(self, shape: LargeCluster) -> None:
        self.state = ClusterState.empty("bench", 1)
        self._number = 0
        self.apply(StartSession(name="a", node_id=1, endpoints=(), zone=None, rules_version=RULES_NEWEST))
        self.apply(RaiseRules(rules_version=RULES_NEWEST))
        topic_ids = [TopicId((row + 1).to_bytes(16, "big")) for row in range(shape.topics)]
        for row, topic_id in enumerate(topic_ids):
            name = f"team-{row % 100}.topic-{row}"
            self.apply(CreateTopic(name=name, topic_id=topic_id, partition_count=shape.partitions, configs=()))
            self.apply(_chunks(topic_id, shape.partitions, row))
        for row in range(shape.groups):
            first = row % (shape.topics - shape.group_topics + 1)
            self._commit(
                f"team-{row % 100}.group-{row}",
                topic_ids[first : first + shape.group_topics],
                shape.group_partitions,
            )

    def _commit(self, group: str, topic_ids: Sequence[TopicId], partitions: int) -> None:
        """Let a group have consumed half of the records of so many partitions of each topic."""
        self.apply(ClaimGroups(group_ids=(group,)))
        count = len(topic_ids) * partitions
        self.apply(
            CommitOffsets(
                groups=((group, self.state.groups[group].claim_epoch),),
                topic_ids=tuple(topic_ids),
                group=[0] * count,
                topic=[row // partitions for row in range(count)],
                partition=[row % partitions for row in range(count)],
                offset=[RECORDS // 2] * count,
                leader_epoch=[0] * count,
                retention_ms=[-1] * count,
            )
        )

    def apply(self, command: Command) -> None:
        proposal = Proposal(time_ms=Milliseconds(1_700_000_000_000 + self._number), command=command)
        apply_proposal(self.state, SESSION, self._number, proposal)
        self._number += 1


def _chunks(topic_id: TopicId, partitions: int, number: int) -> CommitChunks:
    """A chunk of each partition of a topic, in one object."""
    return CommitChunks(
        object_session=SESSION,
        object_number=ObjectNumber(number),
        object_bytes=partitions * RECORD_BYTES,
        topic_ids=(topic_id,),
        chunks=ChunkColumns(
            topic=[0] * partitions,
            partition=list(range(partitions)),
            byte_first=[row * RECORD_BYTES for row in range(partitions)],
            batch_count=[1] * partitions,
        ),
        batches=BatchColumns(
            record_bytes=[RECORD_BYTES] * partitions,
            record_count=[RECORDS] * partitions,
            max_timestamp=[1_700_000_000_000 + row for row in range(partitions)],
            producer_id=[-1] * partitions,
            producer_epoch=[-1] * partitions,
            base_sequence=[-1] * partitions,
            is_transactional=[0] * partitions,
        ),
        batch_crcs=pack_crcs([0] * partitions),
    )


class Watch:
    """The longest time for which nothing else ran on the event loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def during(self, work: Callable[[], Awaitable[object]]) -> float:
        """The seconds that the work takes."""
        looking = asyncio.create_task(self._look())
        await asyncio.sleep(0)
        began_s = time.perf_counter()
        await work()
        taken_s = time.perf_counter() - began_s
        await asyncio.sleep(0)
        looking.cancel()
        return taken_s

    async def _look(self) -> None:
        before_s = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now_s = time.perf_counter()
            self.longest_s = max(self.longest_s, now_s - before_s)
            before_s = now_s


async def measure(shape: LargeCluster, rounds: int) -> dict[str, object]:
    """A row: the best of so many scrapes."""
    applier = Applier(shape)
    gc.collect()
    collect_rarely()
    pass_over_what_lives()
    offsets = sum(len(each) for group in applier.state.groups.values() for each in group.offsets.values())
    rows: list[tuple[float, float, float, float, int]] = []
    for _ in range(rounds):
        metrics = Metrics()
        cluster = ClusterMetrics(
            state=lambda: applier.state, is_leader=lambda: True, now_ms=lambda: None, clock=SystemClock()
        )
        metrics.add(cluster)
        refreshing, rendering = Watch(), Watch()
        refresh_s = await refreshing.during(cluster.refresh)
        text = b""

        async def render(metrics: Metrics = metrics) -> None:
            nonlocal text
            text = await metrics.exposition_in_thread()

        render_s = await rendering.during(render)
        rows.append((refreshing.longest_s, rendering.longest_s, refresh_s, render_s, len(text)))
    refreshing_s, rendering_s, refresh_s, render_s, size = min(rows)
    return {
        "what": f"{shape.topics} topics, {shape.groups} groups",
        "partitions": applier.state.partitions_count,
        "offsets": offsets,
        "refresh_ms": round(refresh_s * 1e3),
        "refresh_blocked_ms": round(refreshing_s * 1e3, 1),
        "render_ms": round(render_s * 1e3),
        "render_blocked_ms": round(rendering_s * 1e3, 1),
        "bytes": size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    for shape in CLUSTERS:
        print(json.dumps(asyncio.run(measure(shape, rounds))), flush=True)


if __name__ == "__main__":
    main()
