"""The cluster of the monitoring run: etcd, MinIO and three agents of different zones on loopback addresses.

Rule: every process is ours, ended by its id, and gone when the `with` block ends.
"""

import json
import os
import signal
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.lake.bucket_listing import PARQUET, ListedBucket, minio_bucket
from tests.support.processes import Process, provided, stand_still
from tests.support.services.etcd import Etcd
from tests.support.services.java import JavaProgram
from tests.support.services.local_services import PENSTOCK, MinioProcess
from tools import jars, java_runtime

AGENTS: Final = ("a", "b", "c")
PARTITIONS: Final = 4
CONFIG_TOOL: Final = "kafka.admin.ConfigCommand"
ANSWER_SECONDS_MAX: Final = 60.0
OPTIONS: Final = {
    "archive-interval-s": "5",
    "gc-min-age-s": "10",
    "snapshot-entries": "500",
    "read-cache-bytes": "1MiB",
}
"""So that archive, garbage collector and snapshots have something to do within a minute."""


@dataclass(slots=True, kw_only=True)
class World:
    """Use it in a `with` block."""

    folder: Path
    cluster: Cluster = field(init=False)
    admin: AdminClient = field(init=False)
    _etcd: Etcd = field(init=False)
    _minio: MinioProcess = field(init=False)
    _store: Process = field(init=False)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for agent in self.agents:
            agent.process.kill()
        self._stack.close()

    def _start(self) -> None:
        provided(PENSTOCK)
        self._etcd = self._stack.enter_context(Etcd(self.folder / "etcd"))
        self._minio = MinioProcess(self.folder / "minio")
        self.start_store()
        factory = ClusterFactory(etcd=self._etcd, minio=self._minio.server, folder=self.folder, stack=self._stack)
        self.cluster = factory()
        for name in AGENTS:
            self.cluster.start(name, options={**OPTIONS, "zone": name})
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})

    @property
    def agents(self) -> list[ClusterAgent]:
        return list(self.cluster.agents.values())

    @property
    def bootstrap(self) -> str:
        return ",".join(agent.bootstrap for agent in self.agents)

    def create_topic(self, name: str) -> None:
        for future in self.admin.create_topics([NewTopic(name, PARTITIONS)]).values():
            future.result(ANSWER_SECONDS_MAX)

    def hold(self, client_id: str, bytes_per_second: int) -> None:
        """Give a client a quota, by Kafka's tool."""
        java, kafka_jars = provided(java_runtime.java_home()) / "bin" / "java", provided(jars.jar_folder("kafka"))
        tool = JavaProgram(java=java, class_path=f"{kafka_jars}/*", main=CONFIG_TOOL, folder=self.folder)
        quota = f"producer_byte_rate={bytes_per_second}"
        entity = ("--entity-type", "clients", "--entity-name", client_id)
        tool.run("--bootstrap-server", self.bootstrap, "--alter", "--add-config", quota, *entity)

    def delete_topic(self, name: str) -> None:
        for future in self.admin.delete_topics([name]).values():
            future.result(ANSWER_SECONDS_MAX)

    def start_store(self) -> None:
        """Start MinIO, or start it again with what it has."""
        self._store = self._stack.enter_context(self._minio.start())
        self._minio.wait(self._store)

    def kill_store(self) -> None:
        """From now on connections to the bucket are refused."""
        self._store.kill()

    def pause_store(self) -> None:
        """From now on requests to the bucket are not answered."""
        stand_still(self._store.pid)

    def resume_store(self) -> None:
        os.kill(self._store.pid, signal.SIGCONT)

    def pause_ledger(self) -> None:
        """From now on etcd does not answer."""
        self._etcd.members[0].stop()

    def resume_ledger(self) -> None:
        self._etcd.members[0].go_on()

    def archive(self, topic: str) -> None:
        """Return when all that the topic holds now is in its table."""
        body = json.dumps({"topics": [topic], "wait": True}).encode()
        request = urllib.request.Request(
            f"http://{self.agents[0].http}/api/archive", body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
            answer.read()

    def lose_files(self, topic: str) -> int:
        """Delete the files of the topic's table from the bucket, as a stranger would; how many those were."""
        bucket = self._bucket
        keys = [key for key in bucket.objects() if (found := PARQUET.fullmatch(key)) and found["name"] == topic]
        for key in keys:
            bucket.files.delete_file(key)
        return len(keys)

    def died(self) -> list[str]:
        """Agents that do not run, with what they said last; and tracebacks in what they wrote."""
        ended = [
            str(agent.process.failed(f"agent {agent.name} ended"))
            for agent in self.agents
            if not agent.process.is_running
        ]
        for agent in self.agents:
            _, traceback, rest = agent.process.stderr.partition("Traceback")
            ended += [f"agent {agent.name}: {traceback}{rest[:2000]}"] if traceback else []
        return ended

    @property
    def _bucket(self) -> ListedBucket:
        return minio_bucket(self._minio.server, self.cluster.store.removeprefix("s3://"))
