"""The application of the HTTP port over a small agent, with logins and rights as a test wants them."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.applications import Starlette

from agent.config.http_auth import HttpAccess
from agent.http.api import build_app
from agent.http.iceberg.catalog_config import CatalogParts
from agent.runtime.clock import Clock, SystemClock
from agent.security.audit.audit_events import AuditEvent
from agent.security.http_identity import HttpIdentities, HttpPasswords, HttpRights, no_wait
from agent.security.rights import EVERY_OPERATION, Rights
from protocol.auth.operations import Operation, ResourceType, bits
from protocol.auth.principals import Principal
from tests.support.agent.small_agent import SmallAgent

Grants = Mapping[tuple[ResourceType, str], int]
"""The operations on resources, as bits."""


def http_app(
    agent: SmallAgent,
    catalog: CatalogParts | None = None,
    *,
    access: HttpAccess | None = None,
    rights: HttpRights | None = None,
    passwords: HttpPasswords | None = None,
    own_names: Collection[str] = (),
    record: Callable[[AuditEvent], None] = lambda _: None,
    until_room: Callable[[], Awaitable[None]] = no_wait,
    clock: Clock | None = None,
) -> Starlette:
    """By default only this machine is answered, and may do everything."""
    access = access or HttpAccess()
    identities = HttpIdentities(
        access=access,
        rights=rights or HttpRights(),
        passwords=passwords,
        clock=clock or SystemClock(),
        digest_key=bytes(32),
        own_names=own_names,
        record=record,
        until_room=until_room,
    )
    return build_app(agent.services, catalog, identities=identities, is_metrics_open=access.is_metrics_open)


@dataclass
class GrantedRights:
    """Rights by a table, of one principal. Counts the barriers that came before denials."""

    grants: Grants
    is_allowed_without_acls: bool = False
    barriers: int = 0
    denials: list[tuple[Operation, ResourceType, str]] = field(default_factory=list)

    def bits(self, resource_type: ResourceType, name: str) -> int:
        missing = EVERY_OPERATION if self.is_allowed_without_acls else 0
        return self.grants.get((resource_type, name), missing)

    def may_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return any(kind is resource_type and given >> operation & 1 for (kind, _), given in self.grants.items())

    def remember(self, known: dict[str, int], name: str, bits: int) -> None:
        known[name] = bits

    def replace_old_bits(self, rights: Rights) -> None:
        """The table of a test does not change."""

    async def catch_up(self) -> None:
        self.barriers += 1

    def count_denials(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> None:
        self.denials += [(operation, resource_type, name) for name in names]

    def rule(self, operation: Operation, resource_type: ResourceType, name: str) -> str:
        return f"the table's {operation.name} on {resource_type.name}:{name}"


def rights_by(grants_by_principal: Mapping[Principal, Grants], *, is_allowed_without_acls: bool = False) -> HttpRights:
    """An authorizer by a table. A principal that it does not have, ANONYMOUS mostly, may do nothing."""

    def rights_of(principal: Principal, _groups: Sequence[Principal], _host: str) -> Rights:
        grants = grants_by_principal.get(principal, {})
        return Rights(GrantedRights(grants, is_allowed_without_acls=is_allowed_without_acls))

    return HttpRights(is_enabled=True, is_allowed_without_acls=is_allowed_without_acls, rights_of=rights_of)


def on_topic(name: str, *operations: Operation) -> Grants:
    """Rights on one topic; DESCRIBE is implied, as by ACLs."""
    return {(ResourceType.TOPIC, name): bits(*{*operations, Operation.DESCRIBE})}
