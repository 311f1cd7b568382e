"""The connections of each credential, which end when it is deleted.

Differs from Kafka, which leaves them. Credentials are polled, so a connection ends within a second.
"""

import logging
from typing import Protocol

from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.security.plain_users import PlainUsers
from agent.security.scram_accounts import CredentialKey, CredentialSource
from protocol.limits import CREDENTIAL_CHECK_SECONDS, PLAIN_USERS_RELOAD_SECONDS

log = logging.getLogger(__name__)

ProvedBy = CredentialKey | str
"""A credential of the state, or the name of a user of `--plain-users`."""


class AbortableConnection(Protocol):
    """A connection that can be ended."""

    def abort(self) -> None:
        """Close at once."""
        ...


class AuthenticatedConnections:
    """The connections of one agent by the credentials that proved their clients."""

    def __init__(
        self, source: CredentialSource, *, plain_users: PlainUsers | None, clock: Clock, metrics: Metrics
    ) -> None:
        self._source = source
        self._plain_users = plain_users
        self._clock = clock
        self._metrics = metrics
        self._connections: dict[ProvedBy, set[AbortableConnection]] = {}

    def add(self, proved_by: ProvedBy, connection: AbortableConnection) -> None:
        """End the connection once the credential is deleted."""
        self._connections.setdefault(proved_by, set()).add(connection)

    def remove(self, proved_by: ProvedBy, connection: AbortableConnection) -> None:
        """Forget a connection that is closed, or was proved by another credential."""
        connections = self._connections.get(proved_by)
        if connections is not None:
            connections.discard(connection)
            if not connections:
                del self._connections[proved_by]

    def is_there(self, proved_by: ProvedBy) -> bool:
        """Whether a credential exists."""
        if isinstance(proved_by, str):
            return self._plain_users is not None and self._plain_users.credential(proved_by) is not None
        return proved_by in self._source.credentials()

    async def run(self) -> None:
        """End connections of deleted credentials, until it is cancelled."""
        version = self._source.version()
        reloaded_s = self._clock.monotonic_s()
        while True:
            await self._clock.sleep(CREDENTIAL_CHECK_SECONDS)
            has_changed = False
            now_s = self._clock.monotonic_s()
            if self._plain_users is not None and now_s - reloaded_s >= PLAIN_USERS_RELOAD_SECONDS:
                reloaded_s = now_s
                has_changed = self._plain_users.reload()
            if has_changed or self._source.version() != version:
                version = self._source.version()
                self.end_deleted()

    def end_deleted(self) -> None:
        """End the connections whose credentials do not exist any more."""
        for proved_by in [proved_by for proved_by in self._connections if not self.is_there(proved_by)]:
            connections = self._connections.pop(proved_by)
            user = proved_by if isinstance(proved_by, str) else proved_by[0]
            log.info(
                "closed connections of a user whose credential was deleted",
                extra={"user": user, "connections": len(connections)},
            )
            for connection in connections:
                self._metrics.connections_closed.labels("credential_deleted").inc()
                connection.abort()
