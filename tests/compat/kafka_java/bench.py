"""Kafka's Java tools for one conversation: called and read like functions, or started beside it.

Rule: every tool has a time limit, and what a conversation started ends with it. Topics and groups have names of their
own, so that conversations share a broker and nothing else.
"""

import itertools
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.compat.access import MECHANISM
from tests.compat.target import JavaHome, Target
from tests.support.processes import Process

TOOLS: Final = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "all-groups": "org.apache.kafka.tools.GroupsCommand",
    "api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "compatibility": "org.apache.kafka.tools.ClientCompatibilityTest",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consume-perf": "org.apache.kafka.tools.ConsumerPerformance",
    "copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "latency": "org.apache.kafka.tools.EndToEndLatency",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "offsets": "org.apache.kafka.tools.GetOffsetShell",
    "produce-perf": "org.apache.kafka.tools.ProducerPerformance",
    "streams-smoke": "org.apache.kafka.streams.tests.StreamsSmokeTest",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}
WITHOUT_CONFIG = ("compatibility", "copier", "streams-smoke")
"""Tools that take no file with the properties of a client, so that they reach no protected listener."""
CONFIG_LAST = ("cluster",)
"""Tools whose option for that file belongs to what they are told to do, which comes first."""
HEAP = "256m"
OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOGGING = "log4j2.properties"
"""A file of the folder of the run, so that logs go to stderr."""
TOOL_SECONDS_MAX = 90.0
QUIET_MS = 20_000
"""How long nothing must come until a topic counts as read: longer than a tool takes to begin on a busy machine."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """Where the tools of one conversation are, and which broker they talk to."""

    target: Target
    java: JavaHome
    folder: Path
    conversation: str
    stack: ExitStack
    calls: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def as_user(self, user: str, password: str, mechanism: str = MECHANISM) -> "Bench":
        """The bench of another user of a protected listener."""
        assert self.target.access is not None
        access = self.target.access.as_user(user, password, mechanism)
        return replace(self, target=replace(self.target, access=access))

    def name(self, what: str) -> str:
        """The name of a topic, a group or a producer of this conversation alone."""
        return f"{self.conversation.replace('.', '-')}-{what}"

    def call(
        self,
        tool: str,
        *arguments: object,
        text: str | None = None,
        seconds_max: float = TOOL_SECONDS_MAX,
        is_status_ignored: bool = False,
    ) -> str:
        """What a tool wrote to stdout until its end, with `text` as its input. Fails where its status is not 0."""
        done = self._run(tool, arguments, text, seconds_max)
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        assert is_status_ignored or done.returncode == 0, f"{tool} ended with status {done.returncode}: {last}"
        return done.stdout

    def tell(self, tool: str, *arguments: object, text: str | None = None) -> str:
        """All that a tool said, to stdout and stderr, whatever became of it. It is told the broker."""
        words = ("--bootstrap-server", self.target.bootstrap, *arguments)
        done = self._run(tool, words, text, TOOL_SECONDS_MAX)
        return done.stdout + done.stderr

    def _run(
        self, tool: str, arguments: Sequence[object], text: str | None, seconds_max: float
    ) -> subprocess.CompletedProcess[str]:
        """Runs a tool to its end, and keeps what it said in a file."""
        log = self._log(tool)
        command = self._command(tool, arguments)
        try:
            done = subprocess.run(
                command, input=text or "", capture_output=True, text=True, timeout=seconds_max, cwd=self.folder
            )
        except subprocess.TimeoutExpired as late:
            log.write_bytes(f"{command}\n".encode() + (late.stdout or b"") + (late.stderr or b""))
            raise AssertionError(f"{tool} took over {seconds_max:.0f} s") from None
        log.write_text(f"{command}\n{done.stdout}\n{done.stderr}\nstatus {done.returncode}\n", encoding="utf-8")
        return done

    def ask(self, tool: str, *arguments: object, text: str | None = None, is_status_ignored: bool = False) -> str:
        """`call` of a tool that is told the broker by --bootstrap-server."""
        words = ("--bootstrap-server", self.target.bootstrap, *arguments)
        return self.call(tool, *words, text=text, is_status_ignored=is_status_ignored)

    def start(self, tool: str, *arguments: object, address: str = "--bootstrap-server", heap: str = HEAP) -> Process:
        """Starts a tool beside the conversation, which ends it. `address`: its option for the broker, if it has one."""
        told = (address, self.target.bootstrap) if address else ()
        command = self._command(tool, (*told, *arguments), heap)
        return self.stack.enter_context(Process(command, self.folder, name=self._log(tool).stem))

    def make_topic(self, partitions: int = 1, *configs: str, what: str = "topic") -> str:
        """Makes a topic of this conversation and returns its name."""
        words = [word for config in configs for word in ("--config", config)]
        name = self.name(what)
        self.ask("topics", "--create", "--topic", name, "--partitions", partitions, "--replication-factor", 1, *words)
        return name

    def write(self, topic: str, values: Sequence[str], *arguments: object) -> None:
        """Writes values with the console producer."""
        self.ask("console-producer", "--topic", topic, *arguments, text="".join(f"{value}\n" for value in values))

    def read(self, topic: str, count: int, *, is_committed: bool = False) -> list[str]:
        """The first `count` values of a topic, or all where there are fewer, by the console consumer."""
        level = ("--isolation-level", "read_committed") if is_committed else ()
        words = ("--topic", topic, "--from-beginning", "--max-messages", count, "--timeout-ms", QUIET_MS, *level)
        return self.ask("console-consumer", *words, is_status_ignored=True).splitlines()

    def _log(self, tool: str) -> Path:
        return self.folder / f"{self.conversation}-{next(self.calls):02}-{tool}.log"

    def _command(self, tool: str, arguments: Sequence[object], heap: str = HEAP) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.folder / LOGGING}"
        start = [str(self.java.java), f"-Xmx{heap}", *OPTIONS, logging, "-cp", self.java.class_path, TOOLS[tool]]
        access = self.target.access
        config = ["--command-config", str(access.write_java())] if access and tool not in WITHOUT_CONFIG else []
        words = [str(word) for word in arguments]
        return [*start, *words, *config] if tool in CONFIG_LAST else [*start, *config, *words]


def until(what: str, is_so: Callable[[], bool], *, seconds_max: float = 30.0) -> None:
    """Asks until it is so: each question starts a tool, which takes long enough between two of them."""
    deadline = time.monotonic() + seconds_max
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not come in {seconds_max:.0f} s"


def assert_told(text: str, *words: str) -> None:
    """Fails unless a tool's text holds every one of the words."""
    lacking = [word for word in words if word not in text]
    assert not lacking, f"{', '.join(lacking)} not in: {text}"


def assert_same(found: Sequence[object], wanted: Sequence[object], what: str) -> None:
    """Fails unless both hold the same things equally often, in whatever order."""
    missing, more = (Counter(wanted) - Counter(found)).total(), (Counter(found) - Counter(wanted)).total()
    assert missing == more == 0, f"{what}: {missing} are missing, {more} are too many"
