"""A cluster for tests: agents as real processes over one etcd and one bucket in MinIO.

Rule: every cluster has a name and a bucket of its own, so tests share the services and nothing else. What still runs
is stopped after the test.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.processes import START_SECONDS_MAX, Process, provided
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import PENSTOCK, READY, Minio

cluster_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAgent:
    """A running `penstock agent`."""

    name: str
    bootstrap: str
    http: str
    process: Process


@dataclass(slots=True, kw_only=True)
class Cluster:
    """Ledger and bucket of one cluster, and the agents that were started on them."""

    ledger: str
    store: str
    env: Mapping[str, str]
    folder: Path
    stack: ExitStack
    agents: dict[str, ClusterAgent] = field(default_factory=dict[str, ClusterAgent])
    starts_count: int = 0

    def start(
        self,
        name: str,
        *,
        options: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        listen: str = "127.0.0.1:0",
        program: Sequence[str | Path] = (PENSTOCK,),
        is_waited_for: bool = True,
    ) -> ClusterAgent:
        """Start an agent, and return when it serves.

        `options` by their names, for example `{"zone": "a"}`; `settings` are Kafka's broker configs; `listen` lets an
        agent that is started again have the address that it had. One that is not waited for has no addresses.
        `program` may stand in for `penstock`.
        """
        self.starts_count += 1
        command: list[str | Path] = [*program, "agent", "--ledger", self.ledger, "--store", self.store, "--name", name]
        command += ["--listen", listen, "--http", "127.0.0.1:0"]
        for option, value in (options or {}).items():
            command += [f"--{option}", value]
        for key, value in (settings or {}).items():
            command += ["--set", f"{key}={value}"]
        process = self.stack.enter_context(
            Process(command, self.folder, name=f"{name}-{self.starts_count}", env={**self.env, **(env or {})})
        )
        bootstrap = http = ""
        if is_waited_for:
            process.wait_until(
                lambda: READY.search(process.stdout) is not None, f"agent {name}", seconds_max=START_SECONDS_MAX
            )
            match = READY.search(process.stdout)
            assert match is not None
            bootstrap, http = match.groups()
        agent = ClusterAgent(name=name, bootstrap=bootstrap, http=http, process=process)
        self.agents[name] = agent
        return agent


@dataclass(slots=True, kw_only=True)
class ClusterFactory:
    """Makes clusters. `etcd` and `store_env` may be replaced by what a proxy stands before."""

    etcd: Etcd
    minio: Minio
    folder: Path
    stack: ExitStack

    def __call__(self, *, endpoints: list[str] | None = None, store_env: Mapping[str, str] | None = None) -> Cluster:
        """A new cluster without agents. `endpoints` of etcd, variables that lead to the store: else the real ones."""
        name = f"cluster-{next(cluster_numbers)}"
        bucket = self.minio.make_bucket(f"penstock-{name}")
        return Cluster(
            ledger=f"etcd://{','.join(endpoints or self.etcd.endpoints)}/{name}",
            store=f"s3://{bucket}/data",
            env=self.minio.settings if store_env is None else store_env,
            folder=self.folder / name,
            stack=self.stack,
        )


@pytest.fixture
def clusters(etcd: Etcd, minio: Minio, tmp_path: Path) -> Iterator[ClusterFactory]:
    """A factory of clusters over this run's etcd and MinIO: `clusters().start("a")` starts an agent."""
    provided(PENSTOCK)
    with ExitStack() as stack:
        yield ClusterFactory(etcd=etcd, minio=minio, folder=tmp_path, stack=stack)
