"""Fixtures of Java: the runtime, a compiler, and a broker of Apache Kafka, the peer of comparisons.

Rule: the one of `tests.support.services.local_services`: a process of its own on free loopback ports, ended by its id.
"""

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.processes import Process, is_listening, provided
from tools import jars, java_runtime


@pytest.fixture(scope="session")
def java() -> Path:
    """Path of the Java program, version 17 or 21."""
    return provided(java_runtime.java_home()) / "bin" / "java"


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """Folder with the jars of Apache Kafka: broker, tools and clients."""
    return provided(jars.jar_folder("kafka"))


@pytest.fixture(scope="session")
def streams_jars() -> Path:
    """Folder with the jars of Kafka Streams, to be used beside `kafka_jars`."""
    return provided(jars.jar_folder("streams"))


SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a Java that lives for seconds, or has little to do: it begins with a fraction of the processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaProgram:
    """A compiled Java class with its class path."""

    java: Path
    class_path: str
    main: str
    folder: Path

    def run(self, *arguments: str, timeout_seconds: float = 120) -> str:
        """Runs it to its end and returns what it printed. Fails where its status is not 0."""
        done = subprocess.run(
            self.command(*arguments), cwd=self.folder, capture_output=True, text=True, timeout=timeout_seconds
        )
        assert done.returncode == 0, f"{self.main} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def command(self, *arguments: str) -> list[str]:
        """The command that runs it, for `tests.support.processes.Process`."""
        return [str(self.java), "-Xmx512m", *SHORT_LIVED, "-cp", self.class_path, self.main, *arguments]


def compile_source(
    source: Path, folder: Path, *, java: Path, kafka_jars: Path, more_jars: Sequence[Path] = ()
) -> JavaProgram:
    """Compiles a Java source file (its public class in the default package) into `folder`.

    It is compiled and run against Kafka's jars, and those in the folders `more_jars`.
    """
    (compiler,) = provided(jars.jar_folder("compiler")).glob("ecj-*.jar")
    jar_folders = (kafka_jars, *more_jars)
    class_path = os.pathsep.join([str(folder), *(f"{jar_folder}/*" for jar_folder in jar_folders)])
    libraries = os.pathsep.join(str(jar) for jar_folder in jar_folders for jar in sorted(jar_folder.glob("*.jar")))
    options = ["-17", "-proc:none", "-nowarn", "-cp", libraries, "-d", str(folder)]
    command = [str(java), *SHORT_LIVED, "-jar", str(compiler), *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{source} does not compile:\n{done.stdout}\n{done.stderr}"
    return JavaProgram(java=java, class_path=class_path, main=source.stem, folder=folder)


@pytest.fixture(scope="session")
def compile_java(
    java: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], JavaProgram]:
    """Compiles Java source files: `compile_source`."""
    return lambda source: compile_source(source, tmp_path_factory.mktemp("java"), java=java, kafka_jars=kafka_jars)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBroker:
    """A running broker of Apache Kafka 4.3.1: the peer of comparisons."""

    bootstrap: str
    process: Process


KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions=1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""
KAFKA_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = Out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = Out
"""


@pytest.fixture(scope="session")
def kafka_broker(java: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A single-node KRaft broker of Apache Kafka, with an empty log."""
    folder = tmp_path_factory.mktemp("kafka")
    port, controller_port = free_port(), free_port()
    properties, logging = folder / "server.properties", folder / "log4j2.properties"
    properties.write_text(
        KAFKA_PROPERTIES.format(port=port, controller_port=controller_port, data=folder / "data"), encoding="utf-8"
    )
    logging.write_text(KAFKA_LOGGING, encoding="utf-8")
    start: list[str | Path] = [
        java,
        "-Xmx1g",
        *SHORT_LIVED,
        f"-Dlog4j2.configurationFile={logging}",
        "-cp",
        f"{kafka_jars}/*",
    ]
    tool = [*start, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", properties]
    done = subprocess.run(tool, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"Kafka's storage cannot be formatted:\n{done.stdout}\n{done.stderr}"
    with Process([*start, "kafka.Kafka", properties], folder, name="kafka") as process:
        process.wait_until(lambda: is_listening(port), "Apache Kafka")
        yield KafkaBroker(bootstrap=f"127.0.0.1:{port}", process=process)
