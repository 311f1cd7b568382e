"""Apache Kafka's own performance tools, run from its jars against any broker.

Rule: every run has a time limit and ends by its id; what a tool prints is read by `benchmarks.peers.tool_output`.
"""

import os
import random
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.peers.tool_output import read_consumed, read_end_to_end, read_produced, read_steady, read_together
from tests.support.processes import Process
from tools import jars, java_runtime
from tools.steps import SetupFailed

HERE = Path(__file__).parent
TOOL_SECONDS_MAX = 150.0
PRODUCED_BYTES_PER_S_MIN = 5_000_000
"""A producer that is slower than this for all of its records is given up."""
PAYLOAD_BYTES = 8_000_000
"""Values to choose from: more than any codec looks back for."""
CONSUMER, COMMITTER, WORKLOAD, TOGETHER = "ConsumeAssigned", "CommitTransactions", "SteadyWorkload", "ProduceTogether"
NO_CONFIGS: Mapping[str, str] = {}
PRODUCER_MEMORY_DEFAULT = 32 << 20
HEAP_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """One pass over a topic: figures of the client, and what `sample` gave at its begin and at its end."""

    topic: str
    figures: dict[str, float]
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaTools:
    """The tools, with a folder for what they need beside the jars."""

    java: Path
    kafka_jars: Path
    folder: Path

    @classmethod
    def prepare(cls, folder: Path) -> "JavaTools":
        """Compiles our own tools into `folder`. Raises `SetupFailed` where `make setup-test` has not been run."""
        home = java_runtime.java_home()
        kafka_jars, compiler = jars.jar_folder("kafka"), jars.jar_folder("compiler")
        if home is None or not kafka_jars.exists() or not compiler.exists():
            raise SetupFailed("Java or the jars of Kafka are missing: run make setup-test")
        tools = cls(java=home / "bin" / "java", kafka_jars=kafka_jars, folder=folder)
        (ecj,) = compiler.glob("ecj-*.jar")
        libraries = os.pathsep.join(map(str, sorted(kafka_jars.glob("*.jar"))))
        options = ["-17", "-proc:none", "-nowarn", "-cp", libraries, "-d", str(folder)]
        sources = [HERE / f"{name}.java" for name in (CONSUMER, COMMITTER, WORKLOAD, TOGETHER)]
        tools._finish([tools.java, "-jar", ecj, *options, *sources])
        for value_bytes in (100, 1000, 1024):
            tools.payload_file(value_bytes).write_text("\n".join(make_values(value_bytes)) + "\n", encoding="utf-8")
        return tools

    def payload_file(self, value_bytes: int) -> Path:
        return self.folder / f"values-{value_bytes}.json"

    def command(self, main: str, *arguments: str) -> list[str | Path]:
        class_path = f"{self.folder}{os.pathsep}{self.kafka_jars}/*"
        return [self.java, *HEAP_OPTIONS, "-cp", class_path, main, *arguments]

    def produce(
        self,
        bootstrap: str,
        topic: str,
        case: Case,
        *,
        records: int,
        warm_up_records: int,
        transaction_ms: int = 0,
        configs: Mapping[str, str] = NO_CONFIGS,
    ) -> dict[str, float]:
        """ProducerPerformance: `records` in all, the first `warm_up_records` of them not counted in its figures; in
        transactions of that length, where it is not 0."""
        memory = max(PRODUCER_MEMORY_DEFAULT, 16 * case.request_bytes)
        words = _words({**_producer_configs(case), "buffer.memory": memory, **configs})
        is_transactional = transaction_ms > 0
        transactions = ("--transactional-id", topic, "--transaction-duration-ms", str(transaction_ms))
        output = self._finish(
            self.command(
                "org.apache.kafka.tools.ProducerPerformance",
                *("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(case.rate)),
                *("--payload-file", str(self.payload_file(case.value_bytes)), "--reporting-interval", "600000"),
                *("--num-records", str(records), "--warmup-records", str(warm_up_records)),
                *(transactions if is_transactional else ()),
                *("--command-property", *words),
            ),
            seconds_more=records * case.value_bytes / PRODUCED_BYTES_PER_S_MIN,
        )
        return read_produced(output, case.value_bytes)

    def produce_together(
        self, bootstrap: str, topic: str, case: Case, *, records: int, warm_up_records: int
    ) -> dict[str, float]:
        """ProduceTogether: `records` of all clients of the case, the first `warm_up_records` of them not counted."""
        values, clients = str(self.payload_file(case.value_bytes)), case.clients
        numbers = map(str, (clients, (records - warm_up_records) // clients, warm_up_records // clients))
        configs = _words({**_producer_configs(case), "buffer.memory": PRODUCER_MEMORY_DEFAULT})
        output = self._finish(self.command(TOGETHER, bootstrap, topic, values, *numbers, *configs))
        return read_together(output, case.value_bytes)

    def commit(self, bootstrap: str, topic: str, *, partitions: int, transactions: int, warm_up: int) -> str:
        """What CommitTransactions prints."""
        numbers = map(str, (partitions, transactions, warm_up))
        return self._finish(self.command(COMMITTER, bootstrap, topic, *numbers))

    def end_to_end(self, bootstrap: str, topic: str, *, records: int, value_bytes: int) -> dict[str, float]:
        """EndToEndLatency. At its end it commits offsets, which fails without consumer groups and does not matter."""
        output = self._finish(
            self.command(
                "org.apache.kafka.tools.EndToEndLatency",
                *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)),
                *("--producer-acks", "all", "--record-size", str(value_bytes)),
            ),
            is_status_ignored=True,
        )
        return read_end_to_end(output)

    def consume(
        self,
        bootstrap: str,
        topics: Sequence[tuple[str, int]],
        sample: Callable[[], float],
        *,
        configs: Mapping[str, str] = NO_CONFIGS,
    ) -> list[Consumed]:
        """Passes over topics, given with their count of records. `sample` is called when a pass begins and ends.

        `configs` of the client win over its own.
        """
        words = [f"{topic}={records}" for topic, records in topics]
        words += [f"--{name}={value}" for name, value in configs.items()]
        command = self.command(CONSUMER, bootstrap, str(int(TOOL_SECONDS_MAX)), *words)
        passes: list[Consumed] = []
        with Process(command, self.folder, name="consume") as process:
            for topic, _ in topics:
                process.read_line(seconds_max=TOOL_SECONDS_MAX)
                before = sample()
                line = process.read_line(seconds_max=TOOL_SECONDS_MAX)
                passes.append(Consumed(topic=topic, figures=read_consumed(line), before=before, after=sample()))
        return passes

    def steady(
        self, bootstrap: str, topic: str, case: Case, sample: Callable[[], float], *, warm_up_seconds: int, seconds: int
    ) -> Consumed:
        """SteadyWorkload: a producer and a consumer at the rate of the case. `sample` is called where the warm-up ends,
        and at the end."""
        values = str(self.payload_file(case.value_bytes))
        numbers = map(str, (case.rate, warm_up_seconds, seconds))
        with Process(self.command(WORKLOAD, bootstrap, topic, values, *numbers), self.folder, name="steady") as process:
            process.read_line(seconds_max=TOOL_SECONDS_MAX)
            before = sample()
            line = process.read_line(seconds_max=TOOL_SECONDS_MAX)
            after = sample()
            process.wait_ended()
        return Consumed(topic=topic, figures=read_steady(line, case.value_bytes), before=before, after=after)

    def _finish(
        self, command: Sequence[str | Path], *, is_status_ignored: bool = False, seconds_more: float = 0.0
    ) -> str:
        """What a command printed. Raises `subprocess` errors; on a time-out it has been killed.

        `seconds_more`: how long it may take beyond TOOL_SECONDS_MAX.
        """
        done = subprocess.run(
            [os.fspath(word) for word in command],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TOOL_SECONDS_MAX + seconds_more,
            check=not is_status_ignored,
        )
        return done.stdout


def _producer_configs(case: Case) -> Mapping[str, object]:
    return {
        "acks": "all",
        "compression.type": case.compression,
        "batch.size": case.batch_bytes,
        "linger.ms": case.linger_ms,
        "max.request.size": case.request_bytes,
    }


def _words(configs: Mapping[str, object]) -> list[str]:
    return [f"{name}={value}" for name, value in configs.items()]


def make_values(value_bytes: int) -> list[str]:
    """Distinct JSON events of exactly `value_bytes` bytes, `PAYLOAD_BYTES` in all. Equal in every run."""
    source = random.Random(20_250)
    carriers, cities = ("UA", "AA", "DL", "B6", "WN"), ("EWR", "JFK", "LGA", "SFO", "ORD", "ATL", "BOS", "MIA")
    values: list[str] = []
    for number in range(PAYLOAD_BYTES // (value_bytes + 1)):
        text = f'{{"id": {number}, "carrier": "{source.choice(carriers)}", "to": "{source.choice(cities)}"'
        reading = 0
        while len(text) < value_bytes - 60:
            text += f', "reading_{reading}": {source.gauss(20, 5):.3f}'
            reading += 1
        text += ', "note": "'
        note = source.choices("abcdefghijklmnopqrstuvwxyz     ", k=value_bytes - len(text) - 2)
        values.append(f'{text}{"".join(note)}"}}')
    return values
