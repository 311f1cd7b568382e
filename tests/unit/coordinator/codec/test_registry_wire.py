"""Entries and snapshots about schemas that nobody wrote are refused."""

import msgspec
import pytest

from coordinator.codec.registry_wire import WireRegistry
from coordinator.commands.commands import Proposal
from coordinator.commands.registry import (
    Compatibility,
    DeleteVersions,
    RegisterSchema,
    RegistryCommand,
    RegistryMode,
    SchemaContent,
    SchemaReference,
    SchemaType,
    SetCompatibility,
    SetMode,
)
from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.ledger.port import LedgerCorrupt
from coordinator.snapshot import decode_snapshot, digest
from coordinator.state.state import ClusterState
from protocol.types import Milliseconds
from tests.golden import golden_bytes
from tests.support.commands.commands import Cluster
from tests.support.commands.entries import decode, encode
from tests.support.commands.schema_commands import content, register

COMMANDS: dict[str, RegistryCommand] = {
    "register_schema": RegisterSchema(
        subject="orders-value",
        content=SchemaContent(
            schema_type=SchemaType.AVRO,
            text='"string"',
            references=(SchemaReference(name="a.B", subject="b", version=3),),
        ),
        checked_at=1 << 40,
        checked_as=Compatibility.FULL_TRANSITIVE,
    ),
    "import_schema": RegisterSchema(
        subject="s",
        content=SchemaContent(schema_type=SchemaType.PROTOBUF, text="message A {}"),
        checked_at=0,
        checked_as=Compatibility.NONE,
        schema_id=100_001,
        version=7,
    ),
    "delete_schema_version": DeleteVersions(subject="s", version=2, is_permanent=True),
    "delete_subject": DeleteVersions(subject="s", version=None, is_permanent=False),
    "set_compatibility": SetCompatibility(subject="", compatibility=Compatibility.FULL),
    "unset_compatibility": SetCompatibility(subject="s", compatibility=None),
    "set_registry_mode": SetMode(subject="s", mode=RegistryMode.IMPORT, is_forced=True),
    "unset_registry_mode": SetMode(subject="s", mode=None, is_forced=False),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_entry_of_any_age_is_read(name: str) -> None:
    proposal = Proposal(time_ms=Milliseconds(1_700_000_000_000), command=COMMANDS[name])
    assert decode(golden_bytes(f"commands/{name}", encode(proposal, RULES_CHECKED_STORAGE))) == proposal


@pytest.mark.parametrize(
    "command",
    [
        [60, "s", [9, "text"], 0, 0],
        [60, "s", [0, "text"], 0, 99],
        [60, "s", [0, "text", [["n", "s", 0]]], 0, 0],
        [60, "s", [0, "text"], 0, 0, 1 << 31],
        [61, "s", 0, True],
        [62, "s", 99],
        [63, "s", 99, False],
    ],
)
def test_a_command_out_of_range_cannot_be_read(command: list[object]) -> None:
    with pytest.raises(LedgerCorrupt):
        decode(b"\x01\x00" + msgspec.msgpack.encode([None, command]))


def test_a_snapshot_of_any_age_is_read() -> None:
    cluster = Cluster.started()
    cluster.do(register(cluster, "a", "one"))
    cluster.do(register(cluster, "b", content("two", ("a", 1))))
    copy = decode_snapshot(golden_bytes("snapshots/with_schemas"))
    assert copy.registry == cluster.state.registry
    assert digest(copy) == digest(cluster.state)


def test_a_registry_that_refers_to_no_schema_cannot_be_read() -> None:
    with pytest.raises(KeyError):
        WireRegistry(subjects=[("a", 1, [(1, 7, False)])]).registry()


def test_an_empty_registry_is_the_one_of_a_snapshot_that_knows_none() -> None:
    assert WireRegistry().registry() == ClusterState.empty("c", 1).registry
