"""Wires the audit log of an agent: its settings in, an `AuditLog` over the chosen sink out."""

from agent.admin.topics import TopicAdmin
from agent.config.audit_options import AuditSettings, AuditTarget
from agent.context import AgentContext
from agent.produce.audit_topic import TopicSink
from agent.produce.produce_path import ProducePath
from agent.security.audit.audit_files import StderrSink, file_sink
from agent.security.audit.audit_log import AuditLog, AuditSink, NoSink


def wire_audit_log(
    context: AgentContext,
    settings: AuditSettings,
    *,
    cluster_id: str,
    agent: str,
    topics: TopicAdmin,
    produce: ProducePath,
) -> AuditLog:
    return AuditLog(
        sink=_sink(context, settings, topics, produce),
        classes=frozenset() if settings.target is AuditTarget.NONE else settings.classes,
        cluster_id=cluster_id,
        agent=agent,
        clock=context.clock,
        metrics=context.metrics,
    )


def _sink(context: AgentContext, settings: AuditSettings, topics: TopicAdmin, produce: ProducePath) -> AuditSink:
    match settings.target:
        case AuditTarget.NONE:
            return NoSink()
        case AuditTarget.STDERR:
            return StderrSink()
        case AuditTarget.FILE:
            assert settings.path is not None, "the settings of a file have its path"
            return file_sink(settings.path, settings.file_bytes_max)
        case AuditTarget.TOPIC:
            return TopicSink(context, topics=topics, produce=produce)
