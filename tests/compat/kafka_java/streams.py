"""Kafka's smoke test of Kafka Streams, exactly once: its application is killed while it works.

Rule: the verdict is the test's own driver's, which knows what it sent and what must come of it.
"""

from collections.abc import Callable
from functools import partial

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.kafka_java.bench import Bench
from tests.support.processes import Process

TOPICS = (
    *("echo", "data", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw", "sws-suppressed"),
    *("dif", "cnt", "avg", "wcnt", "tagg"),
)
PARTITIONS = 5
KILLS = 2
PROGRESS_LINES = 5
"""The application tells of every hundredth record; it is killed after as many."""
DRIVER_SECONDS_MAX = 480.0
HEAP = "700m"


def smoke(bench: Bench) -> None:
    """All records are delivered, and what the application made of them is right, though it is killed twice."""
    admin = AdminClient({"bootstrap.servers": bench.target.bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in TOPICS]).values():
        made.result(60)
    properties = _write_properties(bench)
    application = _start(bench, properties, "process")
    driver = _start(bench, properties, "run")
    for _ in range(KILLS):
        application.wait_until(partial(_has_progressed, application), "its progress", seconds_max=DRIVER_SECONDS_MAX)
        application.kill()
        application = _start(bench, properties, "process")
    driver.wait_ended(seconds_max=DRIVER_SECONDS_MAX)
    told = driver.stdout
    assert "ALL-RECORDS-DELIVERED" in told, told[-500:]
    assert "SUCCESS" in told.split(), told[-500:]


def _write_properties(bench: Bench) -> str:
    settings = {
        "bootstrap.servers": bench.target.bootstrap,
        "processing.guarantee": "exactly_once_v2",
        "commit.interval.ms": "1000",
        "num.stream.threads": "2",
        "session.timeout.ms": "10000",
        "state.dir": str(bench.folder / bench.name("state")),
        "acks": "all",
    }
    file = bench.folder / f"{bench.name('settings')}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return str(file)


def _start(bench: Bench, properties: str, what: str) -> Process:
    return bench.start("streams-smoke", properties, what, address="", heap=HEAP)


def _has_progressed(application: Process) -> bool:
    return application.stdout.count("processed") >= PROGRESS_LINES


CONVERSATIONS: dict[str, Callable[[Bench], None]] = {"streams.smoke": smoke}
