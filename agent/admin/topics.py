"""Looks up topics for requests, and creates, grows and deletes them by ledger entries.

A topic is called unknown only behind a barrier: another agent may have created it (safety rule S4). Apply decides
whether a topic may be created; the checks here only spare the ledger an entry that would be rejected.
Source of the checks and their order: org.apache.kafka.controller.ReplicationControlManager (Kafka 4.3).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent.admin.config_layers import BrokerConfigs
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from coordinator.apply.topics import check_growth
from coordinator.commands.admin import AssignReplicas, CreatePartitions, Replicas
from coordinator.commands.commands import CreateTopic, DeleteTopic, Rejected
from coordinator.configs.config_types import shorten
from coordinator.configs.topic_configs import InvalidConfig, broker_value, stamped_by, validate_topic_configs
from coordinator.configs.topic_names import AUDIT_TOPIC, INTERNAL_TOPICS, InvalidTopicName, validate_topic_name
from coordinator.ledger.port import LedgerUnavailable
from coordinator.state.state import TopicState
from protocol.errors import ErrorCode
from protocol.limits import LEDGER_WAIT_SECONDS_MAX, PARTITIONS_PER_TOPIC_MAX, REPLICAS_ASSIGNED_MAX
from protocol.types import PartitionIndex, TopicId

log = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K", str, TopicId)


@dataclass(frozen=True, slots=True)
class TopicError(Exception):
    """The error code and message for a client whose topic is unknown, or cannot be created or altered."""

    error_code: ErrorCode
    message: str | None = None


def deadline_s(clock: Clock, timeout_s: float = 0.0) -> float:
    """The monotonic time at which a request times out; LEDGER_WAIT_SECONDS_MAX from now where it names no time-out."""
    return clock.monotonic_s() + (timeout_s if timeout_s > 0 else LEDGER_WAIT_SECONDS_MAX)


async def before(end_s: float, clock: Clock, work: Awaitable[T]) -> T:
    """The result of `work`. Raises `TopicError` at the monotonic time `end_s`.

    A command that is in the ledger by then is applied nevertheless, as in Kafka.
    """
    try:
        async with clock.timeout(max(0.0, end_s - clock.monotonic_s())):
            return await work
    except TimeoutError as error:
        raise TopicError(ErrorCode.request_timed_out, "The ledger did not answer in time.") from error


async def catch_up(ledger: LedgerClient, clock: Clock, end_s: float) -> TopicError | None:
    """Take a barrier (safety rule S4); returns the error where it was not answered in time."""
    try:
        await before(end_s, clock, ledger.barrier())
    except TopicError as error:
        return error
    except LedgerUnavailable as error:
        return TopicError(ErrorCode.request_timed_out, str(error))
    return None


class TopicAdmin:
    """Looks up, creates and deletes topics on behalf of requests."""

    def __init__(self, *, ledger: LedgerClient, ids: Ids, broker_configs: BrokerConfigs) -> None:
        self._ledger = ledger
        self._ids = ids
        self._broker_configs = broker_configs

    def known(self, name: str) -> TopicState | None:
        """The topic, if this agent has applied its creation: the lookup of the hot path."""
        state = self._ledger.state
        topic_id = state.topic_ids.get(name)
        return None if topic_id is None else state.topics[topic_id]

    def known_id(self, topic_id: TopicId) -> TopicState | None:
        """Like `known`, by topic id."""
        return self._ledger.state.topics.get(topic_id)

    async def by_name(self, name: str) -> TopicState | None:
        """The topic, or None once a barrier confirmed that there is none (safety rule S4)."""
        topic = self.known(name)
        if topic is None:
            await self._ledger.barrier()
            topic = self.known(name)
        return topic

    async def by_id(self, topic_id: TopicId) -> TopicState | None:
        """Like `by_name`, by topic id."""
        topic = self.known_id(topic_id)
        if topic is None:
            await self._ledger.barrier()
            topic = self.known_id(topic_id)
        return topic

    async def caught_up(self, topic_id: TopicId) -> TopicState | None:
        """The topic behind a barrier; None where there is none."""
        await self._ledger.barrier()
        return self.known_id(topic_id)

    @property
    def is_auto_create_enabled(self) -> bool:
        return broker_value(self._broker_configs, "auto.create.topics.enable") == "true"

    async def auto_create(self, name: str, count_partitions: Callable[[int], None]) -> TopicState:
        """The topic, created with `num.partitions` if there is none. Raises `TopicError`, and what `count_partitions`
        raises, which is called with their number before they are created."""
        if name in INTERNAL_TOPICS:  # a client that asks for __consumer_offsets must not create a topic of that name
            raise TopicError(ErrorCode.unknown_topic_or_partition)
        if name == AUDIT_TOPIC:  # agents create it, with configs of its own
            raise TopicError(ErrorCode.unknown_topic_or_partition)
        partition_count = int(broker_value(self._broker_configs, "num.partitions"))
        count_partitions(partition_count)
        try:
            return await self.create(name, partition_count=partition_count, configs={})
        except TopicError as error:
            topic = self.known(name)
            # Another request was faster, here or at another agent.
            if error.error_code is ErrorCode.topic_already_exists and topic is not None:
                return topic
            raise

    async def check(self, name: str, *, partition_count: int, configs: Mapping[str, str | None]) -> None:
        """Raise `TopicError` where a topic of this name, size and configs cannot be created."""
        try:
            validate_topic_name(name)
        except InvalidTopicName as error:
            raise TopicError(ErrorCode.invalid_topic_exception, str(error)) from error
        if name in INTERNAL_TOPICS:
            message = f"'{name}' is an internal topic of Kafka. Here its content is in the ledger."
            raise TopicError(ErrorCode.topic_already_exists, message)
        if self.known(name) is not None:  # another agent may have deleted it (S4)
            await self._ledger.barrier()
        if self.known(name) is not None:
            raise TopicError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        if partition_count <= 0:
            raise TopicError(ErrorCode.invalid_partitions, "Number of partitions must be larger than 0.")
        if partition_count > PARTITIONS_PER_TOPIC_MAX:
            raise TopicError(
                ErrorCode.invalid_partitions,
                f"A topic has at most {PARTITIONS_PER_TOPIC_MAX} partitions; the request has {partition_count}.",
            )
        for config, value in configs.items():
            if value is None:
                raise TopicError(
                    ErrorCode.invalid_config, f"Null value not supported for topic configs: {shorten(config)}"
                )
        try:
            validate_topic_configs(_stripped(configs))
        except InvalidConfig as error:
            raise TopicError(ErrorCode.invalid_config, str(error)) from error

    async def create(
        self,
        name: str,
        *,
        partition_count: int,
        configs: Mapping[str, str | None],
        replicas: Sequence[Sequence[int]] = (),
    ) -> TopicState:
        """The new topic, once its entry is applied. `replicas`: those of each partition. Raises `TopicError`."""
        await self.check(name, partition_count=partition_count, configs=configs)
        override = stamped_by(self._broker_configs.settings, self._broker_configs.every_broker)
        topic_id = TopicId(self._ids.new_uuid())
        outcome = await self._ledger.propose(
            CreateTopic(
                name=name,
                topic_id=topic_id,
                partition_count=partition_count,
                configs=tuple(sorted({**override, **_stripped(configs)}.items())),
                replicas=self._accepted_replicas(name, replicas),
            )
        )
        if isinstance(outcome, Rejected):
            raise TopicError(outcome.error_code, outcome.reason)
        created = self._ledger.state.topics.get(topic_id)
        if created is None:
            raise TopicError(ErrorCode.unknown_topic_or_partition, f"Topic '{name}' was created, and deleted at once.")
        return created

    def check_growth(self, name: str, partition_count: int) -> TopicState:
        """The topic, if it can have `partition_count` partitions. The caller has taken a barrier (S4).

        Raises `TopicError`.
        """
        topic = self.known(name)
        if topic is None:
            raise TopicError(ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
        rejection = check_growth(self._ledger.state, topic, partition_count)
        if rejection is not None:
            raise TopicError(rejection.error_code, rejection.reason)
        return topic

    async def grow(self, topic: TopicState, partition_count: int, replicas: Sequence[Sequence[int]] = ()) -> None:
        """Add partitions until the topic has `partition_count`; `replicas` are of each new one. Raises `TopicError`."""
        accepted = self._accepted_replicas(topic.name, replicas)
        await self._alter(CreatePartitions(topic_id=topic.topic_id, partition_count=partition_count, replicas=accepted))

    async def assign_replicas(self, topic: TopicState, replicas: Mapping[PartitionIndex, Replicas]) -> None:
        """Give the partitions these replicas. Returns once the entry is applied. Raises `TopicError`."""
        await self._alter(AssignReplicas(topic_id=topic.topic_id, replicas=tuple(sorted(replicas.items()))))

    async def _alter(self, command: CreatePartitions | AssignReplicas) -> None:
        outcome = await self._ledger.propose(command)
        if isinstance(outcome, Rejected):
            is_gone = outcome.error_code is ErrorCode.unknown_topic_id
            raise TopicError(ErrorCode.unknown_topic_or_partition if is_gone else outcome.error_code, outcome.reason)

    def _accepted_replicas(self, name: str, replicas: Sequence[Sequence[int]]) -> tuple[Replicas, ...]:
        """The replicas of a request, where agents of all these node ids live; else none.

        Differs from Kafka, which rejects the request: scripts that were written for another cluster work unchanged.
        """
        problem = next(filter(None, (self.replicas_problem(nodes) for nodes in replicas)), None)
        if problem is None:
            return tuple(map(tuple, replicas))
        log.info(
            "the replicas given for partitions of %r are ignored: they include %s; leaders are chosen by hashing",
            name,
            problem,
        )
        return ()

    def replicas_problem(self, replicas: Sequence[int]) -> str | None:
        """The first replica that Kafka rejects, too, in Kafka's order; None where it rejects none.

        Source: org.apache.kafka.controller.ReplicationControlManager.validateManualPartitionAssignment (Kafka 4.3).
        """
        if not replicas:
            return "an empty replica list"
        live = {session.node_id for session in self._ledger.state.sessions.values()}
        previous = None
        for node_id in sorted(replicas):
            if node_id not in live:
                return f"broker {node_id}, but no such broker is registered"
            if node_id == previous:
                return f"the broker {node_id} more than once"
            previous = node_id
        return None if len(replicas) <= REPLICAS_ASSIGNED_MAX else f"more than {REPLICAS_ASSIGNED_MAX} brokers"

    async def delete(self, topic: TopicState, *, is_by_name: bool) -> TopicState:
        """Delete the topic, and return the deleted one.

        With `is_by_name`, a topic that was created under the same name meanwhile is deleted instead. Raises
        `TopicError`: an unknown topic where another request was faster.
        """
        while isinstance(outcome := await self._ledger.propose(DeleteTopic(topic_id=topic.topic_id)), Rejected):
            if topic.topic_id in self._ledger.state.topics:
                raise TopicError(outcome.error_code, outcome.reason)
            if not is_by_name:
                raise TopicError(ErrorCode.unknown_topic_id, outcome.reason)
            successor = self.known(topic.name)
            if successor is None:
                raise TopicError(ErrorCode.unknown_topic_or_partition, outcome.reason)
            topic = successor
        return topic


class TopicLookup:
    """Looks up the topics of one request. It waits for a ledger that is away once, not once for each topic."""

    def __init__(self, topics: TopicAdmin) -> None:
        self._topics = topics
        self._is_ledger_away = False
        self._is_caught_up = False

    async def by_name(self, name: str) -> TopicState | None:
        """Like `TopicAdmin.by_name`. Raises `LedgerUnavailable` where a barrier of the request was not answered."""
        return self._topics.known(name) or await self._look_up(self._topics.by_name, name)

    async def by_id(self, topic_id: TopicId) -> TopicState | None:
        """Like `by_name`, by topic id."""
        return self._topics.known_id(topic_id) or await self._look_up(self._topics.by_id, topic_id)

    async def grown_to(self, topic: TopicState, partition: int) -> TopicState | None:
        """The topic with a partition that `topic` does not have; None where there is no such partition.

        Another agent may have added it, so a barrier is taken, one for all topics of the request (safety rule S4).
        Raises `LedgerUnavailable` where it was not answered.
        """
        if not 0 <= partition < PARTITIONS_PER_TOPIC_MAX:
            return None
        if not self._is_caught_up:
            await self._look_up(self._topics.caught_up, topic.topic_id)
            self._is_caught_up = True
        grown = self._topics.known_id(topic.topic_id)
        return grown if grown is not None and partition < len(grown.partitions) else None

    async def _look_up(self, look_up: Callable[[K], Awaitable[TopicState | None]], key: K) -> TopicState | None:
        if self._is_ledger_away:
            raise LedgerUnavailable("the ledger did not answer this request's barrier")
        try:
            return await look_up(key)
        except LedgerUnavailable:
            self._is_ledger_away = True
            raise


def _stripped(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The configs that have values, without the blanks around these (org.apache.kafka.common.config.ConfigDef)."""
    return {name: value.strip() for name, value in configs.items() if value is not None}
