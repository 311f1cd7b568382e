"""A proposal as the bytes of a ledger entry, and back.

Layout: format version (1 byte), flags (1 byte), then the body; with `COMPRESSED` the body's size (u32, little-endian)
and its zstd frame. The body is MessagePack in the shape of `coordinator.command_wire`; columns are little-endian
array bytes. The shape depends on the version of the rules in force (`coordinator.wire_forms`).

Rule: `decode` lets nothing through that `coordinator.apply` could stumble over: lengths, ranges and indexes are
checked here, once. Bytes that cannot be read raise `LedgerCorrupt`: an agent that skipped an entry which others
understand would compute another state than they, so it must stop. Therefore `encode` reads what it wrote with the very
checks of `decode`, and refuses what would be refused: nothing unreadable gets into a ledger. Golden files:
tests/golden/commands.
"""

import struct

import cramjam
import msgspec

from coordinator.command_wire import WireProposal, to_wire
from coordinator.commands import Proposal
from coordinator.log import LedgerCorrupt
from coordinator.rules import RULES_NEWEST
from coordinator.wire_forms import form_needed, in_form
from protocol.decoding import DAMAGE, MsgpackDecoder
from protocol.limits import LEDGER_ENTRY_UNPACKED_BYTES_MAX
from protocol.types import Milliseconds

FORMAT_VERSION = 1
COMPRESSED = 1
COMPRESS_FROM_BYTES = 1024
ZSTD_LEVEL = 1

_HEADER = struct.Struct("<BB")
_SIZE = struct.Struct("<I")
_PLAIN_HEADER = _HEADER.pack(FORMAT_VERSION, 0)
_COMPRESSED_HEADER = _HEADER.pack(FORMAT_VERSION, COMPRESSED)
_encoder = msgspec.msgpack.Encoder()
_decoder = MsgpackDecoder(WireProposal)


class Unwritable(ValueError):
    """A proposal whose entry no agent could read. Its proposer has a bug: what clients send is checked before."""


def encode(proposal: Proposal, rules_version: int = RULES_NEWEST) -> bytes:
    """The entry of a proposal: the same bytes for an equal proposal, in every process.

    `rules_version`: in whose form. An agent passes the version in force, so that every live agent can read the entry.
    Raises `Unwritable` for exactly what `decode` would refuse, and for what that form has no place for.
    """
    try:
        wire = WireProposal(proposal.time_ms, to_wire(proposal.command))
        body = _encoder.encode(in_form(wire, rules_version))
        _check_size(len(body))
        _read_body(body)
    except (*DAMAGE, LedgerCorrupt) as error:
        raise Unwritable(f"a {type(proposal.command).__name__} cannot be written: {error}") from error
    if len(body) <= COMPRESS_FROM_BYTES:
        return _PLAIN_HEADER + body
    compressed = bytes(cramjam.zstd.compress(body, level=ZSTD_LEVEL))
    return _COMPRESSED_HEADER + _SIZE.pack(len(body)) + compressed


def decode(payload: bytes) -> Proposal:
    """The proposal of an entry. Raises `LedgerCorrupt` if it cannot be read: do not serve."""
    if len(payload) < _HEADER.size:
        raise LedgerCorrupt(f"an entry of {len(payload)} bytes has no header")
    version, flags = _HEADER.unpack_from(payload)
    if version != FORMAT_VERSION:
        raise LedgerCorrupt(f"an entry in format {version}; this program reads {FORMAT_VERSION}: upgrade it")
    if flags not in (0, COMPRESSED):
        raise LedgerCorrupt(f"an entry with unknown flags {flags:#x}: upgrade this program")
    body = memoryview(payload)[_HEADER.size :]
    return _read_body(_decompress(body) if flags else body)


def _check_size(size: int) -> None:
    """Before a body is read, which takes many times its bytes."""
    if size > LEDGER_ENTRY_UNPACKED_BYTES_MAX:
        raise LedgerCorrupt(f"an entry would unpack to {size} bytes, {LEDGER_ENTRY_UNPACKED_BYTES_MAX} is the most")


def _read_body(body: bytes | memoryview) -> Proposal:
    """The one place that says which entries are sound, for writing and for reading."""
    try:
        wire = _decoder.decode(body)
        time_ms = None if wire.time_ms is None else Milliseconds(wire.time_ms)
        command = wire.command
        return Proposal(time_ms=time_ms, command=command.command(), form=form_needed(command))
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
