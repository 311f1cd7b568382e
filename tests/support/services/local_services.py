"""Fixtures of real services: MinIO, Spark, and Penstock's own process (Java and Apache Kafka:
`tests.support.services.java`).

Rule: a fixture starts a process on a free loopback port with its data in a temporary folder, and ends it by its id;
what `make setup-test` provides is used where it lies, and its absence is a failure that names that command.
"""

import gc
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from tests.support.ports import free_port
from tests.support.processes import START_SECONDS_MAX, Process, is_listening, provided
from tests.support.services.spark_sessions import spark_over
from tools import go_servers, jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PENSTOCK = Path(sys.executable).parent / "penstock"
READY = re.compile(r"^ready kafka=(\S+) http=(\S+)$", re.MULTILINE)


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


class MinioProcess:
    """A MinIO on a port of its own, started, killed and started again with the data that is there."""

    def __init__(self, folder: Path, *, certificates: Path | None = None) -> None:
        """With a folder of `certificates` (private.key, public.crt) it speaks TLS."""
        data = folder / "data"
        data.mkdir(parents=True)
        self.port = free_port()
        self._certificates = certificates
        scheme = "http" if certificates is None else "https"
        self.server = Minio(
            endpoint=f"{scheme}://127.0.0.1:{self.port}", access_key="penstock", secret_key="penstock-secret", data=data
        )
        self._folder = folder

    def start(self, *, env: Mapping[str, str] | None = None) -> Process:
        """Start it with MinIO's variables in `env`, to be ended by the caller; `wait` returns once it answers."""
        env = {
            "MINIO_ROOT_USER": self.server.access_key,
            "MINIO_ROOT_PASSWORD": self.server.secret_key,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "MINIO_CALLHOME_ENABLE": "off",
            "HOME": str(self._folder),
            **(env or {}),
        }
        program = provided(go_servers.minio_program())
        address = f"127.0.0.1:{self.port}"
        command = [str(program), "server", "--quiet", "--address", address, str(self.server.data)]
        if self._certificates is not None:
            command += ["--certs-dir", str(self._certificates)]
        return Process(command, self._folder, name="minio", env=env)

    def wait(self, process: Process) -> None:
        if self._certificates is not None:
            process.wait_until(lambda: is_listening(self.port), "MinIO")
            return
        process.wait_until(lambda: _refuses_strangers(self.server.endpoint), "MinIO")


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    """A MinIO server of its own for this run."""
    minio = MinioProcess(tmp_path_factory.mktemp("minio"))
    with minio.start() as process:
        minio.wait(process)
        yield minio.server


@pytest.fixture(scope="session")
def spark_jars() -> list[Path]:
    """Jars with which Spark reads Iceberg tables from S3, and writes into topics."""
    folders = [provided(jars.jar_folder(jar_set)) for jar_set in ("spark", "spark-kafka")]
    return sorted(jar for folder in folders for jar in folder.glob("*.jar"))


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
        program: Sequence[str | Path] = (PENSTOCK,),
        start_seconds_max: float = START_SECONDS_MAX,
        has_journal: bool = True,
    ) -> Penstock:
        """Starts one broker and returns when it serves.

        `data`: its folder, kept over restarts (a new one where None). `settings`: Kafka's broker configs, passed by
        `--set`. `options`: other options by their names, for example `{"gc-min-age-s": "1"}`. `store`: the URL of an
        object store, for example `s3://bucket/prefix`, with the variables of `Minio.settings` in `env`. `program`: one
        of `tests/support/modified_agents` instead of `penstock`. Raises `ProcessFailed` where it does not serve within
        `start_seconds_max`. `has_journal`: false keeps the ledger in SQLite and the intake in packs, as
        versions did that knew no journal.
        """
        self.count += 1
        data = data or self.folder / f"data-{self.count}"
        embedded: list[str | Path] = ["run", "--data-dir", data]
        if not has_journal:
            places = ["--ledger", f"sqlite://{data}/ledger.sqlite", "--store", f"file://{data}/store"]
            embedded = ["agent", "--name", "penstock", *places]
        command: list[str | Path] = [*program, *embedded, "--listen", listen, "--http", "127.0.0.1:0"]
        if store is not None:
            command += ["--store", store]
        for name, value in (options or {}).items():
            command += [f"--{name}", value]
        for name, value in (settings or {}).items():
            command += ["--set", f"{name}={value}"]
        process = self.stack.enter_context(Process(command, self.folder, name=f"penstock-{self.count}", env=env))
        process.wait_until(lambda: READY.search(process.stdout) is not None, "penstock", seconds_max=start_seconds_max)
        match = READY.search(process.stdout)
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
    with spark_over(java, spark_jars, tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def spark(spark_session: "SparkSession") -> Iterator["SparkSession"]:
    """The Spark session. What a test leaves to the garbage collector is collected before the next test."""
    yield spark_session
    gc.collect()


def _refuses_strangers(url: str) -> bool:
    """One that serves refuses who has no credentials; one that begins says 503, even where it calls itself ready."""
    try:
        with urlopen(url, timeout=2):
            return True
    except HTTPError as error:
        return error.code != HTTPStatus.SERVICE_UNAVAILABLE
    except (URLError, OSError):
        return False
