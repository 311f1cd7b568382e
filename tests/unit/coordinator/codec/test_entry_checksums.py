"""No damaged entry is believed, whatever it would say (safety rule S20). Bytes: tests/golden/rules_3."""

import struct
from dataclasses import replace

import pytest

from coordinator.apply.apply import apply
from coordinator.codec import codec as command_codec
from coordinator.codec.codec import COMPRESSED, FORMAT_CHECKED
from coordinator.commands.commands import Done, Proposal, Rejected, ReportTime
from coordinator.commands.rules import RULES_CHECKED_ENTRIES, RULES_CHECKED_STORAGE, RULES_FIRST
from coordinator.ledger.port import LedgerCorrupt
from coordinator.state.state import NO_TIME, ClusterState
from protocol.errors import ErrorCode
from protocol.records.crc import crc32c
from protocol.types import Milliseconds, SessionId
from tests.golden import golden_bytes
from tests.support.commands.commands import start
from tests.support.commands.entries import NUMBER, SESSION, decode, encode, record_of
from tests.support.commands.every_command import COMMANDS

TIME_MS = Milliseconds(1_700_000_000_000)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_entry_with_a_checksum_is_read_at_any_age(name: str) -> None:
    proposal = Proposal(time_ms=TIME_MS, command=COMMANDS[name])
    kept = golden_bytes(f"rules_3/{name}", encode(proposal))
    assert kept[0] == FORMAT_CHECKED
    assert encode(decode(kept)) == encode(proposal)


def test_a_report_of_time_is_these_bytes() -> None:
    proposal = Proposal(time_ms=Milliseconds(5), command=ReportTime())
    body = bytes([0x92, 5, 0x91, 12])
    assert encode(proposal, RULES_CHECKED_STORAGE) == bytes([1, 0]) + body
    covered = struct.pack("<BBQQ", 2, 0, SESSION, NUMBER) + body
    assert encode(proposal) == bytes([2, 0]) + struct.pack("<I", crc32c(covered)) + body


def checked(flags: int, body: bytes) -> bytes:
    """Bytes with a right checksum, whatever they say."""
    crc = crc32c(struct.pack("<BBQQ", FORMAT_CHECKED, flags, SESSION, NUMBER) + body)
    return struct.pack("<BBI", FORMAT_CHECKED, flags, crc) + body


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"\x02\x00\x92", "ends before its checksum"),
        (b"\x02\x00\0\0\0\0\x92\x05\x91\x0c", "its checksum is 00000000, that of what is there"),
        (checked(2, b"\x92\x05\x91\x0c"), "unknown flags 0x2"),
        (checked(0, b"\xc1"), "cannot be read"),
    ],
)
def test_the_message_says_what_is_wrong(payload: bytes, message: str) -> None:
    with pytest.raises(LedgerCorrupt, match=message):
        decode(payload)


def test_an_entry_has_the_form_of_the_rules_that_brought_checksums() -> None:
    proposal = Proposal(time_ms=None, command=ReportTime())
    assert decode(encode(proposal)).form == RULES_CHECKED_ENTRIES
    assert decode(encode(proposal, RULES_CHECKED_STORAGE)).form == RULES_FIRST


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_flipped_bit_is_believed(name: str, is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it would be decoded to (safety rule S20), compressed or not."""
    monkeypatch.setattr(command_codec, "COMPRESS_FROM_BYTES", 0 if is_large else 1 << 20)
    payload = bytearray(encode(Proposal(time_ms=TIME_MS, command=COMMANDS[name])))
    for bit in range(len(payload) * 8):
        payload[bit // 8] ^= 1 << bit % 8
        with pytest.raises(LedgerCorrupt):
            decode(bytes(payload))
        payload[bit // 8] ^= 1 << bit % 8
    assert payload[1] == (COMPRESSED if is_large else 0)
    assert decode(bytes(payload)).time_ms == TIME_MS


@pytest.mark.parametrize("name", COMMANDS)
def test_nor_is_an_entry_in_the_place_of_another(name: str) -> None:
    record = record_of(encode(Proposal(time_ms=TIME_MS, command=COMMANDS[name])))
    assert command_codec.decode(record).time_ms == TIME_MS
    for bit in range(64):
        for moved in (
            replace(record, session=SessionId(record.session ^ 1 << bit)),
            replace(record, number=record.number ^ 1 << bit),
        ):
            with pytest.raises(LedgerCorrupt, match="it is damaged"):
                command_codec.decode(moved)


def test_s3_an_entry_with_a_checksum_has_no_effect_under_rules_that_have_none() -> None:
    """Agents that know these alone stop at it, so no program writes it."""
    state = ClusterState.empty("cluster", 1)
    begin = Proposal(time_ms=TIME_MS, command=start("a"))
    _, outcome = apply(state, record_of(encode(begin)))
    assert isinstance(outcome, Rejected)
    assert outcome.error_code is ErrorCode.unsupported_version
    assert not state.sessions
    assert state.time_ms == NO_TIME
    assert apply(state, record_of(encode(begin, RULES_CHECKED_STORAGE)))[1] == Done()
    assert list(state.sessions) == [SESSION]
