"""Topics as clients ask for them: looked up after a barrier where they seem unknown; created, grown, deleted by entry.

Rule: an "unknown topic" answer is given only after a read barrier (safety rule S4). Whether a topic may exist is
decided at apply; what is checked here spares the ledger an entry that would be refused anyway.
Source of the checks and their order: org.apache.kafka.controller.ReplicationControlManager (Kafka 4.3).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent.admin.config_layers import BrokerConfigs
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from coordinator.apply.topics import check_growth
from coordinator.commands.admin import AssignReplicas, CreatePartitions, Replicas
from coordinator.commands.commands import CreateTopic, DeleteTopic, Refused
from coordinator.configs.config_types import shorten
from coordinator.configs.topic_configs import InvalidConfig, broker_value, stamped_by, validate_topic_configs
from coordinator.configs.topic_names import INTERNAL_TOPICS, InvalidTopicName, validate_topic_name
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
    """A topic that cannot be had, created or deleted, as the client is told."""

    error_code: ErrorCode
    message: str | None = None


def deadline_s(clock: Clock, timeout_s: float = 0.0) -> float:
    """When a request's time is over, on the clock's monotonic time; one that names no time has a usual one."""
    return clock.monotonic_s() + (timeout_s if timeout_s > 0 else LEDGER_WAIT_SECONDS_MAX)


async def before(end_s: float, clock: Clock, work: Awaitable[T]) -> T:
    """The result of `work`, or a `TopicError` once the clock's monotonic time is `end_s`.

    A command that is in the ledger by then is applied nevertheless, as in Kafka.
    """
    try:
        async with clock.timeout(max(0.0, end_s - clock.monotonic_s())):
            return await work
    except TimeoutError as error:
        raise TopicError(ErrorCode.request_timed_out, "The ledger did not answer in time.") from error


async def catch_up(metadata: ApplyLoop, clock: Clock, end_s: float) -> TopicError | None:
    """Take a barrier (safety rule S4); the error, where this agent may not know what was done through others."""
    try:
        await before(end_s, clock, metadata.barrier())
    except TopicError as error:
        return error
    except LedgerUnavailable as error:
        return TopicError(ErrorCode.request_timed_out, str(error))
    return None


class TopicAdmin:
    """Looks up, creates and deletes topics on behalf of requests."""

    def __init__(self, *, metadata: ApplyLoop, writer: LedgerWriter, ids: Ids, broker_configs: BrokerConfigs) -> None:
        self._metadata = metadata
        self._writer = writer
        self._ids = ids
        self._broker_configs = broker_configs

    def known(self, name: str) -> TopicState | None:
        """The topic if this agent has seen it already: the hot path's lookup."""
        state = self._metadata.state
        topic_id = state.topic_ids.get(name)
        return None if topic_id is None else state.topics[topic_id]

    def known_id(self, topic_id: TopicId) -> TopicState | None:
        """Like `known`, by topic id."""
        return self._metadata.state.topics.get(topic_id)

    async def by_name(self, name: str) -> TopicState | None:
        """The topic, or None once a barrier confirmed that there is none (safety rule S4)."""
        topic = self.known(name)
        if topic is None:
            await self._metadata.barrier()
            topic = self.known(name)
        return topic

    async def by_id(self, topic_id: TopicId) -> TopicState | None:
        """Like `by_name`, by topic id."""
        topic = self.known_id(topic_id)
        if topic is None:
            await self._metadata.barrier()
            topic = self.known_id(topic_id)
        return topic

    async def caught_up(self, topic_id: TopicId) -> TopicState | None:
        """The topic as it is behind a barrier, whatever this agent knew of it before."""
        await self._metadata.barrier()
        return self.known_id(topic_id)

    @property
    def is_auto_create_enabled(self) -> bool:
        return broker_value(self._broker_configs, "auto.create.topics.enable") == "true"

    async def auto_create(self, name: str) -> TopicState:
        """The topic, made with `num.partitions` if there is none. Raises `TopicError`."""
        if name in INTERNAL_TOPICS:
            raise TopicError(ErrorCode.unknown_topic_or_partition)
        partition_count = int(broker_value(self._broker_configs, "num.partitions"))
        try:
            return await self.create(name, partition_count=partition_count, configs={})
        except TopicError as error:
            topic = self.known(name)
            if error.error_code is ErrorCode.topic_already_exists and topic is not None:
                return topic
            raise

    async def check(self, name: str, *, partition_count: int, configs: Mapping[str, str | None]) -> None:
        """Raise `TopicError` if a topic cannot be created like this.

        That it exists is said only once a barrier confirmed it: another agent may have deleted it (safety rule S4).
        """
        try:
            validate_topic_name(name)
        except InvalidTopicName as error:
            raise TopicError(ErrorCode.invalid_topic_exception, str(error)) from error
        if name in INTERNAL_TOPICS:
            message = f"'{name}' is a name of Kafka's own: what Kafka keeps there is in the ledger."
            raise TopicError(ErrorCode.topic_already_exists, message)
        if self.known(name) is not None:
            await self._metadata.barrier()
        if self.known(name) is not None:
            raise TopicError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        if partition_count <= 0:
            raise TopicError(ErrorCode.invalid_partitions, "Number of partitions must be larger than 0.")
        if partition_count > PARTITIONS_PER_TOPIC_MAX:
            raise TopicError(
                ErrorCode.invalid_partitions,
                f"A topic has at most {PARTITIONS_PER_TOPIC_MAX} partitions, {partition_count} were asked for.",
            )
        for config, value in configs.items():
            if value is None:
                raise TopicError(
                    ErrorCode.invalid_config, f"Null value not supported for topic configs: {shorten(config)}"
                )
        try:
            validate_topic_configs(_given(configs))
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
        """The new topic, once it is in the ledger; `replicas` by hand, for each partition. Raises `TopicError`."""
        await self.check(name, partition_count=partition_count, configs=configs)
        override = stamped_by(self._broker_configs.settings, self._broker_configs.every_broker)
        topic_id = TopicId(self._ids.new_uuid())
        outcome = await self._writer.propose(
            CreateTopic(
                name=name,
                topic_id=topic_id,
                partition_count=partition_count,
                configs=tuple(sorted({**override, **_given(configs)}.items())),
                replicas=self._kept(name, replicas),
            )
        )
        if isinstance(outcome, Refused):
            raise TopicError(outcome.error_code, outcome.reason)
        created = self._metadata.state.topics.get(topic_id)
        if created is None:
            raise TopicError(ErrorCode.unknown_topic_or_partition, f"Topic '{name}' was created, and deleted at once.")
        return created

    def check_growth(self, name: str, partition_count: int) -> TopicState:
        """The topic, if it can have so many partitions; to be called behind a barrier (S4). Raises `TopicError`."""
        topic = self.known(name)
        if topic is None:
            raise TopicError(ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
        refused = check_growth(self._metadata.state, topic, partition_count)
        if refused is not None:
            raise TopicError(refused.error_code, refused.reason)
        return topic

    async def grow(self, topic: TopicState, partition_count: int, replicas: Sequence[Sequence[int]] = ()) -> None:
        """Return once the topic has so many partitions, which were too few before; `replicas` by hand, for each that
        is added. Raises `TopicError`."""
        kept = self._kept(topic.name, replicas)
        await self._alter(CreatePartitions(topic_id=topic.topic_id, partition_count=partition_count, replicas=kept))

    async def assign_replicas(self, topic: TopicState, replicas: Mapping[PartitionIndex, Replicas]) -> None:
        """Return once the partitions have these replicas by hand. Raises `TopicError`."""
        await self._alter(AssignReplicas(topic_id=topic.topic_id, replicas=tuple(sorted(replicas.items()))))

    async def _alter(self, command: CreatePartitions | AssignReplicas) -> None:
        outcome = await self._writer.propose(command)
        if isinstance(outcome, Refused):
            is_gone = outcome.error_code is ErrorCode.unknown_topic_id
            raise TopicError(ErrorCode.unknown_topic_or_partition if is_gone else outcome.error_code, outcome.reason)

    def _kept(self, name: str, replicas: Sequence[Sequence[int]]) -> tuple[Replicas, ...]:
        """The replicas by hand that are kept: all where agents of these node ids live, else none.

        Differs from Kafka, which refuses others: so that what was made for another cluster need not be changed.
        """
        problem = next(filter(None, (self.replicas_problem(nodes) for nodes in replicas)), None)
        if problem is None:
            return tuple(map(tuple, replicas))
        log.info("the replicas given by hand to partitions of %r are not kept, they include %s", name, problem)
        return ()

    def replicas_problem(self, replicas: Sequence[int]) -> str | None:
        """The first id that Kafka rejects, too, in their order; None where it rejects none.

        Source: org.apache.kafka.controller.ReplicationControlManager.validateManualPartitionAssignment (Kafka 4.3).
        """
        if not replicas:
            return "an empty replica list"
        live = {session.node_id for session in self._metadata.state.sessions.values()}
        previous = None
        for node_id in sorted(replicas):
            if node_id not in live:
                return f"broker {node_id}, but no such broker is registered"
            if node_id == previous:
                return f"the broker {node_id} more than once"
            previous = node_id
        return None if len(replicas) <= REPLICAS_ASSIGNED_MAX else f"more than {REPLICAS_ASSIGNED_MAX} brokers"

    async def delete(self, topic: TopicState, *, is_by_name: bool) -> TopicState:
        """Delete the topic, or the one that has its name by now where it is meant by name; return which it was.

        Raises `TopicError`, as of an unknown topic where somebody else was faster.
        """
        while isinstance(outcome := await self._writer.propose(DeleteTopic(topic_id=topic.topic_id)), Refused):
            if topic.topic_id in self._metadata.state.topics:
                raise TopicError(outcome.error_code, outcome.reason)
            if not is_by_name:
                raise TopicError(ErrorCode.unknown_topic_id, outcome.reason)
            successor = self.known(topic.name)
            if successor is None:
                raise TopicError(ErrorCode.unknown_topic_or_partition, outcome.reason)
            topic = successor
        return topic


class TopicLookup:
    """Looks up the topics of one request. A ledger that is away is waited for once, not for each of its topics."""

    def __init__(self, topics: TopicAdmin) -> None:
        self._topics = topics
        self._is_ledger_away = False
        self._is_caught_up = False

    async def by_name(self, name: str) -> TopicState | None:
        """Like `TopicAdmin.by_name`; raises `LedgerUnavailable` for a topic of which nothing can be said."""
        return self._topics.known(name) or await self._asked(self._topics.by_name, name)

    async def by_id(self, topic_id: TopicId) -> TopicState | None:
        """Like `by_name`, by topic id."""
        return self._topics.known_id(topic_id) or await self._asked(self._topics.by_id, topic_id)

    async def grown_to(self, topic: TopicState, partition: int) -> TopicState | None:
        """The topic with a partition that it did not have as this agent saw it; None where it has not.

        That is said behind a barrier, one for all of a request, as others may have added it (safety rule S4). Raises
        `LedgerUnavailable` where nothing can be said.
        """
        if not 0 <= partition < PARTITIONS_PER_TOPIC_MAX:
            return None
        if not self._is_caught_up:
            await self._asked(self._topics.caught_up, topic.topic_id)
            self._is_caught_up = True
        grown = self._topics.known_id(topic.topic_id)
        return grown if grown is not None and partition < len(grown.partitions) else None

    async def _asked(self, look_up: Callable[[K], Awaitable[TopicState | None]], key: K) -> TopicState | None:
        if self._is_ledger_away:
            raise LedgerUnavailable("the ledger did not answer this request's barrier")
        try:
            return await look_up(key)
        except LedgerUnavailable:
            self._is_ledger_away = True
            raise


def _given(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The values, without the blanks around them, which mean nothing (org.apache.kafka.common.config.ConfigDef)."""
    return {name: value.strip() for name, value in configs.items() if value is not None}
