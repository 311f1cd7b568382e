"""Which alterations of configs are written to the ledger, and which are refused before that, as by Kafka."""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from agent.admin.config_layers import BrokerConfigs
from agent.admin.configs import Alteration, ConfigAdmin, ConfigError
from coordinator.ledger.memory import MemoryLedger
from protocol.errors import ErrorCode
from protocol.limits import (
    CONFIG_OPERATIONS_MAX,
    CONFIG_RESOURCE_NAME_CHARS_MAX,
    CONFIG_RESOURCES_MAX,
    CONFIG_VALUE_CHARS_MAX,
)
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import TOPIC, create

TOPIC_TYPE, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
LOGGER_NAME = "tests.configs"
STAMPED = {"log.message.timestamp.type": "LogAppendTime"}


def admin(parts: Parts, settings: Mapping[str, str] | None = None) -> ConfigAdmin:
    configs = BrokerConfigs(settings or {}, node_id=1, state=lambda: parts.ledger.state)
    return ConfigAdmin(ledger=parts.ledger, broker_configs=configs, node_id=1)


def wanted(
    *operations: tuple[str, int, str | None], of: int = TOPIC_TYPE, name: str = "t", is_whole: bool = False
) -> Alteration:
    return Alteration(resource_type=of, resource_name=name, is_whole=is_whole, operations=operations)


@asynccontextmanager
async def with_topic(**configs: str) -> AsyncIterator[Parts]:
    async with running_parts(MemoryLedger()) as parts:
        pairs = tuple(sorted((name.replace("_", "."), value) for name, value in configs.items()))
        await parts.ledger.propose(replace(create(), configs=pairs))
        yield parts


async def refused(alteration: Alteration) -> tuple[ErrorCode, str]:
    """How an alteration is refused; nothing is written to the ledger."""
    async with with_topic() as parts:
        head = await parts.backend.head()
        with pytest.raises(ConfigError) as error:
            await admin(parts).alter(alteration, is_validate_only=False)
        assert await parts.backend.head() == head
        return error.value.error_code, str(error.value)


class TestTopics:
    async def test_operations_are_carried_out_in_the_ledger(self) -> None:
        async with with_topic(retention_ms="5", segment_ms="9") as parts:
            operations = [("retention.ms", DELETE, None), ("cleanup.policy", APPEND, " compact ")]
            await admin(parts).alter(wanted(*operations), is_validate_only=False)
            assert parts.ledger.state.topics[TOPIC].configs == {
                "cleanup.policy": "delete,compact",
                "segment.ms": "9",
            }

    async def test_a_request_that_only_validates_writes_nothing(self) -> None:
        async with with_topic() as parts:
            head = await parts.backend.head()
            await admin(parts).alter(wanted(("retention.ms", SET, "5")), is_validate_only=True)
            assert await parts.backend.head() == head

    @pytest.mark.parametrize(
        "operations", [[], [("retention.ms", SET, " 5 ")], [("segment.ms", DELETE, None), ("no.such", DELETE, "x")]]
    )
    async def test_what_changes_nothing_is_not_written(self, operations: list[tuple[str, int, str | None]]) -> None:
        async with with_topic(retention_ms="5") as parts:
            head = await parts.backend.head()
            await admin(parts).alter(wanted(*operations), is_validate_only=False)
            assert await parts.backend.head() == head

    @pytest.mark.parametrize(
        ("operations", "error_code"),
        [
            ([("retention.ms", SET, "soon")], ErrorCode.invalid_config),
            ([("no.such", SET, "1")], ErrorCode.invalid_config),
            ([("no.such", APPEND, "1")], ErrorCode.invalid_config),
            ([("retention.ms", APPEND, "1")], ErrorCode.invalid_config),
            ([("cleanup.policy", APPEND, "sometimes")], ErrorCode.invalid_config),
            ([("cleanup.policy", SET, "x" * (CONFIG_VALUE_CHARS_MAX + 1))], ErrorCode.invalid_config),
            (
                [("min.compaction.lag.ms", SET, str((1 << 63) - 1)), ("max.compaction.lag.ms", SET, "1")],
                ErrorCode.invalid_config,
            ),
            ([("retention.ms", SET, None)], ErrorCode.invalid_request),
            ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.invalid_request),
            ([("retention.ms", 9, "1")], ErrorCode.invalid_request),
            ([(f"n{n}", DELETE, None) for n in range(CONFIG_OPERATIONS_MAX + 1)], ErrorCode.invalid_request),
        ],
    )
    async def test_what_kafka_refuses_is_refused(
        self, operations: list[tuple[str, int, str | None]], error_code: ErrorCode
    ) -> None:
        told, message = await refused(wanted(*operations))
        assert told is error_code
        assert 0 < len(message) < 500

    @pytest.mark.parametrize(
        ("name", "error_code"),
        [
            ("", ErrorCode.invalid_request),
            ("a b", ErrorCode.invalid_topic_exception),
            ("unknown", ErrorCode.unknown_topic_or_partition),
            ("x" * (CONFIG_RESOURCE_NAME_CHARS_MAX + 1), ErrorCode.invalid_request),
        ],
    )
    async def test_a_topic_that_is_not_there_is_refused(self, name: str, error_code: ErrorCode) -> None:
        assert (await refused(wanted(("retention.ms", SET, "5"), name=name)))[0] is error_code

    async def test_a_bad_config_of_an_unknown_topic_is_reported_first_as_in_kafka(self) -> None:
        assert (await refused(wanted(("no.such", SET, "5"), name="unknown")))[0] is ErrorCode.invalid_config

    async def test_a_topic_that_is_deleted_meanwhile_is_told_by_the_ledger(self) -> None:
        async with with_topic() as parts:
            configs = admin(parts)
            parts.ledger.state.topic_ids["gone"] = TOPIC
            await configs.alter(wanted(("retention.ms", SET, "5"), name="gone"), is_validate_only=True)
            del parts.ledger.state.topic_ids["gone"]
            with pytest.raises(ConfigError) as error:
                await configs.alter(wanted(("retention.ms", SET, "5"), name="gone"), is_validate_only=False)
            assert error.value.error_code is ErrorCode.unknown_topic_or_partition


class TestWhoseClockStampsRecords:
    @pytest.mark.parametrize(
        ("operations", "is_whole"),
        [([("message.timestamp.type", DELETE, None)], False), ([], True), ([("retention.ms", SET, "5")], True)],
    )
    async def test_s14_a_topic_without_an_override_gets_that_of_the_agents_settings(
        self, operations: list[tuple[str, int, str | None]], *, is_whole: bool
    ) -> None:
        async with with_topic(message_timestamp_type="CreateTime") as parts:
            await admin(parts, STAMPED).alter(wanted(*operations, is_whole=is_whole), is_validate_only=False)
            topic = parts.ledger.state.topics[TOPIC]
            assert topic.configs["message.timestamp.type"] == "LogAppendTime"
            assert topic.is_log_append_time

    async def test_s14_an_override_that_is_given_counts(self) -> None:
        async with with_topic() as parts:
            given = wanted(("message.timestamp.type", SET, "CreateTime"), is_whole=True)
            await admin(parts, STAMPED).alter(given, is_validate_only=False)
            assert parts.ledger.state.topics[TOPIC].configs == {"message.timestamp.type": "CreateTime"}

    async def test_s14_what_was_altered_for_every_broker_needs_no_override(self) -> None:
        async with with_topic(message_timestamp_type="CreateTime") as parts:
            configs = admin(parts, STAMPED)
            every = wanted(("log.message.timestamp.type", SET, "LogAppendTime"), of=BROKER, name="")
            await configs.alter(every, is_validate_only=False)
            await configs.alter(wanted(("message.timestamp.type", DELETE, None)), is_validate_only=False)
            topic = parts.ledger.state.topics[TOPIC]
            assert (topic.configs, topic.is_log_append_time) == ({}, True)


class TestBrokers:
    async def test_a_brokers_configs_and_those_of_every_broker_are_kept(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        async with with_topic() as parts:
            configs = admin(parts)
            for name, value in (("1", "2"), ("", "3")):
                alteration = wanted(("background.threads", SET, value), of=BROKER, name=name)
                await configs.alter(alteration, is_validate_only=False)
            assert parts.ledger.state.broker_configs == {
                "1": {"background.threads": "2"},
                "": {"background.threads": "3"},
            }
        told = [record.__dict__["resource"] for record in caplog.records if record.name == "agent.admin.configs"]
        assert told == ["BROKER 1", "every broker"]

    @pytest.mark.parametrize(
        ("name", "operation"),
        [
            ("1", ("num.partitions", SET, "3")),
            ("", ("broker.id", SET, "3")),
            ("1", ("log.retention.ms", SET, "3")),
            ("", ("background.threads", SET, "0")),
            ("2", ("background.threads", SET, "3")),
            ("one", ("background.threads", SET, "3")),
            ("01", ("background.threads", SET, "3")),
            ("-", ("background.threads", SET, "3")),
        ],
    )
    async def test_what_kafka_refuses_is_an_invalid_request(
        self, name: str, operation: tuple[str, int, str | None]
    ) -> None:
        assert (await refused(wanted(operation, of=BROKER, name=name)))[0] is ErrorCode.invalid_request


class TestOthers:
    async def test_groups_and_subscriptions_need_not_exist(self) -> None:
        async with with_topic() as parts:
            configs = admin(parts)
            group = wanted(("consumer.session.timeout.ms", SET, "50000"), of=GROUP, name="g")
            metrics = wanted(("interval.ms", SET, "100"), of=METRICS, name="m", is_whole=True)
            for alteration in (group, metrics):
                await configs.alter(alteration, is_validate_only=False)
            assert parts.ledger.state.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}
            assert parts.ledger.state.client_metrics_configs == {"m": {"interval.ms": "100"}}

    @pytest.mark.parametrize(
        ("alteration", "error_code"),
        [
            (wanted(("consumer.session.timeout.ms", SET, "50000"), of=GROUP, name=""), ErrorCode.invalid_request),
            (wanted(("no.such", SET, "1"), of=GROUP, name="g"), ErrorCode.invalid_config),
            (wanted(("interval.ms", SET, "100"), of=METRICS, name=""), ErrorCode.invalid_request),
            (wanted(("no.such", SET, "1"), of=METRICS, name="m"), ErrorCode.invalid_request),
            (wanted(("metrics", APPEND, "a"), of=METRICS, name="m"), ErrorCode.invalid_config),
            (wanted(("match", SET, "client_id=["), of=METRICS, name="m"), ErrorCode.invalid_config),
            (wanted(("match", SET, r"client_id=(a)\1"), of=METRICS, name="m"), ErrorCode.invalid_config),
            (wanted(("a", SET, "1"), of=77), ErrorCode.invalid_request),
        ],
    )
    async def test_what_kafka_refuses_is_refused(self, alteration: Alteration, error_code: ErrorCode) -> None:
        assert (await refused(alteration))[0] is error_code

    async def test_what_the_ledger_refuses_is_reported(self) -> None:
        async with with_topic() as parts:
            parts.ledger.state.group_configs = {str(n): {"x": "1"} for n in range(CONFIG_RESOURCES_MAX)}
            with pytest.raises(ConfigError) as error:
                await admin(parts).alter(
                    wanted(("consumer.session.timeout.ms", SET, "50000"), of=GROUP, name="g"), is_validate_only=False
                )
            assert error.value.error_code is ErrorCode.policy_violation


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger(LOGGER_NAME)
    yield found
    found.setLevel(logging.NOTSET)


class TestLoggers:
    async def test_levels_are_set_and_unset_at_once(self, logger: logging.Logger) -> None:
        async with with_topic() as parts:
            head = await parts.backend.head()
            configs = admin(parts)
            given = wanted((LOGGER_NAME, SET, "ERROR"), of=LOGGER, name="1")
            await configs.alter(given, is_validate_only=True)
            assert logger.level == logging.NOTSET
            await configs.alter(given, is_validate_only=False)
            assert logger.level == logging.ERROR
            await configs.alter(wanted((LOGGER_NAME, DELETE, None), of=LOGGER, name="1"), is_validate_only=False)
            assert logger.level == logging.NOTSET
            assert await parts.backend.head() == head

    @pytest.mark.parametrize(
        ("operations", "name", "error_code"),
        [
            ([(LOGGER_NAME, SET, "LOUD")], "1", ErrorCode.invalid_config),
            ([("no.such.logger", SET, "INFO")], "1", ErrorCode.invalid_config),
            ([("root", DELETE, None)], "1", ErrorCode.invalid_request),
            ([(LOGGER_NAME, APPEND, "INFO")], "1", ErrorCode.invalid_request),
            ([(LOGGER_NAME, SUBTRACT, "INFO")], "1", ErrorCode.invalid_request),
            ([(LOGGER_NAME, SET, "INFO")], "2", ErrorCode.invalid_request),
            ([(LOGGER_NAME, SET, "INFO")], "", ErrorCode.invalid_request),
            ([(LOGGER_NAME, SET, "ERROR"), ("no.such.logger", SET, "INFO")], "1", ErrorCode.invalid_config),
        ],
    )
    async def test_what_kafka_refuses_is_refused_and_nothing_of_it_done(
        self, logger: logging.Logger, operations: list[tuple[str, int, str | None]], name: str, error_code: ErrorCode
    ) -> None:
        assert (await refused(wanted(*operations, of=LOGGER, name=name)))[0] is error_code
        assert logger.level == logging.NOTSET

    async def test_they_are_not_replaced_as_a_whole(self) -> None:
        whole = wanted((LOGGER_NAME, SET, "INFO"), of=LOGGER, name="1", is_whole=True)
        assert (await refused(whole))[0] is ErrorCode.invalid_request
