"""The client libraries of a run, and how the program of each is started.

Rule: every program takes the same arguments and speaks the same lines (`tests.jepsen.workload.librdkafka_worker`).
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.support.processes import provided
from tests.support.services.java import KAFKA_LOGGING, compile_source
from tools import go_clients, jars, java_runtime
from tools.steps import ROOT

Command = tuple[str, ...]
"""Without its arguments: bootstrap, transactional id, group, transaction's time-out in milliseconds."""


def librdkafka(_folder: Path) -> Command:
    """Transactions V1."""
    return (sys.executable, "-m", "tests.jepsen.workload.librdkafka_worker")


def java(jar_set: str, folder: Path) -> Command:
    """Kafka's own client, of the jars of a set (`tools.jars`)."""
    classes, logging = folder / f"classes-{jar_set}", folder / "log4j2.properties"
    classes.mkdir(parents=True)
    logging.write_text(KAFKA_LOGGING, encoding="utf-8")
    program = compile_source(
        ROOT / "tests" / "jepsen" / "java" / "JepsenWorker.java",
        classes,
        java=provided(java_runtime.java_home()) / "bin" / "java",
        kafka_jars=provided(jars.jar_folder(jar_set)),
    )
    runtime, *rest = program.command()
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={logging}")
    return (runtime, *options, *rest)


def franz_go(_folder: Path) -> Command:
    """Transactions V2."""
    return (str(provided(go_clients.go_client("jepsen"))),)


CLIENTS: Mapping[str, Callable[[Path], Command]] = {
    "librdkafka": librdkafka,
    "java-v1": partial(java, "kafka-v1"),
    "java-v2": partial(java, "kafka"),
    "franz-go": franz_go,
}
"""By name; the folder takes what is compiled."""

ENVIRONMENT: Mapping[str, str] = {"PYTHONPATH": str(ROOT)}
