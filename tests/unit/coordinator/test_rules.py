"""Entries in the form of the first rules are what the last program wrote that knew no others (safety rule S3)."""

import cramjam
import msgspec
import pytest

from coordinator.command_codec import COMPRESSED, Unwritable, decode, encode
from coordinator.commands import Proposal
from coordinator.rules import RULES_FIRST, RULES_NEWEST
from protocol.types import Milliseconds
from tests.golden import golden_bytes
from tests.unit.coordinator.test_command_codec import COMMANDS

KEPT = msgspec.msgpack.decode(golden_bytes("rules_1/commands"), type=dict[str, bytes])


def body_of(entry: bytes) -> bytes:
    """What an entry says, however it is compressed."""
    return bytes(cramjam.zstd.decompress(entry[6:])) if entry[1] == COMPRESSED else entry[2:]


@pytest.mark.parametrize("name", COMMANDS)
def test_s3_an_entry_is_what_an_older_agent_reads_while_its_rules_are_in_force(name: str) -> None:
    """Its bytes and no others: what they cannot say is not written."""
    proposal = Proposal(time_ms=Milliseconds(1_700_000_000_000), command=COMMANDS[name])
    needed = decode(encode(proposal)).form
    if needed > RULES_FIRST:
        with pytest.raises(Unwritable, match=f"comes with rules {needed}, {needed - 1} are in force"):
            encode(proposal, needed - 1)
    else:
        assert body_of(encode(proposal, RULES_FIRST)) == body_of(KEPT[name])


@pytest.mark.parametrize("name", ["start_session", "raise_rules"])
def test_s3_what_older_agents_read_of_newer_ones_never_changes(name: str) -> None:
    """An agent announces newer rules by the one and raises them by the other: those before have to read both."""
    proposal = Proposal(time_ms=Milliseconds(1_700_000_000_000), command=COMMANDS[name])
    assert encode(proposal, RULES_NEWEST) == KEPT[name]
