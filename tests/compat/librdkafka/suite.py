"""Runs librdkafka's test-runner against a broker, a process for each test number.

Rule: several tests judge by the clock, so what fails beside others is run once more alone, with more time, and that
counts.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.compat.access import PLAINTEXT, SASL_SSL, SSL
from tests.compat.kafka_java.distribution import write_distribution
from tests.compat.librdkafka.report import read_report
from tests.compat.librdkafka.table import Planned, Scenario, planned, scenario_tests
from tests.compat.outcomes import Outcome, State
from tests.compat.suites import Part, Suite
from tests.compat.target import JavaHome, Target, provided_java
from tests.support.processes import Process, ProcessFailed
from tests.support.services.java import compile_source
from tools.librdkafka import ensure_librdkafka

AT_A_TIME = 3
OF_GROUPS = (
    "0014,0018,0029,0030,0031,0033,0045,0050,0056,0061,0069,0081,0084,0089,0091,0093,0098,0099,0102,0103,"
    "0107,0111,0113,0118,0122,0125,0127,0129,0130,0132,0137,0140"
)
"""Without 0019: behind one address its `list_groups` finds each group once for every agent (docs/known-limits.md)."""
FIRST, ALONE = "first", "alone"
"""Attempts at a test."""
TEST_SECONDS_MAX = 400.0
SESSION_MS = 5_000
"""How long a session lasts until the client must authenticate again, in the tests about it."""
ALONE_TIMEOUT_MULTIPLIER = 1.5
"""Of the test-runner's own time limits, most of which it multiplies twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRunner:
    """The test-runner and what it is told: a folder for its output, the broker's address."""

    __test__ = False

    home: Path
    folder: Path
    target: Target
    scenario: Scenario
    names: Sequence[str]
    """Tests of this scenario."""

    def run(self, test: Planned, attempt: str = FIRST) -> list[Outcome]:
        """Runs the tests of a number to their end, or to the end of their time. `attempt`: `FIRST` or `ALONE`."""
        wanted = [name for name in self.names if name.startswith(test.number)]
        with Process(
            [self.home / "tests" / "test-runner", "-p1", *self._options(test)],
            self.folder / "tests",
            name=f"{test.named(test.number)}-{self.scenario.value}-{attempt}",
            env={**self._environment(attempt), "TESTS": test.number, **({"SUBTESTS": test.part} if test.part else {})},
        ) as process:
            try:
                otherwise = f"ended with status {process.wait_ended(seconds_max=TEST_SECONDS_MAX)}"
            except ProcessFailed:
                otherwise = f"took over {TEST_SECONDS_MAX:.0f} s"
        outcomes = read_report(
            process.stdout + process.stderr, wanted, otherwise, may_be_idle=self.scenario is Scenario.CLIENT
        )
        return [replace(outcome, name=test.named(outcome.name)) for outcome in outcomes]

    def _options(self, test: Planned) -> Iterator[str]:
        yield "-l" if self.scenario is Scenario.CLIENT else "-L"
        if self.scenario is not Scenario.SOCKETS:
            yield "-E"
        if self.scenario is Scenario.NO_AUTO_CREATE:
            yield from ("-s", self.scenario.value)
        if test.is_quick:
            yield "-Q"

    def _environment(self, attempt: str) -> dict[str, str]:
        return {
            "LD_LIBRARY_PATH": str(self.home / "src"),
            "RDKAFKA_TEST_CONF": str(self.folder / f"{attempt}.conf"),
            "TEST_KAFKA_VERSION": "4.3.1",
            "KAFKA_PATH": str(self.folder / "kafka"),
            "BROKERS": self.target.bootstrap,
            **(
                self.target.access.trivup()
                if self.target.access and self.scenario in (Scenario.TLS, Scenario.OIDC)
                else {}
            ),
        }


def run_scenario(scenario: Scenario, target: Target, folder: Path, only: str) -> Iterator[Outcome]:
    """Runs the tests of a scenario whose names begin with one of the words in `only`, several at a time."""
    runner = make_runner(scenario, target, folder, provided_java())
    words = tuple(only.split(","))
    tests = [
        test
        for test in planned(scenario)
        if any(test.named(name).startswith(words) for name in runner.names if name.startswith(test.number))
    ]
    failed: list[Planned] = []
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        for test, outcomes in zip(tests, threads.map(runner.run, tests), strict=True):
            yield from outcomes
            if any(outcome.state is State.FAILED for outcome in outcomes):
                failed.append(test)
    for test in failed:
        yield from runner.run(test, ALONE)


def make_runner(scenario: Scenario, target: Target, folder: Path, java: JavaHome) -> TestRunner:
    """Lays down what the test-runner reads: its configuration, the schema of statistics, what it calls of Java."""
    home = ensure_librdkafka()
    folder.mkdir(parents=True)
    (folder / "src").symlink_to(home / "src")
    for attempt, multiplier in ((FIRST, 1), (ALONE, ALONE_TIMEOUT_MULTIPLIER)):
        settings: dict[str, object] = {
            "bootstrap.servers": target.bootstrap,
            **(target.access.librdkafka() if target.access else {}),
            "test.topic.random": "true",
            "test.timeout.multiplier": multiplier,
        }
        (folder / f"{attempt}.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    write_distribution(folder / "kafka", java, target.access)
    (folder / "tests").mkdir()
    (folder / "tests" / "fixtures").symlink_to(home / "tests" / "fixtures")
    _write_java_producer(home / "tests" / "java" / "TransactionProducerCli.java", folder / "tests" / "java", java)
    source = (home / "tests" / "test.c").read_text(encoding="utf-8")
    return TestRunner(
        home=home,
        folder=folder,
        target=target,
        scenario=scenario,
        names=scenario_tests(source, scenario),
    )


def _write_java_producer(source: Path, folder: Path, java: JavaHome) -> None:
    """Compiles what 0098 starts by `run-class.sh`: its `make java` finds the folder there, and nothing to be done."""
    folder.mkdir()
    program = compile_source(source, folder, java=java.java, kafka_jars=java.jars)
    script = folder / "run-class.sh"
    script.write_text(f'#!/bin/sh\nexec "{java.java}" -XX:TieredStopAtLevel=1 -cp "{program.class_path}" "$@"\n')
    script.chmod(0o755)


def _parts(protocol: str) -> tuple[Part, ...]:
    """All scenarios of a broker whose listener has this protocol."""
    patient, no_topics = {"group.initial.rebalance.delay.ms": "3000"}, {"auto.create.topics.enable": "false"}
    return (
        Part(run=partial(run_scenario, Scenario.DEFAULT), protocol=protocol, has_racks=True),
        Part(run=partial(run_scenario, Scenario.SOCKETS), protocol=protocol, has_racks=True),
        Part(run=partial(run_scenario, Scenario.PATIENT), protocol=protocol, settings=patient),
        Part(run=partial(run_scenario, Scenario.NO_AUTO_CREATE), protocol=protocol, settings=no_topics),
    )


LIBRDKAFKA = Suite(
    name="librdkafka",
    title="librdkafka's tests of a broker",
    version="2.15.1",
    folder=Path(__file__).parent,
    of_groups=OF_GROUPS,
    kafka_brokers_count=3,
    parts=_parts(PLAINTEXT),
)
LIBRDKAFKA_SECURED = Suite(
    name="librdkafka_secured",
    title="librdkafka's tests about TLS and SASL, and those of a broker over SASL_SSL",
    version="2.15.1",
    folder=Path(__file__).parent / "secured",
    of_groups=OF_GROUPS,
    kafka_brokers_count=3,
    parts=(
        Part(run=partial(run_scenario, Scenario.CLIENT)),
        Part(run=partial(run_scenario, Scenario.TLS), protocol=SSL, settings={"ssl.enabled.protocols": "TLSv1.2"}),
        Part(
            run=partial(run_scenario, Scenario.SASL),
            protocol=SASL_SSL,
            settings={"connections.max.reauth.ms": str(SESSION_MS)},
        ),
        Part(
            run=partial(run_scenario, Scenario.OIDC),
            protocol=SASL_SSL,
            has_issuer=True,
            settings={"connections.max.reauth.ms": str(SESSION_MS)},
        ),
        *_parts(SASL_SSL),
    ),
)
