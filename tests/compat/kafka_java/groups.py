"""Conversations about consumer groups: what kafka-consumer-groups shows of them and changes.

Rule: the one of `tests.compat.kafka_java.command_line`.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial

from tests.compat.kafka_java.bench import Bench, assert_same, assert_told, until

MEMBERS_SECONDS_MAX = 60.0


def read_and_reset(bench: Bench, protocol: str) -> None:
    """A group reads, is described, moved in every way, and deleted."""
    topic, group = bench.make_topic(2), bench.name("group")
    values = [str(number) for number in range(100)]
    bench.write(topic, values)
    words = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", len(values))
    read = bench.ask("console-consumer", *words, "--command-property", f"group.protocol={protocol}")
    assert_same(read.split(), values, "what the group read")
    of_group = ("--describe", "--group", group)
    assert group in bench.ask("groups", "--list").split()
    until(
        "the group's last member to leave",
        lambda: bool(re.search(r"\bEmpty\b", bench.ask("groups", *of_group, "--state"))),
    )
    _assert_offsets_and_lag(bench, 100, 0)
    reset = ("--group", group, "--reset-offsets", "--execute", "--topic")
    bench.ask("groups", *reset, topic, "--to-earliest")
    _assert_offsets_and_lag(bench, 0, 100)
    bench.ask("groups", *reset, f"{topic}:0", "--to-offset", 3)
    bench.ask("groups", *reset, topic, "--to-datetime", "2020-01-01T00:00:00.000")
    bench.ask("groups", "--group", group, "--topic", topic, "--delete-offsets")
    assert not _rows(bench, *of_group), "offsets are still there"
    bench.ask("groups", "--group", group, "--delete")
    until("the group's end", lambda: group not in bench.ask("groups", "--list").split())


def members(bench: Bench) -> None:
    """Two members share four partitions, and their group cannot be deleted."""
    topic, group = bench.make_topic(4), bench.name("group")
    for _ in range(2):
        bench.start("verifiable-consumer", "--topic", topic, "--group-id", group)

    def is_shared() -> bool:
        rows = _rows(bench, "--describe", "--group", group, "--members", "--verbose")
        return len(rows) == 2 and all("2" in row for row in rows)

    until("two members with two partitions each", is_shared, seconds_max=MEMBERS_SECONDS_MAX)
    text = bench.ask("groups", "--group", group, "--delete", is_status_ignored=True)
    assert re.search(r"not empty|nonempty", text, re.IGNORECASE), text
    assert_told(bench.ask("all-groups", "--list"), group)


def _assert_offsets_and_lag(bench: Bench, offsets: int, lag: int) -> None:
    """Fails unless the group's committed offsets, and its lag, sum up to these."""
    rows = _rows(bench, "--describe", "--group", bench.name("group"))
    found = sum(int(row[3]) for row in rows), sum(int(row[5]) for row in rows)
    assert found == (offsets, lag), f"offsets and lag sum up to {found}, not {(offsets, lag)}"


def _rows(bench: Bench, *words: object) -> list[Sequence[str]]:
    """The rows of a description that begin with this conversation's group."""
    lines = bench.ask("groups", *words, is_status_ignored=True).splitlines()
    return [line.split() for line in lines if line.startswith(bench.name("group"))]


CONVERSATIONS: dict[str, Callable[[Bench], None]] = {
    "cli.groups": partial(read_and_reset, protocol="classic"),
    "cli.groups-consumer": partial(read_and_reset, protocol="consumer"),
    "cli.groups-members": members,
}
