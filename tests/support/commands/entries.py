"""Entries as bytes, where it does not matter whose they are: entry 0 of session 1.

Rule: what a test hands to apply is an entry of its own session and number: `tests.support.commands.commands.Cluster`.
"""

import msgspec

from coordinator.codec import codec as command_codec
from coordinator.codec.command_wire import to_wire
from coordinator.commands.commands import Command, Proposal
from coordinator.commands.forms import form_needed
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.port import LedgerEntry, LedgerRecord
from protocol.types import Position, SessionId

SESSION, NUMBER = SessionId(1), 0


def since_of(command: Command) -> int:
    """The first version of the rules in whose form the command has a place."""
    return form_needed(to_wire(command))


def encode(proposal: Proposal, rules_version: int = RULES_NEWEST) -> bytes:
    return command_codec.encode(proposal, rules_version, SESSION, NUMBER)


def record_of(payload: bytes) -> LedgerRecord:
    return LedgerRecord(position=Position(2), session=SESSION, number=NUMBER, payload=payload)


def decode_entry(session: SessionId, entry: LedgerEntry) -> Proposal:
    """What a session appended."""
    record = LedgerRecord(position=Position(2), session=session, number=entry.number, payload=entry.payload)
    return command_codec.decode(record)


def decode(payload: bytes) -> Proposal:
    return command_codec.decode(record_of(payload))


def plain(body: object) -> bytes:
    """An entry that is not compressed, with this body."""
    return bytes([1, 0]) + msgspec.msgpack.encode(body)
