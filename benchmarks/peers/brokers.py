"""The brokers that are compared: real processes on loopback, with their data in a temporary folder.

Rule: a peer keeps its addresses over restarts; all of them run during the whole benchmark, but only one has work.
"""

import contextlib
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.cases import PeerName
from benchmarks.measure import process_usage
from benchmarks.peers.java_tools import JavaTools
from benchmarks.peers.tls import TlsListener
from tests.support.ports import free_port
from tests.support.processes import Process, is_listening
from tests.support.services.java import KAFKA_LOGGING, KAFKA_PROPERTIES
from tests.support.services.local_services import PENSTOCK, READY

ADMIN_SECONDS_MAX = 30.0
QUIET_CPU_SHARE = 0.1
QUIET_SECONDS = 0.4
QUIET_SECONDS_MAX = 15.0
NO_CONFIG: Mapping[str, str] = {}
RELEASED_SECONDS = 60
"""After which both peers delete the data of a deleted topic: Kafka's default of `file.delete.delay.ms`."""
KAFKA_TUNING = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""What kafka-server-start.sh passes."""
KAFKA_GROUP_DELAY = "group.initial.rebalance.delay.ms=3000\n"
"""The default, which Penstock has, too; the properties for tests have none, and the last line counts."""


class Peer(ABC):
    """A broker. To be started, used and stopped; `restart` keeps its data."""

    def __init__(self, name: PeerName, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.start_seconds = 0.0
        self._process: Process | None = None
        self._starts = 0
        self._tls: TlsListener | None = None
        self._is_encrypted = self._is_mutual = False
        self.configs = NO_CONFIG
        """Broker configs of its next start that win over its own."""
        folder.mkdir(parents=True)

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """What starts it in the foreground."""

    @contextlib.contextmanager
    def encrypted(self, *, is_mutual: bool = False) -> Iterator[None]:
        """Restarts it with a second listener, `tls`, and at the end without. Mutual: clients need a certificate."""
        if self._tls is None:
            self._tls = TlsListener.make(self.folder, free_port())
        self._is_encrypted, self._is_mutual = True, is_mutual
        self.restart()
        try:
            yield
        finally:
            self._is_encrypted = False
            self.restart()

    @property
    def tls(self) -> TlsListener:
        """The listener that encrypts, which is there within `encrypted`."""
        assert self._tls is not None
        return self._tls

    @abstractmethod
    def is_ready(self, process: Process) -> bool:
        """Whether it serves."""

    def environment(self) -> Mapping[str, str]:
        return {}

    def start(self) -> None:
        """Starts it where it does not run, and returns when it serves. Raises `ProcessFailed`."""
        if self._process is not None and self._process.is_running:
            return
        self._starts += 1
        name = f"{self.name.value}-{self._starts}"
        began = time.monotonic()
        process = Process(self.command(), self.folder, name=name, env=self.environment())
        self._process = process
        process.wait_until(lambda: self.is_ready(process), self.name.value)
        self.start_seconds = time.monotonic() - began

    def stop(self) -> None:
        """Ends it, and forgets its process."""
        if self._process is not None:
            with self._process:
                pass
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        """Ends it and removes its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cpu_seconds(self) -> float:
        return process_usage.cpu_seconds(self.pid)

    def settle(self) -> None:
        """Waits until it has no more work of its own, so that it takes nothing from the next measurement."""
        settle(self.cpu_seconds)

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] = NO_CONFIG) -> None:
        """Raises `KafkaException`."""
        create_topic(self.bootstrap, name, partitions, config)

    def delete_topic(self, name: str) -> None:
        """Deletes it if it is there and the broker answers."""
        delete_topic(self.bootstrap, name)


def settle(cpu_seconds: Callable[[], float]) -> None:
    """Waits until processes have no more work of their own; `cpu_seconds` is what they took so far."""
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    while time.monotonic() < deadline:
        before = cpu_seconds()
        time.sleep(QUIET_SECONDS)
        if cpu_seconds() - before < QUIET_SECONDS * QUIET_CPU_SHARE:
            return


def create_topic(bootstrap: str, name: str, partitions: int, config: Mapping[str, str] = NO_CONFIG) -> None:
    """Raises `KafkaException`."""
    admin = _admin(bootstrap)
    for future in admin.create_topics([NewTopic(name, partitions, 1, config=dict(config))]).values():
        future.result(ADMIN_SECONDS_MAX)


def delete_topic(bootstrap: str, name: str) -> None:
    """Deletes it if it is there and a broker answers."""
    admin = _admin(bootstrap)
    with contextlib.suppress(KafkaException, TimeoutError):
        for future in admin.delete_topics([name], operation_timeout=ADMIN_SECONDS_MAX).values():
            future.result(ADMIN_SECONDS_MAX)


def _admin(bootstrap: str) -> AdminClient:
    """A client; while it is referred to, its futures live."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


class KafkaPeer(Peer):
    """Apache Kafka 4.3.1, one node and its controller, with default settings: it does not wait for the disk."""

    def __init__(self, folder: Path, tools: JavaTools) -> None:
        super().__init__(PeerName.KAFKA, folder)
        logging, properties = folder / "log4j2.properties", folder / "server.properties"
        logging.write_text(KAFKA_LOGGING, encoding="utf-8")
        text = KAFKA_PROPERTIES.format(port=self.port, controller_port=free_port(), data=folder / "data")
        properties.write_text(text + KAFKA_GROUP_DELAY, encoding="utf-8")
        class_path = f"{tools.kafka_jars}/*"
        self._java: list[str | Path] = [tools.java, f"-Dlog4j2.configurationFile={logging}", "-cp", class_path]
        self._properties, self._text = properties, text + KAFKA_GROUP_DELAY
        format_log: list[str | Path] = [
            "kafka.tools.StorageTool",
            "format",
            "-t",
            "AAAAAAAAAAAAAAAAAAAAAQ",
            "-c",
            properties,
        ]
        subprocess.run([*self._java, *format_log], cwd=folder, capture_output=True, timeout=120, check=True)

    def command(self) -> Sequence[str | Path]:
        # The last line of a name counts.
        tls = self._tls_lines() if self._is_encrypted else ""
        configs = "".join(f"{name}={value}\n" for name, value in self.configs.items())
        self._properties.write_text(self._text + tls + configs, encoding="utf-8")
        return [self._java[0], *KAFKA_TUNING, *self._java[1:], "kafka.Kafka", self._properties]

    def _tls_lines(self) -> str:
        listeners = f"PLAINTEXT://{self.bootstrap},SSL://{self.tls.bootstrap}"
        (own,) = (line for line in self._text.splitlines() if line.startswith("listeners="))
        return (
            f"{own},SSL://{self.tls.bootstrap}\nadvertised.listeners={listeners}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL\n"
            f"ssl.keystore.type=PEM\nssl.keystore.location={self.tls.keystore}\n"
            f"{self._mutual_lines() if self._is_mutual else ''}"
        )

    def _mutual_lines(self) -> str:
        return f"ssl.client.auth=required\nssl.truststore.type=PEM\nssl.truststore.location={self.tls.ca_path}\n"

    def is_ready(self, process: Process) -> bool:
        assert process.is_running
        return is_listening(self.port)


class PenstockPeer(Peer):
    """Penstock. It archives when it is told to, so that no pass runs while another peer is measured."""

    def __init__(
        self,
        name: PeerName,
        folder: Path,
        *,
        places: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`places`: options that say where ledger and store are; without them `penstock run`."""
        super().__init__(name, folder)
        self.http = f"127.0.0.1:{free_port()}"
        self._start: list[str | Path] = [PENSTOCK, *(places or ("run", "--data-dir", str(folder / "data")))]
        # An installed broker has its modules compiled; a machine that forbids it would pay for that at every start.
        self._options: Sequence[str] = ()
        self._environment = {**(environment or {}), "PYTHONDONTWRITEBYTECODE": ""}

    def command(self) -> Sequence[str | Path]:
        return [
            *self._start,
            *("--listen", self.bootstrap, "--http", self.http, "--log-level", "warning"),
            *("--archive-interval-s", "86400", "--archive-bytes", "256MiB", "--gc-min-age-s", str(RELEASED_SECONDS)),
            *(self._tls_options() if self._is_encrypted else ()),
            *(word for name, value in self.configs.items() for word in ("--set", f"{name}={value}")),
            *self._options,
        ]

    def _tls_options(self) -> Sequence[str | Path]:
        files = self.tls.files
        # As Kafka's here, it has no authorizer: certificates of clients would turn it on.
        mutual: list[str | Path] = ["--tls-client-ca", self.tls.ca_path, "--set", "authorizer.class.name="]
        listener = ["--listen", f"SSL://{self.tls.bootstrap}", "--tls-cert", files.cert, "--tls-key", files.key]
        return [*listener, *(mutual if self._is_mutual else ())]

    @contextlib.contextmanager
    def restarted_with(self, options: Sequence[str]) -> Iterator[None]:
        """Restarts it with options that win over its own, and at the end without them."""
        self._options = options
        self.restart()
        try:
            yield
        finally:
            self._options = ()
            self.restart()

    def environment(self) -> Mapping[str, str]:
        return self._environment

    def is_ready(self, process: Process) -> bool:
        return READY.search(process.stdout) is not None
