"""Transactions as clients ask for them, by the handlers of an agent that has the topic `t`."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from agent.request.connection_epochs import RequestEpoch
from agent.request.services import Services
from coordinator.ledger.memory import AppendFate, MemoryLedger
from coordinator.ledger.port import LedgerEntry
from protocol.errors import ErrorCode
from protocol.types import SessionId
from tests.compat.protocol_diff.batches import batch
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.commands.commands import TOPIC
from tests.support.handlers.handler_client import ask
from tests.support.records.kio_messages import KioEntity

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN = 0, 22, 24, 25, 26
TXN_OFFSET_COMMIT = 28
NONE = ErrorCode.none
ID = "x"
TIMEOUT = timedelta(seconds=60)
PLAIN_VERSION, V2_VERSION, FIRST_WITH_TOPIC_IDS = 9, 12, 13


class Producer(NamedTuple):
    """Who a producer says that it is."""

    producer_id: int = -1
    epoch: int = -1

    @property
    def next(self) -> "Producer":
        return self._replace(epoch=self.epoch + 1)

    @property
    def another(self) -> "Producer":
        return self._replace(producer_id=self.producer_id + 777_777)


NOBODY = Producer()


@asynccontextmanager
async def serving(
    partitions: int = 2, clock: ManualClock | None = None, *, is_stamping: bool = False
) -> AsyncIterator[Services]:
    """With the topic `t`."""
    async with data_paths(partitions=partitions) as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, clock or paths.parts.clock, tasks)
        stamping = tasks.create_task(services.connection_epochs.run()) if is_stamping else None
        yield services
        if stamping is not None:
            stamping.cancel()


def stop_answering(services: Services) -> None:
    """The ledger answers no append from now on."""
    ledger = services.ledger.backend
    assert isinstance(ledger, MemoryLedger)

    async def never(_session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
        await asyncio.Event().wait()
        return AppendFate.LOST

    ledger.fate_of_append = never


async def init(
    services: Services,
    version: int = 4,
    transactional_id: str | None = ID,
    producer: Producer = NOBODY,
    lasting: timedelta = TIMEOUT,
) -> KioEntity:
    more = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch} if version >= 3 else {}
    return await ask(
        services,
        INIT_PRODUCER_ID,
        version,
        transactional_id=transactional_id,
        transaction_timeout=lasting,
        **more,
    )


async def begun(services: Services, transactional_id: str = ID) -> Producer:
    """A producer as it is after InitProducerId."""
    told = await init(services, transactional_id=transactional_id)
    assert told.error_code is NONE
    return Producer(told.producer_id, told.producer_epoch)


async def add(
    services: Services,
    producer: Producer,
    version: int = 3,
    transactional_id: str = ID,
    topics: Mapping[str, Sequence[int]] | None = None,
    connection_epoch: RequestEpoch | None = None,
) -> Mapping[tuple[str, int], ErrorCode]:
    """The error of each partition, by AddPartitionsToTxn of a client."""
    named = [{"name": name, "partitions": list(indexes)} for name, indexes in (topics or {"t": [0]}).items()]
    told = await ask(
        services,
        ADD_PARTITIONS,
        version,
        None,
        connection_epoch,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=named,
    )
    return errors_of(told.results_by_topic_v3_and_below)


def errors_of(topics: Sequence[KioEntity]) -> Mapping[tuple[str, int], ErrorCode]:
    return {
        (topic.name, row.partition_index): row.partition_error_code
        for topic in topics
        for row in topic.results_by_partition
    }


async def add_group(
    services: Services,
    producer: Producer,
    version: int = 3,
    group: str = "g",
    transactional_id: str = ID,
    connection_epoch: RequestEpoch | None = None,
) -> ErrorCode:
    told = await ask(
        services,
        ADD_OFFSETS,
        version,
        None,
        connection_epoch,
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
    )
    error_code: ErrorCode = told.error_code
    return error_code


async def end(
    services: Services,
    producer: Producer,
    version: int = 3,
    connection_epoch: RequestEpoch | None = None,
    *,
    is_commit: bool = True,
    transactional_id: str = ID,
) -> KioEntity:
    return await ask(
        services,
        END_TXN,
        version,
        None,
        connection_epoch,
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=is_commit,
    )


async def produce(
    services: Services,
    producer: Producer,
    sequence: int = 0,
    version: int = PLAIN_VERSION,
    transactional_id: str | None = ID,
    *,
    is_transactional: bool = True,
    partition: int = 0,
) -> KioEntity:
    """What one batch of one record is answered."""
    records = batch(
        [b"v"], pid=producer.producer_id, epoch=producer.epoch, seq=sequence, transactional=is_transactional
    )
    name = {"topic_id": UUID(bytes=TOPIC)} if version >= FIRST_WITH_TOPIC_IDS else {"name": "t"}
    told = await ask(
        services,
        PRODUCE,
        version,
        transactional_id=transactional_id,
        acks=-1,
        timeout=TIMEOUT,
        topic_data=[name | {"partition_data": [{"index": partition, "records": records}]}],
    )
    answer: KioEntity = told.responses[0].partition_responses[0]
    return answer


async def pend(
    services: Services,
    producer: Producer,
    offsets: Mapping[int, int] | Sequence[tuple[int, int]],
    *,
    version: int = 5,
    group: str = "g",
    topic: str = "t",
    note: str | None = None,
    transactional_id: str = ID,
    connection_epoch: RequestEpoch | None = None,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
) -> list[tuple[int, ErrorCode]]:
    """Commits offsets in the producer's transaction; partitions, each with its error code."""
    rows = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": note}
        for index, offset in (offsets.items() if isinstance(offsets, Mapping) else offsets)
    ]
    by = {"generation_id": generation, "member_id": member, "group_instance_id": instance}
    answer = await ask(
        services,
        TXN_OFFSET_COMMIT,
        version,
        None,
        connection_epoch,
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[{"name": topic, "partitions": rows}],
        **(by if version >= 3 else {}),
    )
    return [(each.partition_index, each.error_code) for each in answer.topics[0].partitions]
