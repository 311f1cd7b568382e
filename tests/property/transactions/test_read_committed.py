"""Whatever producers write, commit and abort side by side, whatever is archived and deleted in between: a consumer that
follows Kafka's algorithm reads what was committed, all of it and in order, from every offset (safety rule S5).

The model: what each offset holds and what became of its transaction. The archive keeps what was committed, once, and
never anything else.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Literal
from unittest import mock

import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from agent.cache import produced_chunks
from coordinator.invariants import check
from storage.refs import LAKE_PREFIX
from tests.support.agent.data_paths import DataPaths, data_paths
from tests.support.agent.transactional_paths import (
    COMMITTED,
    UNCOMMITTED,
    Producer,
    partition_of,
    produce_chunk,
    read_all,
    values_batch,
)
from tests.support.commands.commands import TOPIC, delete_before

PRODUCERS = 3
PLAIN = -1


@dataclass(frozen=True)
class Write:
    """One intake object: batches as (producer or `PLAIN`, how many records)."""

    batches: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class End:
    producer: int
    is_commit: bool


@dataclass(frozen=True)
class Delete:
    """Records before this part of the log."""

    share: float


Operation = Write | End | Delete | Literal["archive", "archive while it is read"]

OPERATIONS = st.lists(
    st.one_of(
        st.builds(
            Write,
            st.lists(st.tuples(st.integers(PLAIN, PRODUCERS - 1), st.integers(1, 3)), min_size=1, max_size=4).map(
                tuple
            ),
        ),
        st.builds(End, st.integers(0, PRODUCERS - 1), st.booleans()),
        st.builds(Delete, st.floats(0, 1)),
        st.sampled_from(["archive", "archive while it is read"]),
    ),
    min_size=4,
    max_size=25,
)


@dataclass
class Model:
    """What stands at each offset: a value, or None for a marker; and of which transaction, PLAIN for none."""

    values: list[bytes | None] = field(default_factory=list)
    transactions: list[int] = field(default_factory=list)
    decided: dict[int, bool] = field(default_factory=dict)
    """Transactions that ended, and whether they committed."""
    open: dict[int, int] = field(default_factory=dict)
    """The transaction that each producer has open."""
    log_start: int = 0
    next_transaction: int = 0

    @property
    def last_stable(self) -> int:
        firsts = [self.transactions.index(each) for each in self.open.values() if each in self.transactions]
        return max(min([len(self.values), *firsts]), self.log_start)

    def between(self, offset: int, end: int, *, only_committed: bool) -> list[tuple[int, bytes]]:
        found = list[tuple[int, bytes]]()
        for at in range(offset, end):
            value, transaction = self.values[at], self.transactions[at]
            is_committed = transaction == PLAIN or self.decided.get(transaction, False)
            if value is not None and (is_committed or not only_committed):
                found.append((at, value))
        return found


@dataclass
class World:
    paths: DataPaths
    producers: Sequence[Producer]
    model: Model = field(default_factory=Model)

    async def do(self, operation: Operation) -> None:
        match operation:
            case Write(batches):
                await self._write(batches)
            case End(producer, is_commit):
                await self._end(producer, is_commit=is_commit)
            case Delete(share):
                self.model.log_start = max(self.model.log_start, int(share * len(self.model.values)))
                await self.paths.parts.ledger.propose(delete_before(self.model.log_start))
            case "archive":
                await self.paths.archiver.archive_topic(TOPIC)
            case "archive while it is read":
                model = self.model
                await asyncio.gather(
                    *(self.check_reader(offset) for offset in range(model.log_start, len(model.values) + 1)),
                    self.paths.archiver.archive_topic(TOPIC),
                )
        assert check(self.paths.parts.ledger.state) == []
        assert partition_of(self.paths).last_stable == self.model.last_stable

    async def _write(self, batches: Sequence[tuple[int, int]]) -> None:
        model, made = self.model, list[bytes]()
        for number, count in batches:
            values = [b"%d" % (len(model.values) + n) for n in range(count)]
            if number == PLAIN:
                made.append(values_batch(values))
                transaction = PLAIN
            else:
                if number not in model.open:
                    await self.producers[number].begin()
                    model.open[number] = model.next_transaction
                    model.next_transaction += 1
                made.append(self.producers[number].batch(*values))
                transaction = model.open[number]
            model.values += values
            model.transactions += [transaction] * count
        await produce_chunk(self.paths, made)

    async def _end(self, number: int, *, is_commit: bool) -> None:
        transaction = self.model.open.pop(number, None)
        if transaction is not None:
            await self.producers[number].end(is_commit=is_commit)
            self.model.decided[transaction] = is_commit
            self.model.values.append(None)
            self.model.transactions.append(transaction)

    async def check_reader(self, offset: int, *, bytes_max: int = 1 << 20) -> None:
        end = self.model.last_stable
        if offset <= end:
            reader = await read_all(self.paths, offset, COMMITTED, bytes_max=bytes_max)
            found = [(record.offset, record.value) for record in reader.records]
            assert (reader.position, found) == (end, self.model.between(offset, end, only_committed=True))
        end = len(self.model.values)
        reader = await read_all(self.paths, offset, UNCOMMITTED, bytes_max=bytes_max)
        seen = [(record.offset, record.value) for record in reader.records]
        assert reader.position == end
        assert set(seen) <= set(self.model.between(offset, end, only_committed=False))
        assert set(seen) >= set(self.model.between(offset, end, only_committed=True))
        assert seen == sorted(seen)

    async def check_readers(self) -> None:
        for bytes_max in (1, 300, 1 << 20):
            for offset in range(self.model.log_start, len(self.model.values) + 1):
                await self.check_reader(offset, bytes_max=bytes_max)

    async def check_archive(self) -> None:
        """No file holds a record that was not committed, and none is in two files."""
        offsets = list[int]()
        async for meta in self.paths.memory.list(LAKE_PREFIX):
            if not meta.key.endswith(".parquet"):
                continue  # what makes a table of the files
            rows = pq.read_table(BytesIO(await self.paths.memory.get(meta.key)), columns=["offset", "value"])
            found = list(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))
            offsets += [offset for offset, _ in found]
            committed = dict(self.model.between(0, len(self.model.values), only_committed=True))
            assert all(committed.get(offset) == value for offset, value in found)
        assert len(offsets) == len(set(offsets))


@given(operations=OPERATIONS, is_cached=st.booleans())
def test_what_was_committed_is_read_whatever_else_is_going_on(operations: list[Operation], is_cached: bool) -> None:
    async def run() -> None:
        async with data_paths(cache_bytes=(64 << 20) if is_cached else 0) as paths:
            world = World(paths, [Producer(paths, f"tx-{number}") for number in range(PRODUCERS)])
            for operation in operations:
                await world.do(operation)
            await world.check_readers()
            for number in range(PRODUCERS):
                await world.do(End(number, is_commit=number % 2 == 0))
            await world.do("archive while it is read")
            await world.check_readers()
            await world.check_archive()
            assert all(chunk.is_archived for chunk in partition_of(paths).index.rows_from(0))
            assert partition_of(paths).transactions is None

    # Chunks of any size may be served behind their pass, as large ones are.
    with mock.patch.object(produced_chunks, "PRODUCED_CHUNK_BYTES_MIN", 0):
        asyncio.run(run())
