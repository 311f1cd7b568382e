"""The connections of each credential, which end when it is deleted, and of each delegation token, which end with it.

Differs from Kafka, which leaves them. Credentials and tokens are polled, so a connection ends within a second.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.security.plain_users import PlainUsers
from agent.security.scram_accounts import CredentialKey, CredentialSource
from protocol.limits import CREDENTIAL_CHECK_SECONDS, PLAIN_USERS_RELOAD_SECONDS

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenProof:
    """A delegation token that a client has shown."""

    token_id: str


ProvedBy = CredentialKey | str | TokenProof
"""A credential of the state, the name of a user of `--plain-users`, or a delegation token."""


class AbortableConnection(Protocol):
    """A connection that can be ended."""

    def abort(self) -> None:
        """Close at once."""
        ...


class AuthenticatedConnections:
    """The connections of one agent by the credentials that proved their clients."""

    def __init__(
        self,
        source: CredentialSource,
        *,
        plain_users: PlainUsers | None,
        clock: Clock,
        metrics: Metrics,
        is_token_valid: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`is_token_valid` takes the id of a delegation token; by default there are none."""
        self._source = source
        self._plain_users = plain_users
        self._is_token_valid = is_token_valid
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
        """Whether a credential exists, or a token is valid."""
        if isinstance(proved_by, TokenProof):
            return self._is_token_valid(proved_by.token_id)
        if isinstance(proved_by, str):
            return self._plain_users is not None and self._plain_users.credential(proved_by) is not None
        return proved_by in self._source.credentials()

    async def run(self) -> None:
        """End connections of deleted credentials and of tokens that have ended, until it is cancelled."""
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
            else:  # tokens end by the time alone, too
                self._end(proved_by for proved_by in self._connections if isinstance(proved_by, TokenProof))

    def end_deleted(self) -> None:
        """End the connections whose credentials do not exist any more, or whose tokens have ended."""
        self._end(self._connections)

    def _end(self, proofs: Iterable[ProvedBy]) -> None:
        for proved_by in [proved_by for proved_by in proofs if not self.is_there(proved_by)]:
            connections = self._connections.pop(proved_by)
            if isinstance(proved_by, TokenProof):
                reason, extra = "token_ended", {"token": proved_by.token_id}
                text = "closed connections of a delegation token that expired or was removed"
            else:
                reason, extra = (
                    "credential_deleted",
                    {"user": proved_by if isinstance(proved_by, str) else proved_by[0]},
                )
                text = "closed connections of a user whose credential was deleted"
            log.info(text, extra={**extra, "connections": len(connections)})
            for connection in connections:
                self._metrics.connections_closed.labels(reason).inc()
                connection.abort()
