"""Kafka's tools manage ACLs and SCRAM users, by the letter of Kafka's documentation (4.3, "Authorization and ACLs")."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.services.java import JavaProgram
from tests.support.services.local_services import PenstockFactory

TOOLS = Path(__file__).parents[1] / "java" / "SecurityTools.java"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ENTRY = re.compile(r"principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)\)")
Tools = Callable[..., Sequence[str]]
BOB_AND_ALICE = (
    "--allow-principal User:Bob --allow-principal User:Alice --allow-host 198.51.100.0 --allow-host 198.51.100.1 "
    "--operation Read --operation Write --topic Test-topic"
)


@pytest.fixture
def tools(compile_java: Callable[[Path], JavaProgram], tmp_path: Path) -> Tools:
    """Runs tools in one process, and returns what each prints."""

    def run(bootstrap: str, *commands: str) -> Sequence[str]:
        lines = []
        for command in commands:
            tool, *words = command.split(" ")
            lines.append("\t".join([tool, "--bootstrap-server", bootstrap, *words]))
        script = tmp_path / "tools.txt"
        script.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return compile_java(TOOLS).run(str(script)).split("\f")[1:]

    return run


def entries(output: str) -> set[tuple[str, ...]]:
    """Principal, host, operation and permission of the listed ACLs."""
    return set(ENTRY.findall(output))


def test_acls_of_kafkas_documentation_are_added_listed_and_removed(penstock: PenstockFactory, tools: Tools) -> None:
    broker = penstock(settings=AUTHORIZER)
    outputs = tools(
        broker.bootstrap,
        f"acls --add {BOB_AND_ALICE}",
        "acls --add --allow-principal User:* --allow-host * --deny-principal User:BadBob --deny-host 198.51.100.3 "
        "--operation Read --topic Test-topic",
        "acls --add --allow-principal User:Peter --allow-host 198.51.200.1 --producer --topic *",
        "acls --add --allow-principal User:Jane --producer --topic Test- --resource-pattern-type prefixed",
        "acls --list --topic Test-topic",
        "acls --list --topic *",
        "acls --list --topic Test-topic --resource-pattern-type match",
        f"acls --remove --force {BOB_AND_ALICE}",
        "acls --add --allow-principal User:Bob --consumer --topic Test-topic --group Group-1",
        "acls --list --principal User:Bob",
        "acls --remove --force --topic Test-topic",
        "acls --list",
    )
    bob_and_alice = {
        (f"User:{name}", f"198.51.100.{host}", operation, "ALLOW")
        for name in ("Bob", "Alice")
        for host in (0, 1)
        for operation in ("READ", "WRITE")
    }
    everyone = {("User:*", "*", "READ", "ALLOW"), ("User:BadBob", "198.51.100.3", "READ", "DENY")}
    peter = {("User:Peter", "198.51.200.1", operation, "ALLOW") for operation in ("CREATE", "WRITE", "DESCRIBE")}
    jane = {("User:Jane", "*", operation, "ALLOW") for operation in ("CREATE", "WRITE", "DESCRIBE")}
    bob = {("User:Bob", "*", operation, "ALLOW") for operation in ("READ", "DESCRIBE")}
    assert entries(outputs[4]) == bob_and_alice | everyone
    assert entries(outputs[5]) == peter
    assert entries(outputs[6]) == bob_and_alice | everyone | peter | jane
    assert entries(outputs[9]) == bob
    assert "patternType=PREFIXED" in outputs[-1]
    assert entries(outputs[-1]) == peter | jane | {("User:Bob", "*", "READ", "ALLOW")}


def test_scram_users_are_created_described_and_deleted(penstock: PenstockFactory, tools: Tools) -> None:
    users = "--entity-type users --entity-name alice"
    outputs = tools(
        penstock().bootstrap,
        f"configs --alter --add-config SCRAM-SHA-256=[iterations=8192,password=alice-secret] {users}",
        f"configs --alter --add-config SCRAM-SHA-512=[password=alice-secret] {users}",
        f"configs --describe {users}",
        f"configs --alter --delete-config SCRAM-SHA-256 {users}",
        "configs --describe --entity-type users",
    )
    assert "Completed updating config for user alice." in outputs[0]
    found = "SCRAM credential configs for user-principal 'alice' are "
    assert f"{found}SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096" in outputs[2]
    assert f"{found}SCRAM-SHA-512=iterations=4096" in outputs[4]
    assert not any("alice-secret" in output for output in outputs)
