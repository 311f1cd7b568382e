"""A broker of Apache Kafka 4.3.1 that can be killed and started again, and that a proxy can stand before.

Rule: it keeps its ports and its data until its `with` block ends. Clients find it by the address that it advertises.
"""

import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.support.ports import free_port
from tests.support.processes import Process, is_listening, provided
from tests.support.services.java import KAFKA_LOGGING, KAFKA_PROPERTIES
from tools import jars, java_runtime

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class KafkaProcess:
    """`advertise`: given the port that the broker listens on, the port that its clients are told."""

    def __init__(self, folder: Path, *, advertise: Callable[[int], int] | None = None) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self.port = free_port()
        client_port = self.port if advertise is None else advertise(self.port)
        self.bootstrap = f"127.0.0.1:{client_port}"
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        java, class_path = provided(java_runtime.java_home()) / "bin" / "java", provided(jars.jar_folder("kafka"))
        logging, properties = self._folder / "log4j2.properties", self._folder / "server.properties"
        logging.write_text(KAFKA_LOGGING, encoding="utf-8")
        text = KAFKA_PROPERTIES.format(port=self.port, controller_port=free_port(), data=self._folder / "data")
        advertised = f"advertised.listeners=PLAINTEXT://{self.bootstrap}\n"  # the last line of a name counts
        properties.write_text(text + advertised, encoding="utf-8")
        start = [str(java), "-Xmx1g", f"-Dlog4j2.configurationFile={logging}", "-cp", f"{class_path}/*"]
        tool = [*start, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
        subprocess.run(tool, cwd=self._folder, capture_output=True, timeout=120, check=True)
        self._command = [*start, "kafka.Kafka", str(properties)]
        self.start()
        self._stack.callback(self.kill)
        self.process.wait_until(lambda: self.is_serving, "Apache Kafka")
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    @property
    def process(self) -> Process:
        assert self._process is not None, "it was not started"
        return self._process

    @property
    def is_serving(self) -> bool:
        return self.process.is_running and is_listening(self.port)

    def start(self) -> None:
        """Start it, or start it again with its data; it is not waited for."""
        self._process = Process(self._command, self._folder, name="kafka")

    def kill(self) -> None:
        self.process.kill()
