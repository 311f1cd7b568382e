"""A chunk of one batch is committed the short way; whatever comes, it becomes what the long way makes of it."""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.apply.chunks import _ChunkColumns
from coordinator.commands.commands import Command, Outcome
from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.configs.topic_configs import AT_COMMIT, AT_PRODUCE, PLACEMENT
from coordinator.snapshot import digest
from tests.support.commands.commands import Batch, Chunk, Cluster, commit
from tests.support.commands.transaction_commands import V1, V2, add, begin, end

batches = st.builds(
    Batch,
    records=st.integers(1, 3),
    crc=st.integers(0, 1 << 31),
    producer=st.integers(-1, 1),
    epoch=st.sampled_from([-1, 0, 0, 0, 1, 1]),
    sequence=st.integers(-1, 4),
    is_transactional=st.sampled_from([0, int(V1), int(V2), int(V2)]),
)
ends = st.builds(
    end,
    is_commit=st.booleans(),
    version=st.sampled_from([V1, V2]),
    producer=st.integers(0, 1),
    epoch=st.integers(0, 1),
)
steps = st.lists(batches | batches | ends | st.builds(add, st.just(0), epoch=st.integers(0, 1)), max_size=25)


def outcomes(placement: str, taken: list[Batch | Command]) -> tuple[list[Outcome], bytes, list[bytes]]:
    """Of a batch each alone in its chunk, and of other commands; and the state that they leave."""
    cluster = Cluster.started(RULES_CHECKED_STORAGE, **{PLACEMENT.replace(".", "_"): placement})
    told: list[Outcome] = [cluster.do(begin(), time_ms=5)]
    for number, step in enumerate(taken):
        command = commit(number, Chunk(batches=[step])) if isinstance(step, Batch) else step
        told.append(cluster.do(command, time_ms=10 + number))
    return told, digest(cluster.state), cluster.partition.index.columns()


def the_long_way(commit: _ChunkColumns, *arguments: object) -> None:
    key, partition, row, byte_first, append_time_ms = arguments
    commit._commit_batches(key, partition, row, row + 1, byte_first, append_time_ms)  # type: ignore[arg-type,operator]


@pytest.mark.parametrize("placement", [AT_PRODUCE, AT_COMMIT])
@given(taken=steps)
def test_the_short_way_leads_where_the_long_one_does(placement: str, taken: list[Batch | Command]) -> None:
    short = outcomes(placement, taken)
    with patch.object(_ChunkColumns, "_commit_one", the_long_way):
        assert outcomes(placement, taken) == short
