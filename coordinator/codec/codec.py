"""A proposal as the bytes of a ledger entry, and back.

Layout: format version (1 byte), flags (1 byte), in `FORMAT_CHECKED` a CRC-32C (u32, little-endian), then the body; with
`COMPRESSED` the body's size (u32, little-endian) and its zstd frame. The body is the MessagePack array of a
`WireProposal`, with the command as it is or with its columns as little-endian array bytes
(`coordinator.codec.command_wire`). Its shape depends on the version of the rules in force
(`coordinator.commands.forms`), and so does the format: entries are checked from `RULES_CHECKED_ENTRIES` on. The CRC
covers format, flags, session and number of the entry, then all that follows it.

Rule: `decode` believes nothing before the CRC is right (safety rule S20), and lets nothing through that
`coordinator.apply.apply` could stumble over: lengths, ranges and indexes are checked here, once. Bytes that cannot be
read raise `LedgerCorrupt`: an agent that skipped an entry which others understand would compute another state than
they, so it must stop. Therefore `write` reads what it wrote with the very checks of `decode`, and rejects what would
be rejected: nothing unreadable gets into a ledger. Golden files: tests/golden/commands, and tests/golden/rules_3.
"""

import struct
from typing import NamedTuple

import cramjam
import msgspec

from coordinator.codec.command_wire import WireProposal, from_wire, to_wire
from coordinator.commands.commands import Proposal
from coordinator.commands.forms import form_needed, in_form
from coordinator.commands.rules import RULES_CHECKED_ENTRIES, RULES_FIRST
from coordinator.ledger.port import LedgerCorrupt, LedgerRecord
from protocol.decoding import DAMAGE, MsgpackDecoder
from protocol.limits import LEDGER_ENTRY_UNPACKED_BYTES_MAX
from protocol.records.crc import crc32c
from protocol.types import SessionId

FORMAT_UNCHECKED = 1
FORMAT_CHECKED = 2
"""No single bit makes one of the other: an entry that has a CRC is never taken for one without."""
COMPRESSED = 1
COMPRESS_FROM_BYTES = 1024
ZSTD_LEVEL = 1

_HEADER = struct.Struct("<BB")
_CHECKED_HEADER = struct.Struct("<BBI")
_COVERED = struct.Struct("<BBQQ")
"""Session and number as any key of 16 hexadecimal digits can have them: a damaged one has another checksum."""
_SIZE = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()
_decoder = MsgpackDecoder(WireProposal)


class WrittenEntry(NamedTuple):
    """An entry as it was written, and what `decode` makes of these bytes."""

    payload: bytes
    proposal: Proposal


class Unwritable(ValueError):
    """A proposal whose entry no agent could read. Its proposer has a bug: what clients send is checked before."""


def encode(proposal: Proposal, rules_version: int, session: SessionId, number: int) -> bytes:
    """The bytes of `write`."""
    return write(proposal, rules_version, session, number).payload


def write(proposal: Proposal, rules_version: int, session: SessionId, number: int) -> WrittenEntry:
    """A proposal as entry `number` of a session: the same bytes for an equal proposal, in every process.

    `rules_version`: in whose form. An agent passes the version in force, so that every live agent can read the entry.
    Raises `Unwritable` for exactly what `decode` would reject, and for what that form has no place for.
    """
    is_checked = rules_version >= RULES_CHECKED_ENTRIES
    try:
        wire = WireProposal(proposal.time_ms, to_wire(proposal.command))
        body = _encoder.encode(in_form(wire, rules_version))
        _check_size(len(body))
        read = _read_body(body, RULES_CHECKED_ENTRIES if is_checked else RULES_FIRST)
    except (*DAMAGE, LedgerCorrupt) as error:
        raise Unwritable(f"a {type(proposal.command).__name__} cannot be written: {error}") from error
    flags = 0
    if len(body) > COMPRESS_FROM_BYTES:
        flags = COMPRESSED
        packed = _SIZE.pack(len(body)) + bytes(cramjam.zstd.compress(body, level=ZSTD_LEVEL))
        assert _decompress(memoryview(packed)) == body, "zstd does not give back what it was given"
        body = packed
    if not is_checked:
        return WrittenEntry(_HEADER.pack(FORMAT_UNCHECKED, flags) + body, read)
    return WrittenEntry(_CHECKED_HEADER.pack(FORMAT_CHECKED, flags, _crc(flags, session, number, body)) + body, read)


def decode(record: LedgerRecord) -> Proposal:
    """The proposal of an entry. Raises `LedgerCorrupt` if it cannot be read: do not serve."""
    payload = record.payload
    if len(payload) < _HEADER.size:
        raise LedgerCorrupt(f"an entry of {len(payload)} bytes has no header")
    version, flags = _HEADER.unpack_from(payload)
    if version == FORMAT_CHECKED:
        body, form = _checked(record), RULES_CHECKED_ENTRIES
    elif version == FORMAT_UNCHECKED:
        body, form = memoryview(payload)[_HEADER.size :], RULES_FIRST
    else:
        known = f"{FORMAT_UNCHECKED} and {FORMAT_CHECKED}"
        raise LedgerCorrupt(f"an entry in format {version}; this program reads {known}: it is damaged, or upgrade")
    if flags not in (0, COMPRESSED):
        raise LedgerCorrupt(f"an entry with unknown flags {flags:#x}: upgrade this program")
    return _read_body(_decompress(body) if flags else body, form)


def _checked(record: LedgerRecord) -> memoryview:
    """The bytes behind an entry's CRC, which is checked. An entry under a key that is not its own is damaged, too."""
    payload = record.payload
    if len(payload) < _CHECKED_HEADER.size:
        raise LedgerCorrupt(f"an entry of {len(payload)} bytes ends before its checksum")
    _, flags, expected = _CHECKED_HEADER.unpack_from(payload)
    body = memoryview(payload)[_CHECKED_HEADER.size :]
    actual = _crc(flags, record.session, record.number, body)
    if actual != expected:
        raise LedgerCorrupt(f"its checksum is {expected:08x}, that of what is there {actual:08x}: it is damaged")
    return body


def _crc(flags: int, session: SessionId, number: int, body: bytes | memoryview) -> int:
    return crc32c(body, crc32c(_COVERED.pack(FORMAT_CHECKED, flags, session, number)))


def _check_size(size: int) -> None:
    """Before a body is read, which takes many times its bytes."""
    if size > LEDGER_ENTRY_UNPACKED_BYTES_MAX:
        raise LedgerCorrupt(f"an entry would unpack to {size} bytes, {LEDGER_ENTRY_UNPACKED_BYTES_MAX} is the most")


def _read_body(body: bytes | memoryview, form: int) -> Proposal:
    """The one place that says which entries are sound, for writing and for reading. `form`: what the format needs."""
    try:
        wire = _decoder.decode(body)
        needed = form_needed(wire.command)
        return Proposal(time_ms=wire.time_ms, command=from_wire(wire.command), form=max(form, needed))
    except DAMAGE as error:  # S20: of the decoder, and of what makes a command of its values
        raise LedgerCorrupt(f"an entry cannot be read: {error}") from error


def _decompress(body: memoryview) -> bytes:
    if len(body) < _SIZE.size:
        raise LedgerCorrupt("a compressed entry ends before its size")
    (size,) = _SIZE.unpack_from(body)
    _check_size(size)
    unpacked = bytearray(size)
    try:
        count = cramjam.zstd.decompress_into(bytes(body[_SIZE.size :]), unpacked)
    except cramjam.DecompressionError as error:
        raise LedgerCorrupt(f"an entry cannot be unpacked: {error}") from error
    if count != size:
        raise LedgerCorrupt(f"an entry unpacks to {count} bytes where {size} were announced")
    return bytes(unpacked)
