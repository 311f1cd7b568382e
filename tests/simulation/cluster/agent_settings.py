"""The settings of agents in the world, as a plan has them."""

from pathlib import Path

from agent.config.addresses import HostPort, ListenerAddress
from agent.config.authorizer_settings import AuthorizerSettings
from agent.config.listener_security import RELAY_LISTENER
from agent.config.settings import Settings
from tests.simulation.plan import GroupKind, Plan

PORT, RELAY_PORT = 9092, 9095
RETENTION_CHECK_MS = 2_000
GROUP_SESSION_MS_MIN = 1_000
TAIL_INTERVAL_MS = 4_000
TRANSACTION_CHECK_MS = 1_000
EXPIRY_CHECK_MS = 1_000


def store_url_of(plan: Plan) -> str:
    """The bucket's URL, the same for every agent."""
    return "memory:" if plan.is_store_cheap else "s3://bucket/prefix"


def settings_of(name: str, plan: Plan) -> Settings:
    """The settings of an agent in the world."""
    listeners = [ListenerAddress(name="PLAINTEXT", host=name, port=PORT)]
    if plan.has_one_address:
        listeners.append(ListenerAddress(name=RELAY_LISTENER, host=name, port=RELAY_PORT))
    return Settings(
        listeners=tuple(listeners),
        advertised=tuple(listeners),
        http=HostPort(host=name, port=0),
        ledger_url="memory:",
        store_url=store_url_of(plan),
        data_dir=Path(),
        name=name,
        is_taking_over_name=plan.is_taking_over_name,
        flush_interval_ms=plan.flush_interval_ms,
        tail_interval_ms=TAIL_INTERVAL_MS,
        archive_interval_s=plan.archive_interval_s,
        gc_min_age_s=plan.gc_min_age_s,
        read_cache_bytes=plan.read_cache_bytes,
        snapshot_entries=plan.snapshot_entries,
        broker_configs=_broker_configs(plan),
        authorizer=AuthorizerSettings(is_enabled=plan.has_authorizer, is_allowed_without_acls=True),
    )


def _broker_configs(plan: Plan) -> dict[str, str]:
    configs: dict[str, str] = {}
    if plan.is_log_trimmed:
        configs["log.retention.check.interval.ms"] = str(RETENTION_CHECK_MS)
    if plan.groups:
        configs["group.min.session.timeout.ms"] = str(GROUP_SESSION_MS_MIN)
        configs["group.initial.rebalance.delay.ms"] = str(plan.first_rebalance_delay_ms)
        configs["group.consumer.min.session.timeout.ms"] = str(GROUP_SESSION_MS_MIN)
        configs["group.consumer.min.heartbeat.interval.ms"] = "1"
    if plan.transactions is not None:
        configs["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = str(TRANSACTION_CHECK_MS)
        if plan.transactions.producer_expiration_ms:
            configs["producer.id.expiration.ms"] = str(plan.transactions.producer_expiration_ms)
        if plan.transactions.expiration_ms:
            configs["transactional.id.expiration.ms"] = str(plan.transactions.expiration_ms)
            configs["transaction.remove.expired.transaction.cleanup.interval.ms"] = str(EXPIRY_CHECK_MS)
    for group in plan.groups:
        if group.kind in {GroupKind.CONSUMER, GroupKind.MIXED}:
            configs["group.consumer.session.timeout.ms"] = str(group.session_ms)
            configs["group.consumer.heartbeat.interval.ms"] = str(int(group.heartbeat_s * 1000))
    return configs
