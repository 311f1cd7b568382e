"""Worlds whose agents serve from memory, behind archive passes, what their producers sent.

All chunks of a world are small, so that drawn worlds read these records from the archive.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent.cache.chunk_cache import ServedChunk
from agent.fetch.chunk_reader import ChunkReader
from agent.ledger.apply_loop import PartitionKey
from coordinator.state.chunk_index import ChunkRef
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import Plan, draw
from tests.simulation.scripted_plans import plan_of, producer_of
from tests.simulation.seeds import SEEDS, assert_sound
from tests.simulation.world import run

WORLDS = 40


def with_memory(plan: Plan) -> Plan:
    """Passes come soon, and there is memory for all that is produced."""
    return replace(plan, archive_interval_s=2, read_cache_bytes=1_000_000, serves_small_chunks=True)


@pytest.mark.parametrize("seed", [40, 44])
def test_plain_batches_beside_transactions_are_served_so(seed: int) -> None:
    produced, served = ChunkReader.produced, list[ChunkRef]()

    def counted(
        reader: ChunkReader, key: PartitionKey, chunk: ChunkRef, offset: int
    ) -> Iterator[tuple[ChunkRef, ServedChunk]]:
        for part in produced(reader, key, chunk, offset):
            served.append(part[0])
            yield part

    producers = producer_of(2, abort_chance=0.4), producer_of(1, abort_chance=0.4)
    plan = replace(with_memory(plan_of(seed, *producers)), move_chance=0.0)
    with patched(ChunkReader, "produced", counted):
        verdict = run(seed, plan)
    assert_sound(verdict)
    assert "committed" in verdict.counts
    assert len(served) > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + WORLDS))
def test_drawn_worlds_that_serve_so_are_sound(seed: int) -> None:
    assert_sound(run(seed, with_memory(draw(random.Random(seed)))))
