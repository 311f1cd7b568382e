"""Which quota holds for a client: the first of Kafka's eight levels that has one.

In: the state's quotas, a user and a client id. Out: the limit, and who shares it. Levels, the first one first: user and
client id, user and any client id, user, any user and client id, any user and any client id, any user, client id, any
client id. A quota of any user or any client id holds for each user or client id by itself.
Source: kafka.server.ClientQuotaManager.DefaultQuotaCallback (Kafka 4.3).
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: types of entities with their names, None for the default, in order of types."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

DEFAULT: Final = "<default>"
"""The name of a default entity in texts, as Kafka's tools write it."""
ANY: Final = ""
"""The user or client id of a quota that those with any of them share."""


class AppliedQuota(NamedTuple):
    """A limit, and the user and client id that all who share it have; empty where that may differ among them."""

    limit: float
    user: str
    client_id: str
    entity: QuotaEntity
    """Whom it is set for."""

    @property
    def entity_text(self) -> str:
        """Whom it is set for, as text: `user=ann,client-id=<default>`."""
        # Kafka names the user first; an entity has its types in their order.
        return ",".join(f"{kind}={DEFAULT if name is None else name}" for kind, name in reversed(self.entity))


def applied_quota(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], name: str, user: str, client_id: str
) -> AppliedQuota | None:
    """The quota `name` that holds for a user and a client id; None where none does.

    A client without an id (empty) is held to no quota of client ids, and an empty user to none of users, as in Kafka.
    """
    for entity, shared_user, shared_client_id in _levels(user, client_id):
        limit = quotas.get(entity, {}).get(name)
        if limit is not None:
            return AppliedQuota(limit, shared_user, shared_client_id, entity)
    return None


def _levels(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, str, str]]:
    """The entities whose quota may hold, each with the user and client id of those who share it."""
    if user:
        for named in (user, None):
            if client_id:
                yield ((CLIENT_ID, client_id), (USER, named)), user, client_id
                yield ((CLIENT_ID, None), (USER, named)), user, client_id
            yield ((USER, named),), user, ANY
    if client_id:
        yield ((CLIENT_ID, client_id),), ANY, client_id
        yield ((CLIENT_ID, None),), ANY, client_id
