"""Short runs of real clients: a real Apache Kafka is found without fault, librdkafka's mock cluster at fault."""

from collections import Counter
from pathlib import Path

import pytest

from tests.jepsen.checks.checker import Options, Verdict, check
from tests.jepsen.history.history import History
from tests.jepsen.run import Run, RunSettings
from tests.jepsen.targets import KafkaTarget, MockTarget, Target

COMMITS_MIN = 60
OPTIONS = Options(sub_via=frozenset({"assign", "subscribe"}))


def verdict_of(target: Target, folder: Path, *clients: str, seconds: float, has_faults: bool = False) -> Verdict:
    settings = RunSettings(
        seed=1, seconds=seconds, clients=clients, folder=folder, has_faults=has_faults, commits_min=COMMITS_MIN
    )
    run = Run(settings, target)
    history = History.read(run.run())
    assert not run.problems
    return check(history, OPTIONS)


def oks(verdict: Verdict) -> Counter[str]:
    """How many transactions of each client committed."""
    counts = verdict.call_counts.items()
    return Counter({client: count for (f, kind, client), count in counts if (f, kind) == ("txn", "ok")})


def test_the_negative_control_is_found_at_fault(tmp_path: Path) -> None:
    verdict = verdict_of(MockTarget(), tmp_path, "librdkafka", "librdkafka", seconds=5)
    assert "G1a" in verdict.errors, verdict.summary()
    assert oks(verdict)["librdkafka"] > 10


@pytest.mark.slow
def test_the_positive_control_is_found_without_fault_by_all_clients(tmp_path: Path) -> None:
    clients = ("librdkafka", "java-v1", "java-v2", "franz-go")
    verdict = verdict_of(KafkaTarget(tmp_path / "kafka"), tmp_path, *clients, seconds=30, has_faults=True)
    assert verdict.is_valid, verdict.summary()
    assert verdict.has_final_read
    assert set(oks(verdict)) == set(clients)


@pytest.mark.slow
def test_two_clients_of_one_process_each_leave_a_history_that_is_whole(tmp_path: Path) -> None:
    clients = ("librdkafka", "franz-go")
    verdict = verdict_of(KafkaTarget(tmp_path / "kafka"), tmp_path, *clients, seconds=5)
    assert verdict.is_valid, verdict.summary()
    assert verdict.has_final_read
    assert set(oks(verdict)) == set(clients)
