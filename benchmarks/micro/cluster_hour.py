"""An hour's worth of ledger entries in minutes: how large etcd's database gets, and what starting behind it costs.

Three real agents over a real etcd and MinIO follow, take snapshots and trim, while as many entries are appended as
three agents write in an hour (four a second each, 24 chunks in each). They are written by this process, under a session
of its own, for objects that nobody reads: so the index grows to a million chunks. Then a fourth agent starts.

Run: `.venv/bin/python -m benchmarks.micro.cluster_hour [--appends 43200] [--seconds 540]`. A row is a JSON line.
"""

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

from benchmarks.measure.exposition import scrape, total
from benchmarks.measure.process_usage import cpu_seconds, memory_mib
from benchmarks.micro.apply import PARTITIONS, TOPIC, commit
from benchmarks.peers.minio import BUCKET, MinioServer
from coordinator.codec.codec import encode
from coordinator.commands.commands import Command, CreateTopic, Endpoint, Proposal, RaiseRules, StartSession
from coordinator.commands.rules import RULES_FIRST, RULES_NEWEST
from coordinator.ledger.etcd.access import EtcdAccess
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.ledger import EtcdLedger
from coordinator.ledger.port import LedgerEntry
from protocol.types import Milliseconds, SessionId
from tests.support.cluster.cluster import Cluster, ClusterAgent
from tests.support.services.etcd import Etcd

AGENTS = ("a", "b", "c")
APPENDS_PER_AGENT_SECOND = 4
HOUR_APPENDS = 3600 * APPENDS_PER_AGENT_SECOND * len(AGENTS)
CHUNKS = 24
CLUSTER = "bench"
OPTIONS = {"archive-interval-s": "86400", "archive-bytes": "256MiB"}
MIB = 1 << 20
_ETCD_SAMPLE = re.compile(r"^(\w+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
DB_IN_USE, DB_SIZE = "etcd_mvcc_db_total_size_in_use_in_bytes", "etcd_mvcc_db_total_size_in_bytes"
WAL_BYTES = "etcd_disk_wal_write_bytes_total"


def etcd_figures(endpoint: str) -> dict[str, float]:
    """Etcd's own metrics, by name."""
    with urlopen(f"http://{endpoint}/metrics", timeout=30) as answer:
        return {name: float(value) for name, value in _ETCD_SAMPLE.findall(answer.read().decode())}


async def rows(etcd: Etcd, cluster: Cluster, appends: int, seconds_max: float) -> AsyncIterator[dict[str, object]]:
    agents = [cluster.start(name, options=OPTIONS) for name in AGENTS]
    before = etcd_figures(etcd.endpoints[0])
    began = time.monotonic()
    in_use, size = await _write(etcd, appends, began + seconds_max)
    seconds = time.monotonic() - began
    wal = etcd_figures(etcd.endpoints[0])[WAL_BYTES] - before[WAL_BYTES]
    for agent in agents:
        await asyncio.to_thread(_wait_for_chunks, agent, appends * CHUNKS)
    caught_up = time.monotonic() - began
    yield {
        "what": "etcd",
        "appends": appends,
        "hours_worth": round(appends / HOUR_APPENDS, 2),
        "seconds": round(seconds),
        "until_applied_s": round(caught_up),
        "db_in_use_mib_max": round(max(in_use) / MIB, 1),
        "db_in_use_mib_end": round(in_use[-1] / MIB, 1),
        "db_file_mib_max": round(max(size) / MIB, 1),
        "wal_bytes_per_append": round(wal / appends),
        "wal_bytes_per_s_as_paced": round(wal / appends * APPENDS_PER_AGENT_SECOND * len(AGENTS)),
        "snapshots": sum(round(total(scrape(agent.http), "penstock_snapshots_total")) for agent in agents),
    }
    yield {
        "what": "agent",
        "chunks": _chunks(agents[0]),
        "resident_mib": round(memory_mib(agents[0].process.pid)),
        "cpu_s": round(cpu_seconds(agents[0].process.pid)),
    }
    began = time.monotonic()
    late = cluster.start("late", options=OPTIONS)
    yield {
        "what": "cold start",
        "chunks": _chunks(late),
        "seconds": round(time.monotonic() - began, 2),
        "cpu_s": round(cpu_seconds(late.process.pid), 2),
        "resident_mib": round(memory_mib(late.process.pid)),
    }


async def _write(etcd: Etcd, appends: int, end_s: float) -> tuple[list[float], list[float]]:
    """Append so many entries; the database's size in use and on disk, sampled."""
    ledger = await EtcdLedger.open(EtcdClient(EtcdAccess(endpoints=etcd.endpoints)), CLUSTER, new_cluster_id="unused")
    session = await ledger.open_session("writer")
    endpoint = Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=1)
    start = StartSession(name="writer", node_id=4, endpoints=(endpoint,), zone=None, rules_version=RULES_NEWEST)
    first: tuple[Command, ...] = (
        start,
        RaiseRules(rules_version=RULES_NEWEST),
        CreateTopic(name="hour", topic_id=TOPIC, partition_count=PARTITIONS, configs=()),
    )
    entries = [_entry(session, number, command) for number, command in enumerate(first)]
    await ledger.append(session, entries)
    in_use: list[float] = []
    size: list[float] = []
    sampled_s = 0.0
    for number in range(appends):
        await ledger.append(session, [_entry(session, len(first) + number, commit(session, number, CHUNKS))])
        now_s = time.monotonic()
        if now_s - sampled_s > 1:
            sampled_s = now_s
            figures = await asyncio.to_thread(etcd_figures, etcd.endpoints[0])
            in_use.append(figures[DB_IN_USE])
            size.append(figures[DB_SIZE])
            await ledger.keep_session(session)
            print(f"{number:,} of {appends:,} appends", file=sys.stderr, flush=True)
            if now_s > end_s:
                raise SystemExit(f"only {number:,} of {appends:,} appends in time: give it more --seconds")
    await ledger.close()
    return in_use, size


def _entry(session: SessionId, number: int, command: Command) -> LedgerEntry:
    time_ms = Milliseconds(time.time_ns() // 1_000_000)
    rules_version = RULES_FIRST if isinstance(command, StartSession | RaiseRules) else RULES_NEWEST
    payload = encode(Proposal(time_ms=time_ms, command=command), rules_version, session, number)
    return LedgerEntry(number=number, payload=payload)


def _wait_for_chunks(agent: ClusterAgent, count: int) -> None:
    agent.process.wait_until(lambda: _chunks(agent) >= count, f"{count} chunks applied")


def _chunks(agent: ClusterAgent) -> int:
    """Chunks in the index of this agent; its metric is the maintenance leader's alone."""
    with urlopen(f"http://{agent.http}/api/topics", timeout=30) as answer:
        return sum(topic["chunks"] for topic in json.load(answer)["topics"])


async def run(etcd: Etcd, cluster: Cluster, appends: int, seconds_max: float) -> None:
    async for row in rows(etcd, cluster, appends, seconds_max):
        print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--appends", type=int, default=HOUR_APPENDS)
    parser.add_argument("--seconds", type=float, default=540.0)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        minio = MinioServer(folder / "minio")
        stack.callback(minio.stop)
        etcd = stack.enter_context(Etcd(folder / "etcd"))
        cluster = Cluster(
            ledger=f"etcd://{','.join(etcd.endpoints)}/{CLUSTER}",
            store=f"s3://{BUCKET}/data",
            env=minio.server.settings,
            folder=folder / "cluster",
            stack=stack,
        )
        asyncio.run(run(etcd, cluster, arguments.appends, arguments.seconds))


if __name__ == "__main__":
    main()
