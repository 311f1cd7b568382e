"""Conversations about transactions: the transactional copier under kills, and kafka-transactions.

Rule: what is read with read_committed is exactly what was committed.
"""

from collections.abc import Callable
from functools import partial

from tests.compat.kafka_java.bench import Bench, assert_same, assert_told, until
from tests.compat.kafka_java.verifiable import RECORDS, SECONDS_MAX, produce
from tests.support.processes import Process

TRANSACTION_RECORDS = 200
PROGRESS_LINES = 5
"""A copier is killed after as many transactions."""


def performance(bench: Bench) -> None:
    """The performance tool commits a transaction every 200 ms, and all of it is read."""
    topic, records = bench.make_topic(3), 50_000
    size = ("--num-records", records, "--record-size", 100, "--throughput", -1)
    transaction = ("--transactional-id", bench.name("id"), "--transaction-duration-ms", 200)
    broker = ("--bootstrap-server", bench.target.bootstrap, "--topic", topic)
    bench.call("produce-perf", *broker, *size, *transaction, seconds_max=SECONDS_MAX)
    found = len(bench.read(topic, records, is_committed=True))
    assert found == records, f"{found} of {records} committed records are read"


def copy(bench: Bench, kills: int, *, is_group: bool = False) -> None:
    """Two copiers, which abort at random and are killed in turn, move every record once."""
    source, target = bench.make_topic(2, what="source"), bench.make_topic(3, what="target")
    values = produce(bench, source)
    copiers = [_start_copier(bench, number, source, target, is_group=is_group) for number in range(2)]
    for turn in range(kills):
        number = turn % 2
        copier = copiers[number]
        copier.wait_until(partial(_has_progressed, copier), "its transactions", seconds_max=SECONDS_MAX)
        copier.kill()
        copiers[number] = _start_copier(bench, number, source, target, is_group=is_group)
    if is_group:
        until("both partitions copied", partial(_is_copied, bench), seconds_max=SECONDS_MAX)
    else:
        for copier in copiers:
            assert copier.wait_ended(seconds_max=SECONDS_MAX) == 0, "a copier failed"
    assert_same(bench.read(target, 2 * RECORDS, is_committed=True), list(map(str, values)), "copied records")


def command(bench: Bench) -> None:
    """A transaction that was left open is looked at, and ended from outside."""
    topic, transactional_id = bench.make_topic(), bench.name("id")
    broker = ("--bootstrap-server", bench.target.bootstrap)
    _leave_open(bench, topic, transactional_id)
    text = bench.call("transactions", *broker, "describe", "--transactional-id", transactional_id)
    assert_told(text, "Ongoing", f"{topic}-0")
    text = bench.call("transactions", *broker, "describe-producers", "--topic", topic, "--partition", 0)
    rows = [row.split() for row in text.splitlines()[1:]]
    assert rows[0][5] != "None", text
    partition = ("--topic", topic, "--partition", 0)
    bench.call("transactions", *broker, "find-hanging", *partition, "--max-transaction-timeout", 15)
    bench.call("transactions", *broker, "forceTerminateTransaction", "--transactionalId", transactional_id)
    until("the transaction's end", lambda: _state(bench, transactional_id) in {"CompleteAbort", "Empty"})
    assert not bench.read(topic, 1, is_committed=True), "aborted records are read"


def abort_hanging(bench: Bench) -> None:
    """What hangs is aborted by its place in the log, and what comes after it is read."""
    topic = bench.make_topic()
    _leave_open(bench, topic, bench.name("id"))
    where = ("--topic", topic, "--partition", 0, "--start-offset", 0)
    bench.call("transactions", "--bootstrap-server", bench.target.bootstrap, "abort", *where)
    bench.write(topic, ["after"])
    assert_same(bench.read(topic, 2, is_committed=True), ["after"], "records after the abort")


def _start_copier(bench: Bench, number: int, source: str, target: str, *, is_group: bool) -> Process:
    words = ("--transactional-id", bench.name(f"id-{number}"), "--consumer-group", bench.name("group"))
    topics = ("--input-topic", source, "--input-partition", number, "--output-topic", target)
    how = ("--transaction-size", TRANSACTION_RECORDS, "--transaction-timeout", 10_000, "--enable-random-aborts")
    group = ("--group-mode", "--use-group-metadata") if is_group else ()
    return bench.start("copier", *words, *topics, *how, *group, address="--broker-list")


def _has_progressed(copier: Process) -> bool:
    return copier.stdout.count("\n") >= PROGRESS_LINES


def _is_copied(bench: Bench) -> bool:
    group = bench.name("group")
    text = bench.ask("groups", "--describe", "--group", group, is_status_ignored=True)
    rows = [line.split() for line in text.splitlines() if line.startswith(group)]
    return len(rows) == 2 and all(row[3].isdigit() for row in rows) and sum(int(row[3]) for row in rows) >= RECORDS


def _leave_open(bench: Bench, topic: str, transactional_id: str) -> None:
    """Kills a producer whose transaction has records."""
    size = ("--num-records", 1_000_000, "--record-size", 50, "--throughput", 200)
    transaction = ("--transactional-id", transactional_id, "--transaction-duration-ms", 600_000)
    producer = bench.start("produce-perf", "--topic", topic, *size, *transaction)
    until("records", lambda: not bench.ask("offsets", "--topic", topic).strip().endswith(":0"))
    producer.kill()


def _state(bench: Bench, transactional_id: str) -> str:
    text = bench.call("transactions", "--bootstrap-server", bench.target.bootstrap, "list")
    rows = [row.split() for row in text.splitlines()]
    return next((row[3] for row in rows if row and row[0] == transactional_id), "")


CONVERSATIONS: dict[str, Callable[[Bench], None]] = {
    "txn.performance": performance,
    "txn.copy": partial(copy, kills=0),
    "txn.copy-killed": partial(copy, kills=3),
    "txn.copy-group-killed": partial(copy, kills=3, is_group=True),
    "txn.command": command,
    "txn.abort-hanging": abort_hanging,
}
