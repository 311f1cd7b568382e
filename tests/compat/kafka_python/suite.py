"""Runs kafka-python's integration tests against a broker: its own pytest files, each in a pytest of its own.

Rule: its tests are not changed. What its source distribution lacks is laid beside them, in the run's folder.
"""

import json
import shutil
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.compat.access import SASL_PLAINTEXT, SASL_SSL, SSL
from tests.compat.kafka_java.distribution import write_distribution
from tests.compat.outcomes import Outcome, State
from tests.compat.suites import Part, Suite
from tests.compat.target import Target, provided_java
from tests.support.processes import Process, ProcessFailed, provided
from tools import pins
from tools.kafka_python import kafka_python_folder

FILES = ("admin", "consumer", "producer")
"""Files that take a broker as it is."""
OF_SEVERAL_BROKERS = "not (test_delete_records and not with_errors)"
"""What is run on several brokers (pytest -k): test_delete_records takes what one poll returns for what all have."""
OF_A_RACE = "test_kafka_consumer_max_bytes_simple"
"""Run again where it fails: see FINDINGS.md. A consumer of kafka-python 3.0.12 that subscribes while the answer to its
first request for metadata is on its way does not ask for its topics for five minutes."""
TEST_SECONDS_MAX = 60
FILE_SECONDS_MAX = 900.0
OF_GROUPS = "group or consumer or transactional"
STAND_IN, PLUGIN = Path(__file__).with_name("service.py"), Path(__file__).with_name("protected_broker.py")


def run_tests(files: Sequence[str], target: Target, folder: Path, only: str) -> Iterator[Outcome]:
    """Runs the tests whose names hold `only` (pytest's -k)."""
    shutil.copytree(provided(kafka_python_folder()) / "test", folder / "test")
    (folder / "test" / "__init__.py").touch()
    shutil.copy(STAND_IN, folder / "test" / "service.py")
    if target.access is None:
        (folder / "kafka").mkdir()
    else:
        shutil.copy(PLUGIN, folder)
        shutil.copy(target.access.ca, folder / "ca-cert")
        write_distribution(folder / "kafka", provided_java(), target.access)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for file in files:
        outcomes = list(_run_file(file, target, folder, only))
        yield from outcomes
        if any(each.state is State.FAILED and each.name.endswith(f"::{OF_A_RACE}") for each in outcomes):
            yield from _run_file(file, target, folder, OF_A_RACE)


def _run_file(file: str, target: Target, folder: Path, only: str) -> Iterator[Outcome]:
    report = folder / f"{file}.xml"
    tests = f"test/integration/test_{file}_integration.py"
    chosen = [f"({only})"] if only else []
    chosen += [OF_SEVERAL_BROKERS] if target.agents_count > 1 else []
    first = target.bootstrap.partition(",")[0]
    command: list[str | Path] = [sys.executable, "-m", "pytest", tests, "-q"]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", f"--junitxml={report}"]
    command += [f"--timeout={TEST_SECONDS_MAX}", "--timeout-method=thread"]
    command += ["-k", " and ".join(chosen)] if chosen else []
    env = {"KAFKA_VERSION": "4.3.1", "KAFKA_ROOT": str(folder / "kafka")}
    if target.access is None:
        env["KAFKA_URI"] = f"kafka://{first}"
    else:
        command += ["-p", PLUGIN.stem]
        env["PROTECTED_BROKER"] = json.dumps(
            [first, target.access.protocol, target.access.user, target.access.password]
        )
    with Process(command, folder, name=file, env=env) as process:
        try:
            process.wait_ended(seconds_max=FILE_SECONDS_MAX)
        except ProcessFailed as failure:
            yield Outcome(name=file, state=State.FAILED, note=str(failure))
            return
    if not report.exists():
        yield Outcome(name=file, state=State.FAILED, note=f"pytest told nothing: {process.stdout[-200:]}")
        return
    yield from read_report(file, report.read_text(encoding="utf-8"))


def read_report(file: str, xml: str) -> Iterator[Outcome]:
    """The outcomes in a report of pytest (JUnit's format)."""
    for case in ET.fromstring(xml).iter("testcase"):
        state, note = State.PASSED, ""
        for kind, meant in (("failure", State.FAILED), ("error", State.FAILED), ("skipped", State.SKIPPED)):
            for found in case.iter(kind):
                state, note = meant, found.get("message", "")
        name = f"{file}::{case.get('name', '')}".replace(" ", "_")
        yield Outcome(name=name, state=state, seconds=float(case.get("time", 0)), note=note)


KAFKA_PYTHON = Suite(
    name="kafka_python",
    title="kafka-python's integration tests",
    version=pins.KAFKA_PYTHON[1],
    folder=Path(__file__).parent,
    of_groups=OF_GROUPS,
    parts=(Part(run=partial(run_tests, FILES), has_racks=True),),
)
KAFKA_PYTHON_SECURED = Suite(
    name="kafka_python_secured",
    title="kafka-python's tests about TLS and SASL, and its others over SASL_SSL",
    version=pins.KAFKA_PYTHON[1],
    folder=Path(__file__).parent / "secured",
    of_groups=OF_GROUPS,
    parts=(
        Part(run=partial(run_tests, ("sasl",)), protocol=SASL_PLAINTEXT),
        Part(run=partial(run_tests, ("ssl",)), protocol=SSL, settings={"ssl.client.auth": "requested"}),
        Part(run=partial(run_tests, FILES), protocol=SASL_SSL, has_racks=True),
    ),
)
