"""Reads the entries of one ledger in etcd: all that are there, and then those that come.

In: a position. Out: the entries above it, in order, none twice, by whole revisions. Reads that begin something are
linearizable; a tail is a watch, which etcd itself keeps in order and whole. Every entry that is handed on is noted in
the lineage (safety rule S9).
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from aetcd.rpc import rpc_pb2

from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.guarded_requests import GuardedRequests
from coordinator.ledger.etcd.keys import EtcdKeys, prefix_end, read_pointer
from coordinator.ledger.etcd.lineage import Lineage
from coordinator.ledger.etcd.requests import get
from coordinator.ledger.port import Head, LedgerRecord, LedgerStart, LedgerUnavailable, Trimmed
from protocol.limits import ETCD_PAGE_ENTRIES_MAX
from protocol.types import Position


class EntryReader:
    """Reads the entries of a ledger."""

    def __init__(self, client: EtcdClient, keys: EtcdKeys, lineage: Lineage, requests: GuardedRequests) -> None:
        self._client = client
        self._keys = keys
        self._lineage = lineage
        self._requests = requests

    async def load(self) -> LedgerStart:
        """See `Ledger.load`."""
        while True:
            try:
                return await self._load()
            except Trimmed:
                continue  # compacted while it was read: begin again at a newer revision

    async def _load(self) -> LedgerStart:
        head, trimmed, revision, answers = await self._begin_reading(get(self._keys.snapshot))
        snapshots = answers[0].response_range.kvs
        pointer = read_pointer(snapshots[0].value) if snapshots else None
        after = Position(0) if pointer is None else pointer.position
        self._lineage.judge_trimmed(trimmed, pointer)
        return LedgerStart(pointer=pointer, head=head, records=await self._read_entries(after, revision))

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        """See `Ledger.tail`."""
        while True:
            try:
                async with aclosing(self._tail(after)) as records_of:
                    async for records in records_of:
                        after = records[-1].position
                        yield records
            except Trimmed:
                await self._check_untrimmed(after)  # else only etcd's history is gone: the live keys are read again

    async def _tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        """The entries above `after`, then new ones. Raises `Trimmed` where that needs compacted history."""
        revision = await self._check_untrimmed(after)
        records = await self._read_entries(after, revision)
        if records:
            yield records
        create = rpc_pb2.WatchCreateRequest(
            key=self._keys.entries,
            range_end=self._keys.meta + b"\0",  # the entries and the identity: nothing stands between them
            start_revision=revision,  # what stood there at it is passed over (`EtcdClient.watch` says why)
            filters=[rpc_pb2.WatchCreateRequest.NODELETE],
        )
        async with self._client.watch(create) as responses:
            async for response in responses:
                if response.compact_revision:
                    raise Trimmed(f"etcd has compacted up to {response.compact_revision}")
                if response.canceled:
                    raise LedgerUnavailable(f"etcd ended a watch: {response.cancel_reason}")
                records = self._entries_of(response, revision)
                if records:
                    yield records

    def _entries_of(self, response: rpc_pb2.WatchResponse, after_revision: int) -> list[LedgerRecord]:
        records: list[LedgerRecord] = []
        for event in response.events:
            if event.kv.key == self._keys.meta:
                self._lineage.judge_event(event.kv)
            elif event.kv.mod_revision > after_revision:
                records.append(self._lineage.record(event.kv))
        return self._noted(_in_order(records))

    def _noted(self, records: list[LedgerRecord]) -> list[LedgerRecord]:
        self._lineage.read(records)
        return records

    async def _check_untrimmed(self, after: Position) -> int:
        """A revision at which everything above `after` was there. Raises `Trimmed`."""
        _, trimmed, revision, _ = await self._begin_reading()
        if after < trimmed:
            raise Trimmed(f"position {after} was asked for, everything up to {trimmed} is trimmed")
        return revision

    async def _begin_reading(
        self, *more: rpc_pb2.RequestOp
    ) -> tuple[Head, Position, int, Sequence[rpc_pb2.ResponseOp]]:
        """Head, position up to which is trimmed, and the answers to `more`, all at one revision, which is the third."""
        seen, requests = self._lineage.seen, self._lineage.reading()
        answer = await self._client.txn(rpc_pb2.TxnRequest(success=[*requests, *more]))
        head, trimmed = self._lineage.judge_reading(answer.responses[: len(requests)], seen)
        return head, trimmed, int(answer.header.revision), answer.responses[len(requests) :]

    async def _read_entries(self, after: Position, revision: int) -> list[LedgerRecord]:
        """The entries above `after` that were there at `revision`, in order."""
        records: list[LedgerRecord] = []
        first, end = self._keys.entries, prefix_end(self._keys.entries)
        above = self._lineage.revision(after) + 1
        while True:
            page = await self._requests.range(
                first, end, limit=ETCD_PAGE_ENTRIES_MAX, revision=revision, min_mod_revision=above
            )
            records.extend(self._lineage.record(pair) for pair in page.kvs)
            if not page.more:
                return self._noted(_in_order(records))
            first = page.kvs[-1].key + b"\0"

    async def untrimmed_entries(self) -> Sequence[LedgerRecord]:
        """See `Ledger.untrimmed_entries`."""
        while True:
            _, trimmed, revision, _ = await self._begin_reading()
            try:
                return await self._read_entries(trimmed, revision)
            except Trimmed:
                continue  # compacted while it was read: begin again at a newer revision


def _in_order(records: list[LedgerRecord]) -> list[LedgerRecord]:
    return sorted(records, key=lambda record: (record.position, record.number))
