"""The sessions of one ledger in etcd: leases under the names of agents (safety rule S12).

In: a name. Out: a session, whose id is the position at which its key was created; it ends with the lease of the key.
"""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from aetcd.rpc import kv_pb2, rpc_pb2

from coordinator.ledger.append_rules import NewestGroup
from coordinator.ledger.etcd.access import LeaseGone
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.guarded_requests import GuardedRequests
from coordinator.ledger.etcd.keys import EtcdKeys, prefix_end
from coordinator.ledger.etcd.lineage import Lineage
from coordinator.ledger.etcd.requests import get, is_absent, put
from coordinator.ledger.port import Fenced, LedgerCorrupt, LedgerUnavailable, SessionHeld
from protocol.types import SessionId


@dataclass(slots=True, kw_only=True)
class EtcdSession:
    """A session that this object opened."""

    name: str
    lease: int
    newest: NewestGroup | None = None
    is_unsure: bool = False
    """Whether a group may have been appended after `newest`: an answer did not come."""


class EtcdSessions:
    """The sessions of a ledger, of which this object keeps those that it opened."""

    def __init__(
        self,
        client: EtcdClient,
        keys: EtcdKeys,
        lineage: Lineage,
        requests: GuardedRequests,
        *,
        session_seconds: int,
    ) -> None:
        self._client = client
        self._keys = keys
        self._lineage = lineage
        self._requests = requests
        self._session_seconds = session_seconds
        self._opened: dict[SessionId, EtcdSession] = {}

    def opened(self, session: SessionId) -> EtcdSession:
        """A session that this object opened. Raises `Fenced` where it is none of them, or closed."""
        opened = self._opened.get(session)
        if opened is None:
            raise Fenced(f"session {session} is not one of this agent's, or over")
        return opened

    def forget(self) -> None:
        """Forget all sessions, which another incarnation does not have."""
        self._opened.clear()

    async def open(self, name: str) -> SessionId:
        """See `Ledger.open_session`."""
        lease = await self._client.grant_lease(self._session_seconds)
        key = self._keys.session(name)
        try:
            written = await self._requests.write(
                compare=[is_absent(key)], success=[put(key, b"", lease)], failure=[get(key)]
            )
        except (LedgerUnavailable, LedgerCorrupt):
            await self._revoke(lease)
            raise
        if not written.is_done:
            await self._revoke(lease)
            live = self._lineage.session(written.responses[0].response_range.kvs[0].create_revision)
            raise SessionHeld(f"session {live} lives under the name {name!r}", live)
        session = self._lineage.session(written.revision)
        self._opened[session] = EtcdSession(name=name, lease=lease)
        return session

    async def close(self, session: SessionId) -> None:
        """See `Ledger.close_session`."""
        closed = self._opened.pop(session, None)
        if closed is not None:
            await self._client.revoke_lease(closed.lease)

    async def revoke(self, name: str, session: SessionId) -> None:
        """See `Ledger.revoke_session`."""
        holder = await self._holder(name)
        # The lease goes, and not the key alone: it is this session's, and nothing that is created later has it.
        if holder is not None and self._lineage.session(holder.create_revision) == session:
            await self._client.revoke_lease(holder.lease)

    async def is_ended(self, name: str, session: SessionId) -> bool:
        """See `Ledger.is_session_ended`."""
        holder = await self._holder(name)
        return holder is None or self._lineage.session(holder.create_revision) != session

    async def _holder(self, name: str) -> kv_pb2.KeyValue | None:
        """The key of the session that lives under a name."""
        pairs = (await self._requests.read([get(self._keys.session(name))]))[0].response_range.kvs
        return pairs[0] if pairs else None

    async def live_names(self) -> Sequence[str]:
        """See `Ledger.live_names`."""
        keys = self._keys
        pairs = (await self._requests.read([get(keys.sessions, prefix_end(keys.sessions))]))[0].response_range.kvs
        return sorted(keys.read_session_name(pair.key) for pair in pairs)

    async def released_names(self) -> AsyncGenerator[str, None]:
        """See `Ledger.released_names`."""
        first = self._keys.sessions
        create = rpc_pb2.WatchCreateRequest(
            key=first,
            range_end=prefix_end(first),
            start_revision=(await self._requests.range(self._keys.head)).header.revision,
            filters=[rpc_pb2.WatchCreateRequest.NOPUT],
        )
        async with self._client.watch(create, is_asked=False) as responses:
            async for response in responses:
                if response.canceled:
                    raise LedgerUnavailable(f"etcd ended a watch: {response.cancel_reason}")
                for event in response.events:
                    yield self._keys.read_session_name(event.kv.key)

    async def _revoke(self, lease: int) -> None:
        with contextlib.suppress(LedgerUnavailable):  # it runs out by itself
            await self._client.revoke_lease(lease)

    async def keep(self, session: SessionId) -> None:
        """See `Ledger.keep_session`."""
        opened = self.opened(session)
        try:
            await self._client.keep_alive(opened.lease, seconds=self._session_seconds / 3)
        except LeaseGone as error:
            raise Fenced(f"the lease of session {session} has run out") from error
