"""Wires what answers fetches: readers of chunks over one cache, and one budget of memory for all reads."""

import asyncio

from agent.cache.chunk_cache import ChunkCache
from agent.context import AgentContext
from agent.fetch.chunk_reader import ArchiveReader, ChunkReader
from agent.fetch.damaged_objects import DamagedObjects
from agent.fetch.fetch_path import FetchPath
from agent.fetch.read_ahead import ReadAhead
from agent.fetch.read_budget import ReadBudget
from agent.fetch.timestamp_search import TimestampSearch
from protocol.limits import FETCH_READS_BYTES_MAX, READ_AHEAD_SHARE_OF_CACHE_MAX


class FetchServices:
    """Every agent has them."""

    def __init__(
        self,
        context: AgentContext,
        *,
        archive: ArchiveReader,
        cache: ChunkCache,
        tasks: asyncio.TaskGroup,
        is_store_cheap: bool,
    ) -> None:
        self._ledger = context.ledger
        self._damaged = DamagedObjects(clock=context.clock)
        budget = ReadBudget(bytes_max=FETCH_READS_BYTES_MAX)
        reader = ChunkReader(
            store=context.store,
            archive=archive,
            cache=cache,
            budget=budget,
            damaged=self._damaged,
            tasks=tasks,
            is_store_cheap=is_store_cheap,
        )
        ahead_bytes_max = int(READ_AHEAD_SHARE_OF_CACHE_MAX * cache.bytes_max)
        self.path = FetchPath(
            context,
            reader=reader,
            budget=budget,
            ahead=ReadAhead(reader=reader, budget=budget, clock=context.clock, bytes_max=ahead_bytes_max),
            confirmed_s=lambda: context.ledger.confirmed_s,
        )
        self.timestamps = TimestampSearch(ledger=context.ledger, reader=reader, budget=budget, clock=context.clock)
        context.metrics.cache_bytes.set_function(lambda: cache.bytes_held)
        context.metrics.cache_hits.set_function(lambda: cache.hits_count)
        context.metrics.cache_misses.set_function(lambda: cache.misses_count)
        context.metrics.damaged_objects.set_function(lambda: self.damaged_objects_count)

    @property
    def damaged_objects_count(self) -> int:
        """The number of referenced objects that were damaged when a consumer read them in the last ten minutes."""
        return self._damaged.count(self._ledger.state.object_ids)
