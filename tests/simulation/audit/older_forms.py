"""Whether an older agent can read what is written: it has the form of the rules in force, to the last byte (S3)."""

from collections.abc import Sequence

import cramjam
import msgspec

from coordinator.codec.codec import COMPRESSED, FORMAT_CHECKED, FORMAT_UNCHECKED, decode
from coordinator.codec.command_wire import WireProposal, to_wire
from coordinator.codec.snapshot_wire import SnapshotContent, SnapshotPartition, SnapshotSession, SnapshotTopic
from coordinator.commands.forms import WireStruct, in_form, layout_in_form
from coordinator.commands.rules import RULES_CHECKED_ENTRIES, RULES_NEWEST
from coordinator.ledger.port import LedgerRecord
from coordinator.state.state import ClusterState
from protocol.records.crc import CRC_BYTES
from tests.simulation.history import History

HEADER_BYTES, SIZE_BYTES = 2, 4

_in_form = in_form
"""As it is before a mutation stands in for it."""


def check_entry(record: LedgerRecord, state: ClusterState, history: History) -> None:
    """An entry that is about to be applied: every agent that lives has to be able to read it."""
    if state.rules_version == RULES_NEWEST:
        return
    is_checked = state.rules_version >= RULES_CHECKED_ENTRIES
    payload, header_bytes = record.payload, HEADER_BYTES + (CRC_BYTES if is_checked else 0)
    is_packed = payload[1] == COMPRESSED
    body = bytes(cramjam.zstd.decompress(payload[header_bytes + SIZE_BYTES :])) if is_packed else payload[header_bytes:]
    proposal = decode(record)
    wire = WireProposal(proposal.time_ms, to_wire(proposal.command))
    is_right = payload[0] == (FORMAT_CHECKED if is_checked else FORMAT_UNCHECKED)
    if not is_right or body != msgspec.msgpack.encode(_in_form(wire, state.rules_version)):
        what = type(proposal.command).__name__
        history.violation(f"a {what} is not in the form of rules {state.rules_version}, which are in force (S3)")


def check_snapshot(data: bytes, history: History) -> None:
    """A snapshot that is put into the bucket: it says which rules are in force."""
    content = msgspec.msgpack.decode(bytes(cramjam.zstd.decompress(data[1:])))
    names = SnapshotContent.__struct_fields__
    rules_version = content[names.index("rules_version")]
    topics = content[names.index("topics")]
    partitions = [row for topic in topics for row in topic[SnapshotTopic.__struct_fields__.index("partitions")]]
    rows: Sequence[tuple[type[WireStruct], Sequence[object]]] = [
        (SnapshotContent, content),
        *((SnapshotTopic, topic) for topic in topics),
        *((SnapshotPartition, row) for row in partitions),
        *((SnapshotSession, row) for row in content[names.index("sessions")]),
    ]
    for kind, row in rows:
        if len(row) != len(layout_in_form(kind, rules_version)):
            history.violation(f"a {kind.__name__} is not in the form of rules {rules_version}, which are in force (S3)")
