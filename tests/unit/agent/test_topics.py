"""What a topic may be created with, before anything is written to the ledger."""

import pytest

from agent.ids import SystemIds
from agent.topics import TopicAdmin, TopicError
from coordinator.commands import Done
from protocol.errors import ErrorCode
from protocol.limits import CONFIG_VALUE_CHARS_MAX
from tests.made_commands import create
from tests.unit.agent.ledger_parts import Parts, running_parts


def admin(parts: Parts) -> TopicAdmin:
    return TopicAdmin(metadata=parts.metadata, writer=parts.writer, ids=SystemIds(), broker_configs={})


@pytest.mark.parametrize(
    "configs",
    [
        {"min.cleanable.dirty.ratio": "0.5".ljust(CONFIG_VALUE_CHARS_MAX + 1, "0")},
        {"leader.replication.throttled.replicas": "1:1" + ",2:2" * (1 << 20)},
        {"cleanup.policy": "delete" + "x" * (1 << 20)},
        {"retention.ms": "1" * CONFIG_VALUE_CHARS_MAX},
        {"x" * (1 << 20): "1"},
        {"x" * (1 << 20): None},
    ],
)
async def test_configs_that_do_not_fit_are_invalid_and_the_ledger_does_not_see_them(
    configs: dict[str, str | None],
) -> None:
    async with running_parts() as parts:
        head = await parts.ledger.head()
        with pytest.raises(TopicError) as refused:
            await admin(parts).create("t", partition_count=1, configs=configs)
        assert refused.value.error_code is ErrorCode.invalid_config
        assert len(refused.value.message or "") < 500
        assert await parts.ledger.head() == head
        assert await parts.writer.submit(create()) == Done()
