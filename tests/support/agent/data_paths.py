"""Produce, fetch and archive over a ledger and a store in memory, wired as an agent wires them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from agent.admin.config_layers import BrokerConfigs
from agent.admin.configs import ConfigAdmin
from agent.admin.topics import TopicAdmin
from agent.cache.chunk_cache import ChunkCache
from agent.config.authorizer_settings import AuthorizerSettings
from agent.config.token_settings import TokenSettings
from agent.fetch.chunk_reader import ChunkReader
from agent.fetch.damaged_objects import DamagedObjects
from agent.fetch.fetch_path import FetchPath
from agent.fetch.partition_read import PartitionRead
from agent.fetch.read_ahead import ReadAhead
from agent.fetch.read_budget import ReadBudget
from agent.fetch.sessions import FetchSessions, RequestedPartition
from agent.fetch.timestamp_search import TimestampSearch
from agent.groups.classic_coordinator import ClassicGroupCoordinator
from agent.groups.consumer_coordinator import ConsumerGroupCoordinator
from agent.groups.group_ledger import GroupLedger
from agent.lake.archiver import Archiver
from agent.ledger.producer_ids import ProducerIdBlock
from agent.produce.acknowledgement import Acknowledgement
from agent.produce.produce_path import ProducePath
from agent.produce.record_rules import RecordRulesOfTopics
from agent.request.connection_epochs import ConnectionEpochs
from agent.request.cut_off import CutOff
from agent.request.services import Services
from agent.runtime.clock import Clock
from agent.runtime.ids import SystemIds
from agent.runtime.threads import run_in_thread
from agent.security.authorizer import Authorizer, StateAcls
from agent.security.quotas.quotas import Quotas
from agent.security.tokens.delegation_tokens import DelegationTokens
from agent.telemetry.subscriptions import ClientTelemetry
from coordinator.commands.commands import Endpoint
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import Ledger, LedgerCorrupt
from iceberg_export.archive.plan import ArchivePolicy
from iceberg_export.parquet.reader import ParquetReader
from protocol.limits import MIB
from protocol.records.batch import split_batches
from protocol.types import PartitionIndex
from storage.batcher import BatchGroup
from storage.decorators.failing import FailingStore
from storage.memory_store import MemoryStore
from tests.support.agent.ledger_parts import Parts, lake_of, running_parts
from tests.support.commands.commands import TOPIC, create, start
from tests.support.records.plain_records import Record, read_batches


class Ticket:
    """Takes an acknowledgement, as a Produce request does."""

    def __init__(self) -> None:
        self.settled: asyncio.Future[Acknowledgement] = asyncio.get_running_loop().create_future()

    def settle(self, acknowledgement: Acknowledgement) -> None:
        self.settled.set_result(acknowledgement)


def group_of(batch: bytes, ticket: Ticket, partition: int = 0) -> BatchGroup:
    """What a Produce request brings for a partition of the topic."""
    view = memoryview(batch)
    return BatchGroup(TOPIC, PartitionIndex(partition), view, split_batches(view), ticket)


class DataPaths:
    """One topic `t`, with one partition unless told otherwise."""

    def __init__(
        self,
        parts: Parts,
        tasks: asyncio.TaskGroup,
        cache_bytes: int,
        budget_bytes: int,
        *,
        memory: MemoryStore | None = None,
        reads_ahead: bool = False,
    ) -> None:
        self.parts = parts
        self.memory = memory or MemoryStore()
        self.store = FailingStore(self.memory, sleep=self._pause)
        self.during_pause: Callable[[], Awaitable[object]] | None = None
        """What happens while a slow operation of the store is under way."""
        self.confirmed_s: float | None = None
        """When the ledger confirmed the session last; None stands for just now."""
        self.cache = ChunkCache(bytes_max=cache_bytes)
        self.produce_path = ProducePath(
            parts.context(store=self.store), cache=self.cache, tasks=tasks, flush_interval_ms=5, is_store_cheap=True
        )
        archive = ParquetReader(store=self.store, run_in_thread=run_in_thread)
        self.budget = ReadBudget(bytes_max=budget_bytes)
        self.reader = ChunkReader(
            store=self.store,
            archive=archive,
            cache=self.cache,
            budget=self.budget,
            damaged=DamagedObjects(clock=parts.clock),
            tasks=tasks,
            is_store_cheap=False,
        )
        self.ahead = ReadAhead(
            reader=self.reader, budget=self.budget, clock=parts.clock, bytes_max=cache_bytes if reads_ahead else 0
        )
        self.fetch_path = FetchPath(
            parts.context(),
            reader=self.reader,
            budget=self.budget,
            ahead=self.ahead,
            confirmed_s=lambda: parts.clock.monotonic_s() if self.confirmed_s is None else self.confirmed_s,
        )
        self.archiver = Archiver(
            parts.context(),
            lake=lake_of(parts, self.store),
            cache=self.cache,
            policy=ArchivePolicy(age_ms=1_000, bytes_target=1 << 30),
        )

    async def _pause(self, _seconds: float) -> None:
        if self.during_pause is not None:
            await self.during_pause()

    async def produce_together(self, batches: Mapping[int, bytes]) -> None:
        """One intake object with a batch for each of these partitions."""
        tickets = []
        for partition, batch in batches.items():
            tickets.append(Ticket())
            self.produce_path.add(group_of(batch, tickets[-1], partition))
        for ticket in tickets:
            await ticket.settled

    async def produce(self, *batches: bytes, partition: int = 0) -> list[Acknowledgement]:
        """The answers to batches that came in one after the other, each flushed before the next."""
        answers = []
        for batch in batches:
            ticket = Ticket()
            self.produce_path.add(group_of(batch, ticket, partition))
            answers.append(await ticket.settled)
        return answers

    async def fetch(self, offset: int, *, bytes_max: int = MIB, partition_bytes_max: int = MIB) -> PartitionRead:
        """What a consumer at `offset` is given at once."""
        wanted = RequestedPartition("t", 0, offset, partition_bytes_max, -1, -1)
        reads = await self.fetch_path.fetch([wanted], max_wait_ms=0, bytes_min=1, bytes_max=bytes_max)
        return reads[0]

    async def consume(self, *, partition_bytes_max: int) -> Sequence[Record]:
        """Every record from offset 0 on, fetch by fetch, as a consumer goes on: from where the last batch ended."""
        offset, records = 0, list[Record]()
        while True:
            read = await self.fetch(offset, partition_bytes_max=partition_bytes_max)
            if not read.records:
                return records
            batches = read_batches(b"".join(bytes(part) for part in read.records))
            records += [record for record in batches.records if record.offset >= offset]
            offset = batches.ranges[-1][1]


@asynccontextmanager
async def data_paths(
    *,
    cache_bytes: int = 64 * MIB,
    budget_bytes: int = 64 * MIB,
    timestamp_type: str = "CreateTime",
    partitions: int = 1,
    ledger: Ledger | None = None,
    memory: MemoryStore | None = None,
    rules: int = RULES_NEWEST,
) -> AsyncIterator[DataPaths]:
    """Paths whose topic exists."""
    async with running_parts(ledger, start(rules=rules)) as parts, asyncio.TaskGroup() as tasks:
        configs = (("message.timestamp.type", timestamp_type),)
        await parts.ledger.propose(replace(create(partitions=partitions), configs=configs))
        yield DataPaths(parts, tasks, cache_bytes, budget_bytes, memory=memory)


@asynccontextmanager
async def another_agent(
    paths: DataPaths,
    name: str = "b",
    *,
    cache_bytes: int = 64 * MIB,
    budget_bytes: int = 64 * MIB,
    reads_ahead: bool = False,
    connect: Callable[[MemoryLedgerCore], MemoryLedger] = MemoryLedger,
) -> AsyncIterator[DataPaths]:
    """Paths of another agent of the same cluster, at an address of its own, with nothing in its memory."""
    ledger = paths.parts.backend
    assert isinstance(ledger, MemoryLedger)
    begin = replace(
        start(name, node=ord(name[0]), rules=RULES_NEWEST),
        endpoints=(Endpoint(listener="PLAINTEXT", host=f"host-of-{name}", port=9092),),
    )
    async with (
        running_parts(connect(ledger.core), begin, store=paths.memory) as parts,
        asyncio.TaskGroup() as tasks,
    ):
        yield DataPaths(parts, tasks, cache_bytes, budget_bytes, memory=paths.memory, reads_ahead=reads_ahead)


@asynccontextmanager
async def tasks_that_fail() -> AsyncIterator[asyncio.TaskGroup]:
    """The tasks of an agent whose ledger contradicts itself when the block is left."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
            raise LedgerCorrupt("two heads")
    except* LedgerCorrupt:
        pass


def services_of(
    paths: DataPaths,
    clock: Clock,
    tasks: asyncio.TaskGroup,
    authorizer: AuthorizerSettings | None = None,
    token_settings: TokenSettings | None = None,
) -> Services:
    """What handlers use, over these paths."""
    parts = paths.parts
    configs = BrokerConfigs({}, node_id=1, state=lambda: parts.ledger.state)
    group_ledger = GroupLedger(ledger=parts.ledger, clock=clock)
    archive = ParquetReader(store=paths.store, run_in_thread=run_in_thread)
    reader = ChunkReader(
        store=paths.store,
        archive=archive,
        cache=paths.cache,
        budget=paths.budget,
        damaged=paths.reader.damaged,
        tasks=tasks,
        is_store_cheap=False,
    )
    groups = ClassicGroupCoordinator(parts.context(clock=clock, broker_configs=configs), group_ledger=group_ledger)
    groups.consumer_groups = ConsumerGroupCoordinator(
        parts.context(clock=clock, broker_configs=configs), group_ledger=group_ledger, classic=groups
    )
    return Services(
        cluster_id="c",
        node_id=1,
        ledger=parts.ledger,
        produce=paths.produce_path,
        record_rules=RecordRulesOfTopics(configs),
        fetch=paths.fetch_path,
        fetch_sessions=FetchSessions(),
        timestamps=TimestampSearch(ledger=parts.ledger, reader=reader, budget=paths.budget, clock=clock),
        producer_ids=ProducerIdBlock(ledger=parts.ledger),
        topics=TopicAdmin(ledger=parts.ledger, ids=SystemIds(), broker_configs=configs),
        connection_epochs=ConnectionEpochs(ledger=parts.ledger, clock=clock),
        group_ledger=group_ledger,
        groups=groups,
        consumer_groups=groups.consumer_groups,
        telemetry=ClientTelemetry(
            configs=lambda: parts.ledger.state.client_metrics_configs,
            clock=clock,
            ids=SystemIds(),
            metrics=parts.metrics,
            bytes_max=MIB,
        ),
        quotas=Quotas(state=lambda: parts.ledger.state, broker_configs=configs, clock=clock, metrics=parts.metrics),
        broker_configs=configs,
        configs=ConfigAdmin(ledger=parts.ledger, broker_configs=configs, node_id=1),
        store_url="memory:",
        metrics=parts.metrics,
        clock=clock,
        ids=SystemIds(),
        checked_time=parts.proposed_time,
        is_clock_ahead=lambda: False,
        cut_off=CutOff(ledger=parts.ledger, clock=clock),
        delegation_tokens=DelegationTokens(
            parts.ledger, settings=token_settings or TokenSettings(), checked_time=parts.proposed_time
        ),
        authorizer=Authorizer(
            authorizer or AuthorizerSettings(),
            acls=StateAcls(parts.ledger),
            ledger=parts.ledger,
            clock=clock,
            metrics=parts.metrics,
        ),
    )
