"""Fixtures of real services: MinIO, Apache Kafka, Java, Spark, and Penstock's own process.

Rule: a fixture starts a process on a free loopback port with its data in a temporary folder, and ends it by its id;
what `make setup-test` provides is used where it lies, and its absence is a failure that names that command.
"""

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.processes import Process, free_port, is_listening, running
from tools import go_servers, jars, java_runtime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PENSTOCK = Path(sys.executable).parent / "penstock"
READY = re.compile(r"^ready kafka=(\S+) http=(\S+)$", re.MULTILINE)


def provided(place: Path | None) -> Path:
    """Returns `place`, or fails the test and says how it comes to be."""
    if place is None or not place.exists():
        pytest.fail(f"{place or 'a Java runtime'} is missing: run make setup-test", pytrace=False)
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class Minio:
    """A running MinIO, which keeps its data in one folder."""

    endpoint: str
    access_key: str
    secret_key: str
    data: Path

    def make_bucket(self, name: str) -> str:
        """Makes an empty bucket and returns its name. In MinIO's storage of one folder a bucket is a directory."""
        (self.data / name).mkdir()
        return name

    @property
    def settings(self) -> dict[str, str]:
        """The usual AWS variables that lead a client to this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    """A MinIO server of its own for this run."""
    program = provided(go_servers.minio_program())
    folder = tmp_path_factory.mktemp("minio")
    data = folder / "data"
    data.mkdir()
    port = free_port()
    server = Minio(endpoint=f"http://127.0.0.1:{port}", access_key="penstock", secret_key="penstock-secret", data=data)
    env = {
        "MINIO_ROOT_USER": server.access_key,
        "MINIO_ROOT_PASSWORD": server.secret_key,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
        "MINIO_CALLHOME_ENABLE": "off",
        "HOME": str(folder),
    }
    command = [str(program), "server", "--quiet", "--address", f"127.0.0.1:{port}", str(data)]
    with running(command, folder, name="minio", env=env) as process:
        process.wait_until(lambda: _answers(f"{server.endpoint}/minio/health/ready"), "MinIO")
        yield server


@pytest.fixture(scope="session")
def java() -> Path:
    """Path of the Java program, version 17 or 21."""
    return provided(java_runtime.java_home()) / "bin" / "java"


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """Folder with the jars of Apache Kafka: broker, tools and clients."""
    return provided(jars.jar_folder("kafka"))


@pytest.fixture(scope="session")
def spark_jars() -> list[Path]:
    """Jars with which Spark reads Iceberg tables from S3."""
    return sorted(provided(jars.jar_folder("spark")).glob("*.jar"))


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
        """The command that runs it, for `tests.processes.running`."""
        return [str(self.java), "-Xmx512m", "-cp", self.class_path, self.main, *arguments]


@pytest.fixture(scope="session")
def compile_java(
    java: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], JavaProgram]:
    """Compiles a Java source file (its public class in the default package) against Kafka's jars."""
    (compiler,) = provided(jars.jar_folder("compiler")).glob("ecj-*.jar")

    def compile_source(source: Path) -> JavaProgram:
        folder = tmp_path_factory.mktemp("java")
        class_path = f"{folder}{os.pathsep}{kafka_jars}/*"
        libraries = os.pathsep.join(map(str, sorted(kafka_jars.glob("*.jar"))))
        options = ["-17", "-proc:none", "-nowarn", "-cp", libraries, "-d", str(folder)]
        command = [str(java), "-jar", str(compiler), *options, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{source} does not compile:\n{done.stdout}\n{done.stderr}"
        return JavaProgram(java=java, class_path=class_path, main=source.stem, folder=folder)

    return compile_source


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
    start: list[str | Path] = [java, "-Xmx1g", f"-Dlog4j2.configurationFile={logging}", "-cp", f"{kafka_jars}/*"]
    tool = [*start, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", properties]
    done = subprocess.run(tool, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"Kafka's storage cannot be formatted:\n{done.stdout}\n{done.stderr}"
    with running([*start, "kafka.Kafka", properties], folder, name="kafka") as process:
        process.wait_until(lambda: is_listening(port), "Apache Kafka")
        yield KafkaBroker(bootstrap=f"127.0.0.1:{port}", process=process)


@dataclass(frozen=True, slots=True, kw_only=True)
class Penstock:
    """A running `penstock run`."""

    bootstrap: str
    http: str
    data: Path
    process: Process


@dataclass(slots=True, kw_only=True)
class PenstockFactory:
    """Starts brokers; those that still run are stopped after the test."""

    folder: Path
    stack: ExitStack
    count: int = field(default=0)

    def __call__(
        self,
        *,
        data: Path | None = None,
        settings: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
        store: str | None = None,
        env: Mapping[str, str] | None = None,
        listen: str = "127.0.0.1:0",
    ) -> Penstock:
        """Starts one broker and returns when it serves.

        `data`: its folder, kept over restarts (a new one where None). `settings`: Kafka's broker configs, passed by
        `--set`. `options`: other options by their names, for example `{"gc-grace-s": "1"}`. `store`: the URL of an
        object store, for example `s3://bucket/prefix`, with the variables of `Minio.settings` in `env`.
        """
        self.count += 1
        data = data or self.folder / f"data-{self.count}"
        command: list[str | Path] = [PENSTOCK, "run", "--listen", listen, "--http", "127.0.0.1:0", "--data-dir", data]
        if store is not None:
            command += ["--store", store]
        for name, value in (options or {}).items():
            command += [f"--{name}", value]
        for name, value in (settings or {}).items():
            command += ["--set", f"{name}={value}"]
        process = self.stack.enter_context(running(command, self.folder, name=f"penstock-{self.count}", env=env))
        process.wait_until(lambda: READY.search(process.output.read_text()) is not None, "penstock")
        match = READY.search(process.output.read_text())
        assert match is not None
        return Penstock(bootstrap=match.group(1), http=match.group(2), data=data, process=process)


@pytest.fixture
def penstock(tmp_path: Path) -> Iterator[PenstockFactory]:
    """A factory of Penstock brokers: `penstock()` starts one."""
    provided(PENSTOCK)
    with ExitStack() as stack:
        yield PenstockFactory(folder=tmp_path, stack=stack)


@pytest.fixture(scope="session")
def spark_session(
    java: Path, spark_jars: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator["SparkSession"]:
    """A Spark session with two workers in this process's Java, able to read Iceberg tables and S3."""
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java.parent.parent))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            SparkSession.builder.master("local[2]")
            .appName("penstock-tests")
            .config("spark.jars", ",".join(map(str, spark_jars)))
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.local.dir", str(folder / "local"))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            gateway = session.sparkContext._gateway
            session.stop()
            assert gateway is not None
            gateway.shutdown()
            gateway.proc.stdin.close()  # upon which Spark's Java ends
            gateway.proc.wait(timeout=60)


@pytest.fixture
def spark(spark_session: "SparkSession") -> Iterator["SparkSession"]:
    """The Spark session. What a test leaves to the garbage collector is collected before the next test."""
    yield spark_session
    gc.collect()


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
