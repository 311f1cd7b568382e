"""Conversations about ACLs: kafka-acls by the letter of Kafka's documentation, and what users may do then.

Rule: every right is tried before it is given, and after it is taken back. The administrator is a super user, and who
has no ACL may do nothing.
Source: Kafka's documentation (4.3), "Authorization and ACLs", "Examples".
"""

import re
from collections.abc import Callable

from tests.compat.kafka_java.bench import QUIET_MS, Bench, assert_same, assert_told

ENTRY = re.compile(r"principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)\)")
RESOURCE = re.compile(r"resourceType=(\w+), name=(\S+), patternType=(\w+)\)")
PASSWORD = "builder"
DENIED_TOPIC, DENIED_GROUP, DENIED_ID = (
    f"{word}AuthorizationException" for word in ("Topic", "Group", "TransactionalId")
)


def documentation(bench: Bench) -> None:
    """The examples of the documentation, each as it stands there."""
    topic, prefix = bench.name("Test-topic"), bench.name("Test-")
    both = ("--allow-principal", "User:Bob", "--allow-principal", "User:Alice")
    hosts = ("--allow-host", "198.51.100.0", "--allow-host", "198.51.100.1")
    operations = ("--operation", "Read", "--operation", "Write", "--topic", topic)
    bench.ask("acls", "--add", *both, *hosts, *operations)
    found = _entries(bench, "--topic", topic)
    wanted = [
        (f"User:{user}", host, operation, "ALLOW")
        for user in ("Bob", "Alice")
        for host in ("198.51.100.0", "198.51.100.1")
        for operation in ("READ", "WRITE")
    ]
    assert_same(found, wanted, "two users from two hosts")
    bad = ("--deny-principal", "User:BadBob", "--deny-host", "198.51.100.3")
    everybody = ("--allow-principal", "User:*", "--allow-host", "*")
    bench.ask("acls", "--add", *everybody, *bad, "--operation", "Read", "--topic", topic)
    denied = [("User:BadBob", "198.51.100.3", "READ", "DENY"), ("User:*", "*", "READ", "ALLOW")]
    assert_same(_entries(bench, "--topic", topic), [*wanted, *denied], "everybody but one user from one host")
    peter = ("--allow-principal", "User:Peter", "--allow-host", "198.51.200.1")
    bench.ask("acls", "--add", *peter, "--producer", "--topic", "*")
    rights = ("DESCRIBE", "CREATE", "WRITE")
    produced = [("User:Peter", "198.51.200.1", operation, "ALLOW") for operation in rights]
    assert_same(_entries(bench, "--topic", "*"), produced, "a producer of any topic")
    jane = ("--allow-principal", "User:Jane", "--producer", "--topic", prefix)
    bench.ask("acls", "--add", *jane, "--resource-pattern-type", "prefixed")
    prefixed = ("--topic", prefix, "--resource-pattern-type", "prefixed")
    assert_same(
        _entries(bench, *prefixed), [("User:Jane", "*", operation, "ALLOW") for operation in rights], "a prefix"
    )
    matching = bench.ask("acls", "--list", "--topic", topic, "--resource-pattern-type", "match")
    assert_same(
        RESOURCE.findall(matching),
        [("TOPIC", topic, "LITERAL"), ("TOPIC", "*", "LITERAL"), ("TOPIC", prefix, "PREFIXED")],
        "resources that match a topic",
    )
    assert_told(bench.ask("acls", "--list", "--principal", "User:Jane"), prefix)
    bench.ask("acls", "--remove", "--force", *both, *hosts, *operations)
    assert_same(_entries(bench, "--topic", topic), denied, "what is left after the removal")
    bench.ask("acls", "--remove", "--force", *peter, "--producer", "--topic", "*")
    bench.ask("acls", "--remove", "--force", *jane, "--resource-pattern-type", "prefixed")
    bench.ask("acls", "--remove", "--force", "--topic", topic)
    for where in (("--topic", topic), ("--topic", "*"), prefixed):
        assert not _entries(bench, *where), "ACLs are left"


def producer_and_consumer(bench: Bench) -> None:
    """--producer and --consumer give what the console clients need, and take it back."""
    topic, group, bob = bench.make_topic(), bench.name("group"), make_user(bench, "bob")
    assert_told(_write(bob, topic, "denied"), DENIED_TOPIC)
    principal = ("--allow-principal", _principal(bob))
    bench.ask("acls", "--add", *principal, "--producer", "--topic", topic)
    assert DENIED_TOPIC not in _write(bob, topic, "allowed")
    assert_told(_read(bob, topic, group), DENIED_GROUP)
    consumer = (*principal, "--consumer", "--topic", topic, "--group", group)
    bench.ask("acls", "--add", *consumer)
    read = bob.ask("console-consumer", *_reading(topic, group))
    assert_same(read.split(), ["allowed"], "what bob reads")
    bench.ask("acls", "--remove", "--force", *consumer)
    assert_told(_read(bob, topic, group), DENIED_GROUP)
    bench.ask("acls", "--remove", "--force", *principal, "--producer", "--topic", topic)
    assert_told(_write(bob, topic, "denied again"), DENIED_TOPIC)
    assert_same(bench.read(topic, 1), ["allowed"], "what was written")


def deny(bench: Bench) -> None:
    """A denial counts more than any permission."""
    topic, bob = bench.make_topic(), make_user(bench, "bob")
    allowed = ("--allow-principal", "User:*", "--operation", "All", "--topic", "*")
    bench.ask("acls", "--add", *allowed)
    assert DENIED_TOPIC not in _write(bob, topic, "allowed")
    denied = ("--deny-principal", _principal(bob), "--operation", "Write", "--topic", topic)
    bench.ask("acls", "--add", *denied)
    assert_told(_write(bob, topic, "denied"), DENIED_TOPIC)
    bench.ask("acls", "--remove", "--force", *denied)
    assert DENIED_TOPIC not in _write(bob, topic, "allowed")
    bench.ask("acls", "--remove", "--force", *allowed)
    assert_told(_write(bob, topic, "denied"), DENIED_TOPIC)


def prefixed(bench: Bench) -> None:
    """A prefix allows the topics whose names begin with it, which their user may create, and no others."""
    bob = make_user(bench, "bob")
    where = ("--topic", bench.name("mine-"), "--resource-pattern-type", "prefixed")
    bench.ask("acls", "--add", "--allow-principal", _principal(bob), "--operation", "All", *where)
    topic = bob.make_topic(what="mine-1")
    assert DENIED_TOPIC not in _write(bob, topic, "allowed")
    text = bob.tell("topics", "--create", "--topic", bench.name("min"), "--partitions", 1, "--replication-factor", 1)
    assert_told(text, DENIED_TOPIC)
    other = bench.make_topic(what="other")
    seen = bob.ask("topics", "--list").split()
    assert topic in seen, seen
    assert other not in seen, seen


def of_groups(bench: Bench) -> None:
    """A group is shown to whom it may be described, and deleted by whom it may be deleted."""
    topic, group, bob = bench.make_topic(), bench.name("group"), make_user(bench, "bob")
    bench.write(topic, ["1"])
    bench.ask("console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", 1)
    assert_told(bob.tell("groups", "--describe", "--group", group), DENIED_GROUP)
    assert group not in bob.ask("groups", "--list").split()
    principal = ("--allow-principal", _principal(bob), "--group", group, "--operation")
    bench.ask("acls", "--add", *principal, "Describe")
    assert group in bob.ask("groups", "--list").split()
    assert_told(bob.tell("groups", "--delete", "--group", group), DENIED_GROUP)
    bench.ask("acls", "--add", *principal, "Delete")
    bob.ask("groups", "--delete", "--group", group)
    assert group not in bench.ask("groups", "--list").split()


def transactional(bench: Bench) -> None:
    """A transactional producer needs its id, too."""
    topic, transactional_id, bob = bench.make_topic(), bench.name("id"), make_user(bench, "bob")
    records = ("--topic", topic, "--num-records", 100, "--record-size", 10, "--throughput", -1)
    words = (*records, "--transactional-id", transactional_id, "--transaction-duration-ms", 1_000)
    principal = ("--allow-principal", _principal(bob))
    bench.ask("acls", "--add", *principal, "--producer", "--topic", topic)
    assert_told(bob.tell("produce-perf", *words), DENIED_ID)
    added = (*principal, "--producer", "--topic", topic, "--transactional-id", transactional_id)
    bench.ask("acls", "--add", *added)
    assert_told(bob.ask("produce-perf", *words), "100 records sent")
    found = _entries(bench, "--transactional-id", transactional_id)
    assert_same(found, [(_principal(bob), "*", each, "ALLOW") for each in ("WRITE", "DESCRIBE")], "ACLs of the id")
    assert len(bench.read(topic, 100, is_committed=True)) == 100


def of_the_cluster(bench: Bench) -> None:
    """--cluster gives rights over the cluster: another administrator."""
    bob = make_user(bench, "bob")
    assert_told(bob.tell("acls", "--list"), "ClusterAuthorizationException")
    operations = ("--operation", "Alter", "--operation", "Describe", "--cluster")
    bench.ask("acls", "--add", "--allow-principal", _principal(bob), *operations)
    topic = bench.name("of-bob")
    bob.ask("acls", "--add", "--allow-principal", "User:eve", "--operation", "Read", "--topic", topic)
    assert_same(_entries(bob, "--topic", topic), [("User:eve", "*", "READ", "ALLOW")], "an ACL by bob")


def make_user(bench: Bench, name: str) -> Bench:
    """The bench of a new user, whose name begins with that of the conversation."""
    user = bench.name(name)
    entity = ("--entity-type", "users", "--entity-name", user)
    bench.ask("configs", "--alter", *entity, "--add-config", f"SCRAM-SHA-512=[password={PASSWORD}]")
    return bench.as_user(user, PASSWORD)


def _principal(bench: Bench) -> str:
    assert bench.target.access is not None
    return f"User:{bench.target.access.user}"


def _write(bench: Bench, topic: str, value: str) -> str:
    """All that the console producer says."""
    return bench.tell("console-producer", "--topic", topic, text=f"{value}\n")


def _read(bench: Bench, topic: str, group: str) -> str:
    """All that the console consumer says."""
    return bench.tell("console-consumer", *_reading(topic, group))


def _reading(topic: str, group: str) -> tuple[object, ...]:
    """Words of the console consumer for the first value of a group."""
    return ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", 1, "--timeout-ms", QUIET_MS)


def _entries(bench: Bench, *where: object) -> list[tuple[str, ...]]:
    """Principal, host, operation and permission of each ACL that is listed."""
    return [tuple(found) for found in ENTRY.findall(bench.ask("acls", "--list", *where))]


CONVERSATIONS: dict[str, Callable[[Bench], None]] = {
    "acls.documentation": documentation,
    "acls.producer-consumer": producer_and_consumer,
    "acls.deny": deny,
    "acls.prefixed": prefixed,
    "acls.groups": of_groups,
    "acls.transactional": transactional,
    "acls.cluster": of_the_cluster,
}
