"""Wires the services of request handlers."""

import asyncio
from collections.abc import Callable

from agent.admin.config_layers import BrokerConfigs
from agent.admin.configs import ConfigAdmin
from agent.admin.topics import TopicAdmin
from agent.config.token_settings import TokenSettings
from agent.context import AgentContext
from agent.fetch.sessions import FetchSessions
from agent.fetch.wiring import FetchServices
from agent.groups.wiring import GroupServices
from agent.ledger.producer_ids import ProducerIdBlock
from agent.produce.produce_path import ProducePath
from agent.produce.record_rules import RecordRulesOfTopics
from agent.request.connection_epochs import ConnectionEpochs, RelayedEpochs
from agent.request.cut_off import CutOff
from agent.request.draining import Draining
from agent.request.services import Services
from agent.security.audit.audit_log import AuditLog
from agent.security.authorizer import Authorizer
from agent.security.credential_seal import CredentialSeal
from agent.security.quotas.quotas import Quotas
from agent.security.tokens.delegation_tokens import DelegationTokens
from agent.telemetry.subscriptions import ClientTelemetry
from coordinator.configs.broker_configs import broker_value


def wire_services(
    context: AgentContext,
    *,
    cluster_id: str,
    node_id: int,
    store_url: str,
    broker_configs: BrokerConfigs,
    produce: ProducePath,
    fetch: FetchServices,
    groups: GroupServices,
    is_clock_ahead: Callable[[], bool],
    authorizer: Authorizer,
    audit_log: AuditLog,
    credential_seal: CredentialSeal,
    token_settings: TokenSettings,
    draining: Draining,
    tasks: asyncio.TaskGroup,
    is_relaying: bool,
) -> Services:
    return Services(
        cluster_id=cluster_id,
        node_id=node_id,
        ledger=context.ledger,
        produce=produce,
        record_rules=RecordRulesOfTopics(broker_configs),
        fetch=fetch.path,
        fetch_sessions=FetchSessions(),
        timestamps=fetch.timestamps,
        producer_ids=ProducerIdBlock(ledger=context.ledger),
        topics=TopicAdmin(ledger=context.ledger, ids=context.ids, broker_configs=broker_configs),
        connection_epochs=ConnectionEpochs(ledger=context.ledger, clock=context.clock),
        group_ledger=groups.ledger,
        groups=groups.classic,
        consumer_groups=groups.consumer,
        telemetry=_client_telemetry(context),
        quotas=Quotas(
            state=lambda: context.ledger.state,
            broker_configs=broker_configs,
            clock=context.clock,
            metrics=context.metrics,
        ),
        broker_configs=broker_configs,
        configs=ConfigAdmin(ledger=context.ledger, broker_configs=broker_configs, node_id=node_id),
        store_url=store_url,
        metrics=context.metrics,
        clock=context.clock,
        ids=context.ids,
        checked_time=context.proposed_time,
        is_clock_ahead=is_clock_ahead,
        authorizer=authorizer,
        audit_log=audit_log,
        credential_seal=credential_seal,
        delegation_tokens=DelegationTokens(context.ledger, settings=token_settings, checked_time=context.proposed_time),
        draining=draining,
        cut_off=CutOff(ledger=context.ledger, clock=context.clock),
        tasks=tasks,
        relayed_epochs=RelayedEpochs() if is_relaying else None,
    )


def _client_telemetry(context: AgentContext) -> ClientTelemetry:
    telemetry = ClientTelemetry(
        configs=lambda: context.ledger.state.client_metrics_configs,
        clock=context.clock,
        ids=context.ids,
        metrics=context.metrics,
        bytes_max=int(broker_value(context.broker_configs, "telemetry.max.bytes")),
    )
    context.metrics.registry.register(telemetry.series)
    context.metrics.client_telemetry_instances.set_function(lambda: telemetry.instances_count)
    return telemetry
