"""Whether what answers is still the ledger that was opened, and not a wiped or restored one (safety rule S9).

Rule: no I/O. etcd can be emptied, restored from a backup, or given to another cluster while agents have it open. So
every write is guarded by the identity and by a head that is not below what was seen when it was sent, and every read
that begins something asks for both, and for the newest entry that was read: where etcd lost that and went on, revisions
alone would not show it. Another ledger than that raises `LedgerCorrupt`. Where an agent claims a bucket for a ledger
that had none, that is learnt: the identity has to be whole to guard a write.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aetcd.rpc import kv_pb2, rpc_pb2

from coordinator.ledger.etcd.keys import EtcdKeys, is_fenced, read_meta, read_trimmed, write_meta
from coordinator.ledger.etcd.requests import get, has_value, is_modified_at_or_after
from coordinator.ledger.port import (
    POSITION_REVISION_BITS,
    UNREADABLE,
    Head,
    LedgerCorrupt,
    LedgerIdentity,
    LedgerRecord,
    SnapshotPointer,
    another_incarnation,
    being_recovered,
    position_first,
)
from protocol.types import Position, SessionId

REMEDY = (
    "nothing was changed. Stop all agents, then run `penstock recover`: docs/operations/recovery.md, "
    '"etcd was wiped or restored from a backup"'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLedger:
    """The state of the ledger as known when a request was sent; its answer may be older than what was learnt since."""

    head: Position
    """The newest append in any answer, or the incarnation's first position."""
    read: LedgerRecord | None
    """The last of the entries that were handed to a reader."""


class Lineage:
    """The ledger as it was opened, and what was seen of it since. Positions are revisions above `position_first`."""

    def __init__(self, keys: EtcdKeys, identity: LedgerIdentity) -> None:
        self._keys = keys
        self.restart(identity)

    def restart(self, identity: LedgerIdentity) -> None:
        """Go over to that incarnation, of which nothing was seen."""
        self.identity = identity
        self._first = position_first(self.identity.incarnation)
        self.seen = KnownLedger(head=self._first, read=None)

    def position(self, revision: int) -> Position:
        assert revision < 1 << POSITION_REVISION_BITS, (
            f"etcd's revision {revision} exceeds what an incarnation can hold"
        )
        return Position(self._first + revision)

    def session(self, create_revision: int) -> SessionId:
        return SessionId(self.position(create_revision))

    def revision(self, position: int) -> int:
        """The revision of a position or session; 0, which is before everything, for those of an earlier incarnation."""
        return max(position - self._first, 0)

    def record(self, pair: kv_pb2.KeyValue) -> LedgerRecord:
        """An entry as it stands in etcd. Raises `LedgerCorrupt` where its place in the order cannot be right.

        An entry's own checksum cannot cover that: no writer knows the revision. But an entry is put once, and above
        its session (safety rules S10 and S20).
        """
        session, number = self._keys.read_entry(pair.key)
        position = self.position(pair.mod_revision)
        if pair.create_revision != pair.mod_revision or not self._first < session < position:
            raise LedgerCorrupt(
                f"entry {number} of session {session} was put at revision {pair.create_revision} and changed at "
                f"{pair.mod_revision}: it is damaged, or another program wrote it; {UNREADABLE}"
            )
        return LedgerRecord(position=position, session=session, number=number, payload=pair.value)

    def head(self, pairs: Sequence[kv_pb2.KeyValue]) -> Head:
        """The head from its key, which is absent before the first append."""
        if not pairs:
            return Head(position=self._first, appends_count=0)
        return Head(position=self.position(pairs[0].mod_revision), appends_count=pairs[0].version)

    def see(self, head: Position) -> None:
        """Remember that there is an append at `head`."""
        if self.seen.head < head:
            self.seen = KnownLedger(head=head, read=self.seen.read)

    def read(self, records: Sequence[LedgerRecord]) -> None:
        """Remember what is handed to a reader, in order."""
        if records and (self.seen.read is None or self.seen.read.position < records[-1].position):
            self.seen = KnownLedger(head=max(self.seen.head, records[-1].position), read=records[-1])

    # Writes.

    def guards(self, *, on_fenced: bool = False) -> list[rpc_pb2.Compare]:
        """The comparisons of a transaction that writes. They hold on an open ledger, or on a fenced one
        (`Ledger.fence`), never on both.
        """
        is_same = has_value(self._keys.meta, write_meta(self.identity, is_fenced=on_fenced))
        if self.seen.head == self._first:
            return [is_same]
        return [is_same, is_modified_at_or_after(self._keys.head, self.revision(self.seen.head))]

    def asking(self) -> list[rpc_pb2.RequestOp]:
        """The first requests of its failure branch; `judge` takes the two answers."""
        return [get(self._keys.meta), get(self._keys.head)]

    def judge(self, responses: Sequence[rpc_pb2.ResponseOp], seen: KnownLedger) -> None:
        """Raise `LedgerCorrupt` where identity or head, as `asking` got them, are not those of this ledger.

        `seen`: what was seen when the request was sent.
        """
        metas, heads = (response.response_range.kvs for response in responses)
        self._judge_identity(metas)
        self.judge_head(heads, seen)

    def judge_open(self, responses: Sequence[rpc_pb2.ResponseOp]) -> None:
        """Raise `LedgerCorrupt` where the ledger, which is this one (`judge`), is fenced."""
        if self.is_fenced(responses):
            raise being_recovered()

    def is_fenced(self, responses: Sequence[rpc_pb2.ResponseOp]) -> bool:
        """Whether it is, by the answers to `asking`."""
        return is_fenced(responses[0].response_range.kvs[0].value)

    def judge_head(self, heads: Sequence[kv_pb2.KeyValue], seen: KnownLedger) -> Head:
        """The head, which is remembered. Raises `LedgerCorrupt` where it is below what was seen."""
        head = self.head(heads)
        if head.position < seen.head:
            raise LedgerCorrupt(
                f"etcd's ledger ends at {head.position}, but {seen.head} was there before: was etcd wiped, or "
                f"restored from a backup? {REMEDY}"
            )
        self.see(head.position)
        return head

    def judge_trimmed(self, trimmed: Position, pointer: SnapshotPointer | None) -> None:
        """Raise `LedgerCorrupt` where `trimmed` is above the position that the snapshot covers."""
        covered = self._first if pointer is None else pointer.position
        if trimmed > covered:
            raise LedgerCorrupt(
                f"everything up to {trimmed} is said to be trimmed, and the snapshot covers {covered}: the key "
                f"'trimmed' or 'snapshot' is damaged; {UNREADABLE}"
            )

    def judge_event(self, pair: kv_pb2.KeyValue) -> None:
        """Raise `LedgerCorrupt` where a watch delivers another identity, or that the ledger is fenced."""
        self._judge_identity([pair])
        if is_fenced(pair.value):
            raise being_recovered()

    def claimed(self, identity: LedgerIdentity) -> None:
        """The same incarnation, which has a bucket now."""
        assert not self.identity.bucket_id, f"{self.identity} has a bucket"
        assert identity.is_incarnation_of(self.identity), f"{identity} is not {self.identity}"
        self.identity = identity

    def _judge_identity(self, metas: Sequence[kv_pb2.KeyValue]) -> None:
        if not metas:
            raise LedgerCorrupt(f"{self._keys.meta.decode()} is gone from etcd: was etcd wiped? {REMEDY}")
        current = read_meta(metas[0].value)
        if current.cluster_id != self.identity.cluster_id:
            raise LedgerCorrupt(
                f"etcd holds the ledger of cluster {current.cluster_id} now, where that of {self.identity.cluster_id} "
                f"was: was etcd wiped, and another agent started since, or do two clusters share a name? {REMEDY}"
            )
        if current.incarnation != self.identity.incarnation:
            raise LedgerCorrupt(another_incarnation(self.identity, current))
        if not self.identity.bucket_id and current.bucket_id:
            self.claimed(current)
        if current.bucket_id != self.identity.bucket_id:
            bucket = f"the bucket {current.bucket_id}" if current.bucket_id else "no bucket"
            raise LedgerCorrupt(
                f"etcd's ledger of cluster {current.cluster_id} names {bucket}, where "
                f"it named {self.identity.bucket_id}: was etcd restored from a backup? {REMEDY}"
            )

    # Reads.

    def reading(self) -> list[rpc_pb2.RequestOp]:
        """The first requests of a read that begins something; `judge_reading` takes the three or four answers."""
        requests = [*self.asking(), get(self._keys.trimmed)]
        if self.seen.read is not None:
            requests.append(get(self._keys.entry(self.seen.read.session, self.seen.read.number)))
        return requests

    def judge_reading(self, responses: Sequence[rpc_pb2.ResponseOp], seen: KnownLedger) -> tuple[Head, Position]:
        """Head, and the position up to which entries were trimmed. Raises `LedgerCorrupt`, as `judge` does, and where
        the newest entry that was read is gone although it was not trimmed.
        """
        self.judge(responses[:2], seen)
        head, trims, *newest = (response.response_range.kvs for response in responses[1:])
        trimmed = read_trimmed(trims[0].value) if trims else self._first
        if seen.read is not None and seen.read.position > trimmed:
            is_there = bool(newest[0]) and self.position(newest[0][0].mod_revision) == seen.read.position
            if not is_there:
                raise LedgerCorrupt(
                    f"entry {seen.read.number} of session {seen.read.session}, which was read at {seen.read.position}, "
                    f"is not there any more: was etcd restored from a backup? {REMEDY}"
                )
        return self.head(head), trimmed
