"""Quotas of controller mutations: partitions that a request creates or deletes (KIP-599).

A client of a version that knows THROTTLING_QUOTA_EXCEEDED gets it for each topic while it owes partitions, and nothing
is done; one of an older version is throttled after the fact.
Source: kafka.server.ControllerMutationQuotaManager, org.apache.kafka.controller.ReplicationControlManager (Kafka 4.3).
"""

from agent.admin.topics import TopicError
from agent.request.services import Request
from protocol.errors import ErrorCode


def count_mutations(request: Request, partitions_count: int, *, is_strict: bool) -> None:
    """Count partitions before they are created or deleted, only validated ones too, as in Kafka.

    Raises `TopicError` where the client owes some and the request is strict.
    """
    if request.usage is not None and not request.usage.take_mutations(partitions_count, is_strict=is_strict):
        raise TopicError(ErrorCode.throttling_quota_exceeded)
