"""Follows a page of the documentation in one folder: saves its scripts, runs its commands, compares what they print.

The folder looks like a checkout after `make run`. Commands that install something are left out: the packages of the
tests are there instead.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.documents import Block, blocks
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.services.java import SHORT_LIVED
from tests.support.services.local_services import PENSTOCK, READY

ROOT = Path(__file__).resolve().parents[2]
RUN = "make run"
INSTALLING = frozenset(
    {"python3 -m venv client", "client/bin/pip install --quiet kafka-python", "make setup-spark", "make setup-test"}
)
CHECKOUT = "/srv/penstock"
"""Where the pages say that the checkout is."""
KAFKA_ADDRESS, HTTP_ADDRESS = "127.0.0.1:9092", "127.0.0.1:9644"
SECONDS_MAX = 300
VOLATILE = (
    (r"\b[0-9a-f]{32}\b", "TOPIC-ID"),
    (r"\b[0-9a-f]{16}-[0-9a-f]{16}\.parquet", "FILE"),
    (r"of cluster [\w-]{22}", "of cluster ID"),
    (r'"timestamp": \d+', '"timestamp": TIME'),
    (r"(?m)^(\w+ +CompleteCommit +- +60\.0 +)\d+", r"\1PRODUCER-ID"),
)
TOOLS = {
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}


def page(name: str) -> list[Block]:
    return blocks((ROOT / name).read_text(encoding="utf-8"))


def quickstart(*, is_spark: bool) -> list[Block]:
    """The blocks of the quickstart before its part about Spark, or those of that part."""
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    before, heading, after = text.partition("\n## Spark\n")
    assert heading
    return blocks(after if is_spark else before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a page's console, and what the page shows below it."""

    line: str
    output: str


def commands(block: Block) -> Iterator[Command]:
    """The commands of a ```console block: a line after `$ `, with what is continued by a backslash, and its output."""
    for part in re.split(r"(?m)^\$ ", block.text)[1:]:
        match = re.match(r"((?:.*\\\n)*.*)\n?", part)
        assert match is not None
        yield Command(line=match[1], output=part[match.end() :])


@dataclass(slots=True, kw_only=True)
class Walk:
    """Follows a page in one folder, with one broker, or with agents that run elsewhere."""

    folder: Path
    stack: ExitStack
    env: Mapping[str, str]
    kafka: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    http: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    runs_elsewhere: bool = False
    """Whether agents serve at `kafka` and `http` already: `make run` is left out."""
    broker: Process | None = None

    def follow(self, page: list[Block]) -> None:
        """Saves its scripts, runs its commands, and compares what they print. Raises `AssertionError` at the first
        difference."""
        for block in page:
            if block.language == "python":
                self.save(block.text.partition("\n")[0].removeprefix("# "), block.text)
            elif block.language == "console":
                for command in commands(block):
                    self._run(command)

    def prepare(self) -> None:
        """Makes the folder that follows from `make run` and the installing commands."""
        for name in (".venv", "client"):
            (self.folder / name).symlink_to(sys.prefix)
        for script in (ROOT / "docs" / "walk").glob("*.py"):
            self.save(script.relative_to(ROOT), script.read_text(encoding="utf-8"))

    def provide_tools(self, java: Path, kafka_jars: Path, folder: Path) -> None:
        """Writes Kafka's console tools into an empty folder that commands find programs in."""
        for name, main in TOOLS.items():
            script = folder / name
            call = shlex.join([str(java), *SHORT_LIVED, "-cp", f"{kafka_jars}/*", main])
            script.write_text(f'#!/bin/sh\nexec {call} "$@"\n')
            script.chmod(0o755)
        self.env = {**self.env, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}

    def save(self, name: str | Path, script: str) -> None:
        """Saves a script in the folder, with the ports of this broker."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self._with_ports(script), encoding="utf-8")

    def _run(self, command: Command) -> None:
        if command.line in INSTALLING:
            return
        if command.line == RUN and self.runs_elsewhere:
            return
        if command.line == RUN:
            banner = self._start()
            assert self._readable(command.output) in self._readable(banner)
            return
        done = subprocess.run(
            ["bash", "-c", f"({self._with_ports(command.line)}) 2>errors"],
            cwd=self.folder,
            env={**os.environ, **self.env, "PENSTOCK_SERVER": self.http},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=SECONDS_MAX,
        )
        errors = (self.folder / "errors").read_text(encoding="utf-8", errors="replace")
        assert done.returncode == 0, f"{command.line} ended with {done.returncode}:\n{done.stdout}\n{errors}"
        # Java, librdkafka and Spark write to stderr what no page shows; Penstock writes there what it does.
        expected = self._readable(command.output)
        printed = self._readable(done.stdout), self._readable(done.stdout + errors), self._readable(errors)
        assert expected in printed, f"{command.line} printed:\n{done.stdout}\n{errors}"

    def _start(self) -> str:
        """Starts the broker, the one before killed; returns what it wrote."""
        if self.broker is not None:
            os.kill(self.broker.pid, signal.SIGKILL)
            self.broker.wait_ended()
        command: list[str | Path] = [PENSTOCK, "run", "--listen", self.kafka, "--http", self.http]
        self.broker = self.stack.enter_context(Process(command, self.folder, name="penstock", env=self.env))
        broker = self.broker
        broker.wait_until(lambda: READY.search(broker.stdout) is not None, "penstock")
        return broker.stderr

    def _with_ports(self, text: str) -> str:
        return text.replace(KAFKA_ADDRESS, self.kafka).replace(HTTP_ADDRESS, self.http)

    def _readable(self, text: str) -> str:
        """Text as the pages have it, with the same words for what differs between two runs."""
        text = text.replace(str(self.folder), CHECKOUT)
        text = text.replace(self.kafka, KAFKA_ADDRESS).replace(self.http, HTTP_ADDRESS)
        for pattern, word in VOLATILE:
            text = re.sub(pattern, word, text)
        return "\n".join(line.rstrip() for line in text.strip().splitlines())
