"""The services of the HTTP port: the parts of one agent that its applications use.

`agent.components` wires those of a start, `agent.agent` the others. The applications (`agent.http.start_app`,
`agent.http.api`, `agent.http.iceberg.rest_api`, `agent.http.registry.rest_api`) know nothing else of the agent.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.admin.config_layers import BrokerConfigs
from agent.config.authorizer_settings import AuthorizerSettings
from agent.http.tail_urls import TailUrls
from agent.lake.archiver import Archiver
from agent.lake.external_catalogs import ExternalCatalogSync
from agent.lake.rewrite_jobs import LakeRewrites
from agent.lake.table_rebuild import TableRebuild
from agent.lake.table_updates import TableUpdates
from agent.ledger.ledger_client import LedgerClient
from agent.recovery.audit import Audit
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.notices import Notice
from agent.runtime.start_waits import StartWaits
from agent.security.audit.audit_events import AuditEvent
from agent.security.http_identity import HttpPasswords, HttpRights, TokenOwner, no_wait
from agent.security.oauth.bearer_tokens import BearerTokens
from agent.security.quotas.quotas import Quotas
from protocol.types import Milliseconds
from storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class StartServices:
    """The parts that exist before the agent's ledger and bucket do."""

    waits: StartWaits
    metrics: Metrics
    """Their exposition needs no state of the cluster, and no refresh."""
    clock: Clock
    authorizer: AuthorizerSettings = field(default_factory=AuthorizerSettings)
    accepts_issuer_tokens: bool = False
    """Whether the HTTP port accepts tokens that an issuer signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminServices:
    is_ready: Callable[[], bool]
    """False before the first sync and while draining only (architecture: names that do not change)."""
    not_ready_line: Callable[[], str]
    """The line of `/ready` while `is_ready` is false: the one reason for it, without names or addresses."""
    notices: Callable[[], Sequence[Notice]]
    """The conditions that an operator must act on although the agent serves."""
    status: Callable[[], Mapping[str, object]]
    """Values for JSON: `name`, `version`, `cluster_id`, `node_id`, `session`, `kafka` (a list of "NAME://HOST:PORT")
    and further values for people. `penstock produce` and `consume` connect to the first of `kafka`."""
    ledger: LedgerClient
    store: ObjectStore
    metrics: Metrics
    refresh_metrics: Callable[[], Awaitable[None]]
    """Computes the metrics of the whole cluster, before a scrape."""
    clock: Clock
    checked_time: Callable[[], Milliseconds | None]
    """The wall clock's time; None while the clock is not trusted (safety rule S2)."""
    broker_configs: BrokerConfigs
    archiver: Archiver
    rewrites: LakeRewrites
    table_rebuild: TableRebuild
    table_updates: TableUpdates
    catalog_syncs: Sequence[ExternalCatalogSync]
    """The syncs of the external catalogs that this agent updates."""
    new_audit: Callable[[], Audit]
    """Makes an audit of ledger and bucket, which runs once."""
    digest_key: bytes
    """Random: the key of the digests by which logins are remembered."""
    quotas: Quotas | None = None
    """The quotas of clients; None where they are not counted."""
    tail_urls: TailUrls | None = None
    """Signs URLs for readers of one topic; None where the store cannot, or there is no authorizer."""
    http_rights: HttpRights = field(default_factory=HttpRights)
    bearer_tokens: BearerTokens | None = None
    """The tokens of an issuer; None where they are not accepted."""
    token_owner: TokenOwner | None = None
    """Finds the owners of delegation tokens; None where there are none."""
    passwords: HttpPasswords | None = None
    """The check of the cluster's users; None where there are none."""
    record: Callable[[AuditEvent], None] = lambda _: None
    """Takes events of the audit log."""
    until_audit_room: Callable[[], Awaitable[None]] = no_wait
    """Returns once the audit log has room for another change."""
