"""Clusters to be measured: agents over one etcd and the run's MinIO, and what both take without an agent.

Rule: etcd runs during the whole benchmark, agents for the rows that want them: one that idles costs the others nothing.
Agents archive when they are told to, as the other peers.
"""

import asyncio
import itertools
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from aetcd.rpc import rpc_pb2

from benchmarks.measure import process_usage
from benchmarks.measure.exposition import Samples, increase, scrape
from benchmarks.peers.brokers import create_topic, delete_topic, settle
from benchmarks.peers.minio import BUCKET, MinioServer
from coordinator.ledger.etcd.access import EtcdAccess
from coordinator.ledger.etcd.client import EtcdClient
from tests.support.cluster.cluster import Cluster, ClusterAgent
from tests.support.services.etcd import Etcd

AGENT_OPTIONS: Mapping[str, str] = {
    "log-level": "warning",
    "archive-interval-s": "86400",
    "archive-bytes": "256MiB",
    "gc-min-age-s": "60",
}
APPEND_BYTES = 2048
APPENDS_COUNT = 200
_topic_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCluster:
    """Agents that serve."""

    agents: Sequence[ClusterAgent]

    @property
    def bootstrap(self) -> str:
        return ",".join(agent.bootstrap for agent in self.agents)

    def cpu_seconds(self) -> float:
        return sum(process_usage.cpu_seconds(agent.process.pid) for agent in self.agents)

    def scrape(self) -> list[Samples]:
        """What each agent reports."""
        return [scrape(agent.http) for agent in self.agents]

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        """A new topic's name; it is deleted at the end."""
        name = f"cluster-{next(_topic_numbers)}"
        create_topic(self.bootstrap, name, partitions)
        try:
            yield name
        finally:
            delete_topic(self.bootstrap, name)
            settle(self.cpu_seconds)


def increases(before: Sequence[Samples], after: Sequence[Samples], name: str, operation: str = "") -> float:
    """How much all agents counted between two scrapes."""
    return sum(increase(*pair, name, operation) for pair in zip(before, after, strict=True))


class ClusterServices:
    """The etcd of the run, beside its MinIO. To be used in a `with` block."""

    def __init__(self, folder: Path, minio: MinioServer) -> None:
        """Raises what `make setup-test` would have provided, as pytest's failure."""
        folder.mkdir(parents=True)
        self._folder = folder
        self._minio = minio
        self._etcd = Etcd(folder)
        self._clusters_count = 0

    def __enter__(self) -> Self:
        self._etcd.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._etcd.__exit__(*error)

    @contextmanager
    def running(
        self, agents_count: int, flush_interval_ms: int, options: Mapping[str, str] | None = None
    ) -> Iterator[RunningCluster]:
        """A new cluster with so many agents; at the end they are stopped. Raises `ProcessFailed`."""
        self._clusters_count += 1
        name = f"bench-{self._clusters_count}"
        with ExitStack() as stack:
            cluster = Cluster(
                ledger=f"etcd://{','.join(self._etcd.endpoints)}/{name}",
                store=f"s3://{BUCKET}/{name}",
                env=self._minio.server.settings,
                folder=self._folder / name,
                stack=stack,
            )
            options = {**AGENT_OPTIONS, "flush-interval-ms": str(flush_interval_ms), **(options or {})}
            names = [f"agent-{number}" for number in range(agents_count)]
            yield RunningCluster(agents=[cluster.start(name, options=options) for name in names])

    def append_ms(self) -> float:
        """Median time of one transaction of etcd that writes `APPEND_BYTES`, one after the other."""
        return asyncio.run(_append_ms(self._etcd.endpoints))


async def _append_ms(endpoints: Sequence[str]) -> float:
    client = EtcdClient(EtcdAccess(endpoints=list(endpoints)))
    times: list[float] = []
    try:
        for number in range(APPENDS_COUNT):
            put = rpc_pb2.PutRequest(key=f"bench-raw/{number}".encode(), value=bytes(APPEND_BYTES))
            began = time.perf_counter()
            await client.txn(rpc_pb2.TxnRequest(success=[rpc_pb2.RequestOp(request_put=put)]))
            times.append((time.perf_counter() - began) * 1000)
    finally:
        await client.close()
    return statistics.median(times)
