"""The clients of a run: a producer and a reader of each library, each a process of its own.

Rule: they end when a file appears (`stop`, `ends`), not by a signal, so that producers wait for what is unacknowledged.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.processes import Process, provided
from tests.support.services.java import KAFKA_LOGGING, compile_source
from tests.torture.monitor import Monitor
from tools import go_clients, jars, java_runtime
from tools.steps import ROOT

TOPIC = "torture"
LIBRARIES = ("confluent", "java", "go")


@dataclass(slots=True)
class Workload:
    """Running clients, and what they log."""

    producers: Mapping[str, Process]
    readers: Mapping[str, Process]
    rereader: Process
    monitor: Monitor
    stop_file: Path
    ends_file: Path

    def stop_producers(self) -> None:
        self.stop_file.touch()

    def stop_readers(self, ends: list[int]) -> None:
        """They end once they have read so far."""
        complete = self.ends_file.with_suffix(".new")
        complete.write_text(" ".join(map(str, ends)), encoding="ascii")
        complete.rename(self.ends_file)


def commands(folder: Path) -> dict[str, list[str]]:
    """How each library's program is started, without its arguments."""
    java = provided(java_runtime.java_home()) / "bin" / "java"
    classes = folder / "classes"
    classes.mkdir(parents=True)
    source = ROOT / "tests" / "torture" / "java" / "TortureClient.java"
    program = compile_source(source, classes, java=java, kafka_jars=provided(jars.jar_folder("kafka")))
    logging = folder / "log4j2.properties"
    logging.write_text(KAFKA_LOGGING, encoding="utf-8")
    java_command, *rest = program.command()
    return {
        "confluent": [sys.executable, "-m", "tests.torture.confluent_client"],
        "java": [java_command, f"-Dlog4j2.configurationFile={logging}", *rest],
        "go": [str(provided(go_clients.go_client("torture")))],
    }


def start_workload(
    folder: Path, bootstrap: str, agents: Sequence[str], stack: ExitStack, *, partitions: int, pause_ms: int, seed: int
) -> Workload:
    """Create the topic and start producers and readers of every library; they are ended with `stack`.

    `agents`: their addresses without the proxy, for the reader that goes back.
    """
    folder.mkdir(parents=True, exist_ok=True)
    programs = commands(folder)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, partitions, config={"retention.ms": "-1"})]).values():
        future.result(60)
    stop_file, ends_file = folder / "stop", folder / "ends"

    common = [bootstrap, TOPIC, str(partitions)]

    def started(name: str, *command: str) -> Process:
        process = Process(command, folder, name=name, env={"PYTHONPATH": str(ROOT)})
        stack.callback(process.kill)
        return process

    producers = {
        name: started(f"{name}-produce", *programs[name], "produce", *common, str(stop_file), name, str(pause_ms))
        for name in LIBRARIES
    }
    readers = {
        name: started(f"{name}-consume", *programs[name], "consume", *common, str(ends_file)) for name in LIBRARIES
    }
    again = [sys.executable, "-m", "tests.torture.rereader", ",".join(agents), TOPIC, str(partitions), str(stop_file)]
    rereader = started("rereader", *again, str(seed))
    monitor = Monitor(
        {name: process.output for name, process in producers.items()},
        {name: process.output for name, process in readers.items()},
        partitions,
        {name: process.log for name, process in producers.items()},
    )
    return Workload(producers, readers, rereader, monitor, stop_file, ends_file)
