"""The cluster's ledger in etcd.

Rule: an append is one transaction, guarded by the session's key and by the absence of its first entry; its position is
the transaction's revision. What is behind an answer that never came is settled by repeating (safety rule S10). Reads
that begin something (`load`, `head`) are linearizable; a tail is a watch, which etcd itself keeps in order and whole.
Keys: `coordinator.etcd_keys`. Contract: tests/contract/test_ledger.py. Source: etcd's "KV API guarantees".
"""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Self

from aetcd.rpc import kv_pb2, rpc_pb2

from coordinator.append_rules import NewestGroup, check_group, entries_of, is_next, position_of_repeat
from coordinator.etcd_client import EtcdClient, LeaseGone
from coordinator.etcd_keys import EtcdKeys, prefix_end, read_meta, read_pointer, write_meta, write_pointer
from coordinator.log import (
    Entry,
    Fenced,
    Head,
    LedgerCorrupt,
    LedgerIdentity,
    LedgerRecord,
    LedgerStart,
    LedgerUnavailable,
    SessionHeld,
    SnapshotPointer,
    Trimmed,
)
from protocol.limits import ETCD_PAGE_ENTRIES_MAX, LEDGER_GROUP_ENTRIES_MAX, LEDGER_SESSION_SECONDS
from protocol.types import Position, SessionId

_Compare = rpc_pb2.Compare


@dataclass(slots=True, kw_only=True)
class _Session:
    """A session that this object opened."""

    name: str
    lease: int
    newest: NewestGroup | None = None
    is_unsure: bool = False
    """Whether a group may have been appended after `newest`: an answer did not come."""


class EtcdLedger:
    """Implements `coordinator.log.Ledger`. Made by `open`."""

    def __init__(self, client: EtcdClient, keys: EtcdKeys, identity: LedgerIdentity, *, session_seconds: int) -> None:
        self._client = client
        self._session_seconds = session_seconds
        self._keys = keys
        self._identity = identity
        self._sessions: dict[SessionId, _Session] = {}

    @classmethod
    async def open(
        cls, client: EtcdClient, cluster: str, *, new_cluster_id: str, session_seconds: int = LEDGER_SESSION_SECONDS
    ) -> Self:
        """Open the ledger of `cluster`; where there is none, create it with that id. The client is closed with it.

        A session whose lease is not renewed (`keep_session`) for `session_seconds` is over. Raises
        `LedgerUnavailable`, and `LedgerCorrupt` where the prefix holds something else.
        """
        keys = EtcdKeys(cluster)
        try:
            meta = write_meta(LedgerIdentity(cluster_id=new_cluster_id, incarnation=1))
            answer = await client.txn(
                rpc_pb2.TxnRequest(
                    compare=[_is_absent(keys.meta)], success=[_put(keys.meta, meta)], failure=[_get(keys.meta)]
                ),
            )
            found = meta if answer.succeeded else answer.responses[0].response_range.kvs[0].value
            return cls(client, keys, read_meta(found), session_seconds=session_seconds)
        except BaseException:
            await client.close()
            raise

    async def identity(self) -> LedgerIdentity:
        return self._identity

    # Sessions.

    async def open_session(self, name: str) -> SessionId:
        lease = await self._client.grant_lease(self._session_seconds)
        key = self._keys.session(name)
        try:
            answer = await self._client.txn(
                rpc_pb2.TxnRequest(
                    compare=[_is_absent(key)], success=[_put(key, b"", lease=lease)], failure=[_get(key)]
                ),
            )
        except LedgerUnavailable:
            await self._revoke(lease)
            raise
        if not answer.succeeded:
            await self._revoke(lease)
            held = answer.responses[0].response_range.kvs[0].create_revision
            raise SessionHeld(f"session {held} lives under the name {name!r}")
        session = SessionId(answer.header.revision)
        self._sessions[session] = _Session(name=name, lease=lease)
        return session

    async def close_session(self, session: SessionId) -> None:
        closed = self._sessions.pop(session, None)
        if closed is not None:
            await self._client.revoke_lease(closed.lease)

    async def is_session_ended(self, name: str, session: SessionId) -> bool:
        answer = await self._range(self._keys.session(name))
        return not answer.kvs or answer.kvs[0].create_revision != session

    async def _revoke(self, lease: int) -> None:
        with contextlib.suppress(LedgerUnavailable):  # it runs out by itself
            await self._client.revoke_lease(lease)

    async def keep_session(self, session: SessionId) -> None:
        opened = self._sessions.get(session)
        if opened is None:
            raise Fenced(f"session {session} is not one of this agent's, or over")
        try:
            await self._client.keep_alive(opened.lease)
        except LeaseGone as error:
            raise Fenced(f"the lease of session {session} has run out") from error

    # Entries.

    async def append(self, session: SessionId, entries: Sequence[Entry]) -> Position:
        check_group(entries)
        opened = self._sessions.get(session)
        if opened is None:
            raise Fenced(f"session {session} is not one of this agent's, or over")
        if opened.is_unsure and not is_next(opened.newest, entries):
            opened.newest = await self._newest(session) or opened.newest
        if is_next(opened.newest, entries):
            opened.is_unsure = True
            answer = await self._append(opened.name, session, entries)
            if answer.succeeded:
                position = Position(answer.header.revision)
                opened.newest = NewestGroup(position=position, entries=tuple(entries))
                opened.is_unsure = False
                return position
        else:
            answer = await self._look(opened.name, session, entries)
        return self._settle(opened, session, entries, answer)

    async def _append(self, name: str, session: SessionId, entries: Sequence[Entry]) -> rpc_pb2.TxnResponse:
        session_key = self._keys.session(name)
        puts = [_put(self._keys.entry(session, entry.number), entry.payload) for entry in entries]
        return await self._client.txn(
            rpc_pb2.TxnRequest(
                compare=[
                    _is_created_at(session_key, session),
                    _is_absent(self._keys.entry(session, entries[0].number)),
                ],
                success=[_put(self._keys.head, b"%x/%x" % (session, entries[-1].number)), *puts],
                failure=self._looking(name, session, entries),
            ),
        )

    async def _look(self, name: str, session: SessionId, entries: Sequence[Entry]) -> rpc_pb2.TxnResponse:
        return await self._client.txn(rpc_pb2.TxnRequest(success=self._looking(name, session, entries)))

    def _looking(self, name: str, session: SessionId, entries: Sequence[Entry]) -> list[rpc_pb2.RequestOp]:
        """Asks for the session, and for what stands under the numbers of `entries` and after them."""
        first = self._keys.entry(session, entries[0].number)
        return [_get(self._keys.session(name)), _get(first, self._keys.entry(session, entries[-1].number + 1))]

    def _settle(
        self, opened: _Session, session: SessionId, entries: Sequence[Entry], answer: rpc_pb2.TxnResponse
    ) -> Position:
        """The position of a group that was not appended now: an earlier try was, or it must not be."""
        held, found = (response.response_range.kvs for response in answer.responses)
        if not held or held[0].create_revision != session:
            raise Fenced(f"session {session} is over")
        first_copy = [self._record(pair) for pair in found if pair.mod_revision == found[0].mod_revision]
        position = position_of_repeat(session, opened.newest, first_copy, entries)
        if opened.newest is None or opened.newest.position < position:
            opened.newest = NewestGroup(position=position, entries=tuple(entries))
            opened.is_unsure = False
        return position

    async def _newest(self, session: SessionId) -> NewestGroup | None:
        """The newest group of a session that was not trimmed."""
        first, end = self._keys.entry(session, 0), prefix_end(self._keys.entries_of(session))
        newest = rpc_pb2.RangeRequest
        found = await self._range(first, end, limit=LEDGER_GROUP_ENTRIES_MAX, sort_order=newest.DESCEND)
        records = _in_order([self._record(pair) for pair in found.kvs])
        if not records:
            return None
        position = records[-1].position
        group = [record for record in records if record.position == position]
        return NewestGroup(position=position, entries=entries_of(group))

    # Reading.

    async def load(self) -> LedgerStart:
        while True:
            try:
                return await self._load()
            except Trimmed:
                continue  # compacted while it was read: begin again at a newer revision

    async def _load(self) -> LedgerStart:
        answer = await self._read_together(self._keys.snapshot, self._keys.head)
        snapshots, heads = (response.response_range.kvs for response in answer.responses)
        pointer = read_pointer(snapshots[0].value) if snapshots else None
        after = Position(0) if pointer is None else pointer.position
        records = await self._read_entries(after, answer.header.revision)
        return LedgerStart(pointer=pointer, head=_head(heads), records=records)

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        while True:
            try:
                async with aclosing(self._tail(after)) as records_of:
                    async for records in records_of:
                        after = records[-1].position
                        yield records
            except Trimmed:
                await self._check_kept(after)  # else only etcd's history is gone: the live keys are read again

    async def _tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        """What stands in etcd above `after`, then what comes. Raises `Trimmed` where that needs compacted history."""
        revision = await self._check_kept(after)
        records = await self._read_entries(after, revision)
        if records:
            yield records
        create = rpc_pb2.WatchCreateRequest(
            key=self._keys.entries,
            range_end=prefix_end(self._keys.entries),
            start_revision=revision + 1,
            filters=[rpc_pb2.WatchCreateRequest.NODELETE],
        )
        async with self._client.watch(create) as responses:
            async for response in responses:
                if response.compact_revision:
                    raise Trimmed(f"etcd has compacted up to {response.compact_revision}")
                if response.canceled:
                    raise LedgerUnavailable(f"etcd ended a watch: {response.cancel_reason}")
                records = _in_order([self._record(event.kv) for event in response.events])
                if records:
                    yield records

    async def _check_kept(self, after: Position) -> int:
        """A revision at which everything above `after` was there. Raises `Trimmed`."""
        answer = await self._read_together(self._keys.trimmed)
        found = answer.responses[0].response_range.kvs
        trimmed = int(found[0].value) if found else 0
        if after < trimmed:
            raise Trimmed(f"position {after} was asked for, everything up to {trimmed} is trimmed")
        return int(answer.header.revision)

    async def _read_entries(self, after: Position, revision: int) -> list[LedgerRecord]:
        """The entries above `after` that were there at `revision`, in order."""
        records: list[LedgerRecord] = []
        first, end = self._keys.entries, prefix_end(self._keys.entries)
        while True:
            page = await self._range(
                first, end, limit=ETCD_PAGE_ENTRIES_MAX, revision=revision, min_mod_revision=after + 1
            )
            records.extend(self._record(pair) for pair in page.kvs)
            if not page.more:
                return _in_order(records)
            first = page.kvs[-1].key + b"\0"

    async def _read_together(self, *keys: bytes) -> rpc_pb2.TxnResponse:
        return await self._client.txn(rpc_pb2.TxnRequest(success=[_get(key) for key in keys]))

    async def head(self) -> Head:
        return _head((await self._range(self._keys.head)).kvs)

    # Snapshots.

    async def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        key = self._keys.snapshot
        guard = _is_absent(key) if expected is None else _has_value(key, write_pointer(expected))
        answer = await self._client.txn(
            rpc_pb2.TxnRequest(compare=[guard], success=[_put(key, write_pointer(pointer))])
        )
        return bool(answer.succeeded)

    async def trim(self, position: Position) -> None:
        answer = await self._range(self._keys.snapshot)
        covered = read_pointer(answer.kvs[0].value).position if answer.kvs else Position(0)
        if position > covered:
            raise LedgerCorrupt(f"trim up to {position} was asked for, but the snapshot covers only up to {covered}")
        await self._raise_trimmed(position)
        first, end = self._keys.entries, prefix_end(self._keys.entries)
        while True:
            page = await self._range(first, end, limit=ETCD_PAGE_ENTRIES_MAX, max_mod_revision=position)
            if page.kvs:
                await self._drop([pair.key for pair in page.kvs])
            if not page.more:
                break
            first = page.kvs[-1].key + b"\0"
        await self._client.compact(position)

    async def _raise_trimmed(self, position: Position) -> None:
        """Note that entries up to `position` go, unless others go further: then this is theirs to say."""
        key = self._keys.trimmed
        found = (await self._range(key)).kvs
        if found and int(found[0].value) >= position:
            return
        guard = _has_value(key, found[0].value) if found else _is_absent(key)
        request = rpc_pb2.TxnRequest(compare=[guard], success=[_put(key, b"%d" % position)])
        if not (await self._client.txn(request)).succeeded:
            raise LedgerUnavailable("somebody else trims the ledger: try again")

    async def _drop(self, keys: Sequence[bytes]) -> None:
        """Delete entries: one range for each session, whose entries up to a position are its first ones."""
        last: dict[SessionId, bytes] = {}
        for key in keys:
            last[self._keys.read_entry(key)[0]] = key
        for session, key in last.items():
            await self._client.delete_range(self._keys.entry(session, 0), key + b"\0")

    async def close(self) -> None:
        await self._client.close()

    async def _range(self, key: bytes, end: bytes = b"", **options: int) -> rpc_pb2.RangeResponse:
        return await self._client.range(rpc_pb2.RangeRequest(key=key, range_end=end, **options))

    def _record(self, pair: kv_pb2.KeyValue) -> LedgerRecord:
        session, number = self._keys.read_entry(pair.key)
        return LedgerRecord(position=Position(pair.mod_revision), session=session, number=number, payload=pair.value)


def _in_order(records: list[LedgerRecord]) -> list[LedgerRecord]:
    return sorted(records, key=lambda record: (record.position, record.number))


def _head(pairs: Sequence[kv_pb2.KeyValue]) -> Head:
    if not pairs:
        return Head(position=Position(0), appends_count=0)
    return Head(position=Position(pairs[0].mod_revision), appends_count=pairs[0].version)


def _put(key: bytes, value: bytes, lease: int = 0) -> rpc_pb2.RequestOp:
    return rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=key, value=value, lease=lease))


def _get(key: bytes, end: bytes = b"") -> rpc_pb2.RequestOp:
    return rpc_pb2.RequestOp(request_range=rpc_pb2.RangeRequest(key=key, range_end=end))


def _is_absent(key: bytes) -> rpc_pb2.Compare:
    return _Compare(result=_Compare.EQUAL, target=_Compare.CREATE, key=key, create_revision=0)


def _is_created_at(key: bytes, revision: int) -> rpc_pb2.Compare:
    return _Compare(result=_Compare.EQUAL, target=_Compare.CREATE, key=key, create_revision=revision)


def _has_value(key: bytes, value: bytes) -> rpc_pb2.Compare:
    return _Compare(result=_Compare.EQUAL, target=_Compare.VALUE, key=key, value=value)
