"""What the commands say of a Kafka error code."""

import pytest

from agent.cli.clients.kafka_connection import check
from agent.cli.failure import CommandFailed, Unavailable
from protocol.errors import ErrorCode


def test_damaged_records_are_named_with_what_to_do() -> None:
    with pytest.raises(Unavailable) as failed:
        check(ErrorCode.kafka_storage_error, "orders-0")
    message = str(failed.value)
    assert message.startswith("the cluster answered KAFKA_STORAGE_ERROR for orders-0 (its records are damaged, or ")
    assert 'docs/operations/damage.md, "A damaged file"' in message


def test_an_error_that_needs_no_hint_is_named_alone() -> None:
    with pytest.raises(CommandFailed) as failed:
        check(ErrorCode.policy_violation, "topic orders")
    assert str(failed.value) == "the cluster answered POLICY_VIOLATION for topic orders"
    check(ErrorCode.none, "topic orders")
