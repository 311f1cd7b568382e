"""What the last program wrote and computed that knew the first rules alone: this one does the same under them (S3).

`golden/rules_1/logs.zst`: the ledgers of five simulated worlds with every kind of client, and digests of the states on
the way. That program wrote them, so nothing can write them again.
"""

from itertools import pairwise

import cramjam
import msgspec
import pytest

from coordinator.apply.apply import apply
from coordinator.codec.codec import COMPRESSED, FORMAT_CHECKED, Unwritable
from coordinator.commands.commands import Proposal
from coordinator.commands.rules import RULES_CHECKED_ENTRIES, RULES_CHECKED_STORAGE, RULES_FIRST, RULES_NEWEST
from coordinator.invariants import check
from coordinator.ledger.port import LedgerRecord
from coordinator.snapshot import digest
from coordinator.state.state import ClusterState
from protocol.types import Milliseconds, Position, SessionId
from tests.golden import FOLDER, golden_bytes
from tests.support.commands.entries import decode, encode, since_of
from tests.support.commands.every_command import COMMANDS

KEPT = msgspec.msgpack.decode(golden_bytes("rules_1/commands"), type=dict[str, bytes])


def body_of(entry: bytes) -> bytes:
    """What an entry says, however it is compressed."""
    header_bytes = 6 if entry[0] == FORMAT_CHECKED else 2
    return bytes(cramjam.zstd.decompress(entry[header_bytes + 4 :])) if entry[1] == COMPRESSED else entry[header_bytes:]


@pytest.mark.parametrize("name", COMMANDS)
def test_s3_an_entry_is_what_an_older_agent_reads_while_its_rules_are_in_force(name: str) -> None:
    """Its bytes and no others: what they cannot say is not written."""
    proposal = Proposal(time_ms=Milliseconds(1_700_000_000_000), command=COMMANDS[name])
    needed = decode(encode(proposal, max(RULES_CHECKED_STORAGE, since_of(proposal.command)))).form
    if needed > RULES_FIRST:
        with pytest.raises(Unwritable, match=f"comes with rules {needed}, {needed - 1} are in force"):
            encode(proposal, needed - 1)
    else:
        assert body_of(encode(proposal, RULES_FIRST)) == body_of(KEPT[name])


@pytest.mark.parametrize("name", ["start_session", "raise_rules"])
def test_s3_what_older_agents_read_of_newer_ones_never_changes(name: str) -> None:
    """An agent announces newer rules by the one and raises them by the other: those before have to read both.

    Under rules whose entries have checksums these have them too. Nobody lives then who does not know that.
    """
    proposal = Proposal(time_ms=Milliseconds(1_700_000_000_000), command=COMMANDS[name])
    for rules_version in range(RULES_FIRST, RULES_CHECKED_ENTRIES):
        assert encode(proposal, rules_version) == KEPT[name]
    assert body_of(encode(proposal, RULES_NEWEST)) == body_of(KEPT[name])


Entry = tuple[int, int, int, bytes]
"""Position, session, number and bytes."""
Log = tuple[str, int, list[Entry], list[tuple[int, bytes]]]
"""Cluster, incarnation, entries, and digests by position."""
LOGS = FOLDER / "rules_1" / "logs.zst"


@pytest.mark.parametrize("number", range(5))
def test_s3_a_log_of_the_first_rules_leads_to_the_states_that_it_led_to(number: int) -> None:
    logs = msgspec.msgpack.decode(bytes(cramjam.zstd.decompress(LOGS.read_bytes())), type=list[Log])
    cluster_id, incarnation, entries, digests = logs[number]
    expected = dict(digests)
    state = ClusterState.empty(cluster_id, incarnation)
    compared: list[int] = []
    for (position, session, entry_number, payload), following in pairwise([*entries, (0, 0, 0, b"")]):
        record = LedgerRecord(
            position=Position(position), session=SessionId(session), number=entry_number, payload=payload
        )
        apply(state, record)
        if position != following[0] and position in expected:
            assert digest(state) == expected[position], f"another state at position {position}"
            compared.append(position)
    assert state.rules_version == RULES_FIRST
    assert compared == list(expected)
    assert check(state) == []
