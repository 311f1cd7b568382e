"""Conversations about users: SCRAM credentials and quotas by kafka-configs, and the log-ins of clients.

Rule: the one of `tests.compat.kafka_java.rights`.
Source: Kafka's documentation (4.3), "Authentication using SASL/SCRAM" and "Setting quotas".
"""

import time
from collections.abc import Callable

from tests.compat.access import ADMIN, MECHANISMS
from tests.compat.access import PASSWORD as ADMIN_PASSWORD
from tests.compat.kafka_java.bench import Bench, assert_same, assert_told
from tests.compat.kafka_java.rights import PASSWORD

REJECTED = "SaslAuthenticationException"
ITERATIONS = 8192


def scram(bench: Bench) -> None:
    """A credential is added, described without a secret, changed and deleted."""
    user = bench.name("bob")
    entity = ("--entity-type", "users", "--entity-name", user)
    bob = bench.as_user(user, PASSWORD)
    assert_told(bob.tell("topics", "--list"), REJECTED)
    # One after the other: Kafka's ScramControlManager rejects two credentials of a user in one request.
    for credential in (
        f"SCRAM-SHA-256=[iterations={ITERATIONS},password={PASSWORD}]",
        f"SCRAM-SHA-512=[password={PASSWORD}]",
    ):
        bench.ask("configs", "--alter", *entity, "--add-config", credential)
    text = bench.ask("configs", "--describe", *entity)
    assert_told(text, f"SCRAM-SHA-256=iterations={ITERATIONS}", "SCRAM-SHA-512=iterations=4096")
    assert PASSWORD not in text, text
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        bench.as_user(user, PASSWORD, mechanism).ask("topics", "--list")
    assert_told(bench.as_user(user, "wrong").tell("topics", "--list"), REJECTED)
    bench.ask("configs", "--alter", *entity, "--add-config", "SCRAM-SHA-512=[password=another]")
    assert_told(bob.tell("topics", "--list"), REJECTED)
    bench.as_user(user, "another").ask("topics", "--list")
    bench.ask("configs", "--alter", *entity, "--delete-config", "SCRAM-SHA-512")
    assert_told(bench.as_user(user, "another").tell("topics", "--list"), REJECTED)
    bench.as_user(user, PASSWORD, "SCRAM-SHA-256").ask("topics", "--list")
    bench.ask("configs", "--alter", *entity, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM" not in bench.ask("configs", "--describe", *entity)


def mechanisms(bench: Bench) -> None:
    """The administrator writes and reads by each mechanism."""
    topic = bench.make_topic()
    for mechanism in MECHANISMS:
        bench.as_user(ADMIN, ADMIN_PASSWORD, mechanism).write(topic, [mechanism])
    assert_same(bench.read(topic, len(MECHANISMS)), list(MECHANISMS), "a value by each mechanism")


def quotas(bench: Bench) -> None:
    """Quotas of users, clients, both, defaults and addresses are set, described and deleted."""
    user = ("--entity-type", "users", "--entity-name", bench.name("bob"))
    client = ("--entity-type", "clients", "--entity-name", bench.name("client"))
    defaults = ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-default")
    rates = "producer_byte_rate=1024000,consumer_byte_rate=2048000,request_percentage=200"
    for entity in (user, client, (*user, *client), defaults):
        bench.ask("configs", "--alter", *entity, "--add-config", rates)
        told = bench.ask("configs", "--describe", *entity)
        assert_told(told, "producer_byte_rate=1024000", "consumer_byte_rate=2048000", "request_percentage=200")
    address = ("--entity-type", "ips", "--entity-name", "198.51.100.7")
    bench.ask("configs", "--alter", *address, "--add-config", "connection_creation_rate=10")
    assert_told(bench.ask("configs", "--describe", *address), "connection_creation_rate=10")
    bench.ask("configs", "--alter", *address, "--delete-config", "connection_creation_rate")
    names = "producer_byte_rate,consumer_byte_rate,request_percentage"
    for entity in (user, client, (*user, *client), defaults):
        bench.ask("configs", "--alter", *entity, "--delete-config", names)
        assert "byte_rate" not in bench.ask("configs", "--describe", *entity)


def throttled(bench: Bench) -> None:
    """A user whose quota is 50 kB/s needs long for what it writes at once without one."""
    topic, entity = bench.make_topic(), ("--entity-type", "users", "--entity-name", ADMIN)
    words = ("--topic", topic, "--num-records", 500, "--record-size", 1_000, "--throughput", -1)
    began_s = time.monotonic()
    bench.ask("produce-perf", *words)
    fast_s = time.monotonic() - began_s
    bench.ask("configs", "--alter", *entity, "--add-config", "producer_byte_rate=50000")
    try:
        began_s = time.monotonic()
        bench.ask("produce-perf", *words, "--command-property", "batch.size=10000")
        slow_s = time.monotonic() - began_s
    finally:
        bench.ask("configs", "--alter", *entity, "--delete-config", "producer_byte_rate")
    assert slow_s > fast_s + 3, f"{slow_s:.1f} s with a quota, {fast_s:.1f} s without"


CONVERSATIONS: dict[str, Callable[[Bench], None]] = {
    "users.scram": scram,
    "users.mechanisms": mechanisms,
    "users.quotas": quotas,
    "users.throttled": throttled,
}
