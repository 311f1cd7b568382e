"""Which files become one: seldom enough to be cheap, often enough that few small ones stay."""

import random
from collections.abc import Iterator

import pytest

from iceberg_export.compaction.plan import SizedFile, plan_merge
from protocol.limits import COMPACTION_CHUNKS_MAX, COMPACTION_FILES_MAX, COMPACTION_TIER_GROWTH
from protocol.types import Milliseconds

TARGET = 128 * 1024 * 1024
KIB, MIB = 1024, 1024 * 1024
LOWEST = 16 * KIB
"""The lowest size of a tier, those being half the target divided by powers of the growth."""


def sized(object_bytes: int, *, newest_ms: int = -1, chunk_count: int = 1) -> SizedFile:
    return SizedFile(object_bytes=object_bytes, chunk_count=chunk_count, newest_ms=Milliseconds(newest_ms))


def planned(files: list[SizedFile], *, span_ms_max: int | None = None, chunks_max: int = 1000) -> range | None:
    return plan_merge(files, bytes_target=TARGET, span_ms_max=span_ms_max, chunks_max=chunks_max)


def test_nothing_is_merged_of_nothing_of_one_and_of_few() -> None:
    assert planned([]) is None
    assert planned([sized(1)]) is None
    assert planned([sized(LOWEST)] * (COMPACTION_TIER_GROWTH - 1)) is None


def test_enough_neighbours_of_one_size_become_one() -> None:
    assert planned([sized(LOWEST)] * COMPACTION_TIER_GROWTH) == range(COMPACTION_TIER_GROWTH)
    assert planned([sized(3 * LOWEST)] * 3) == range(3), "larger ones reach it sooner"


def test_a_file_of_half_the_target_is_done() -> None:
    assert planned([sized(TARGET // 2)] * 50) is None
    assert planned([sized(TARGET // 2 - 1)] * 2) == range(2), "they fill a file"
    assert planned([sized(TARGET // 2 - 1)] * 3) == range(2)


def test_small_neighbours_go_before_large_ones() -> None:
    files = [sized(10 * MIB)] * COMPACTION_TIER_GROWTH + [sized(KIB)] * COMPACTION_TIER_GROWTH
    assert planned(files) == range(COMPACTION_TIER_GROWTH, 2 * COMPACTION_TIER_GROWTH)


def test_only_neighbours_are_merged() -> None:
    files = [sized(KIB), sized(TARGET)] * COMPACTION_TIER_GROWTH
    assert planned(files) is None


def test_what_lies_between_files_that_are_done_becomes_one_at_once() -> None:
    assert planned([sized(TARGET), sized(KIB), sized(MIB), sized(TARGET)]) == range(1, 3)
    assert planned([sized(TARGET), sized(KIB), sized(TARGET)]) is None
    assert planned([sized(TARGET), sized(KIB), sized(MIB)]) is None


def test_no_merge_reads_more_files_or_replaces_more_chunks_than_it_may() -> None:
    assert planned([sized(1)] * 1000) == range(COMPACTION_FILES_MAX)
    assert planned([sized(LOWEST, chunk_count=300)] * 1000) == range(3)
    assert planned([sized(1, chunk_count=600)] * 1000) is None, "not even two fit into one entry"


def test_what_is_far_apart_in_time_is_not_mixed() -> None:
    days = [sized(LOWEST, newest_ms=1000 * day) for day in range(3 * COMPACTION_TIER_GROWTH)]
    assert planned(days, span_ms_max=1000 * COMPACTION_TIER_GROWTH) == range(COMPACTION_TIER_GROWTH + 1)
    assert planned(days, span_ms_max=1000 * (COMPACTION_TIER_GROWTH - 2)) is None
    without_times = [sized(LOWEST, newest_ms=-1)] * COMPACTION_TIER_GROWTH
    assert planned(without_times, span_ms_max=0) == range(COMPACTION_TIER_GROWTH)


def test_neighbours_behind_one_that_is_too_old_are_found() -> None:
    files = [sized(KIB, newest_ms=0), *[sized(LOWEST, newest_ms=10_000)] * COMPACTION_TIER_GROWTH]
    assert planned(files, span_ms_max=100) == range(1, COMPACTION_TIER_GROWTH + 1)


def sizes_of(kind: str, chance: random.Random) -> Iterator[int]:
    while True:
        match kind:
            case "even":
                yield 50 * KIB
            case "large":
                yield 20 * MIB
            case "mixed":
                yield int(2 ** chance.uniform(10, 26))
            case "bursts":
                yield 60 * MIB if chance.random() < 0.02 else int(2 ** chance.uniform(10, 14))
            case _:
                yield chance.choice((KIB, 80 * MIB, 300 * KIB, 5 * MIB))


@pytest.mark.parametrize(
    ("partitions", "kind", "written_max", "waiting_max"),
    [
        (1, "even", 4.7, 21),
        (1, "large", 2.1, 3),
        (1, "mixed", 2.1, 18),
        (1, "bursts", 2.1, 21),
        (1, "steps", 1.2, 5),
        (1_000, "even", 6.9, 13),
        (1_000, "mixed", 2.3, 20),
        (4_096, "even", 9.8, 10),
        pytest.param(4_096, "bursts", 1.1, 1_306, marks=pytest.mark.slow),
    ],
)
def test_each_byte_is_written_a_few_times_and_few_files_wait(
    partitions: int, kind: str, written_max: float, waiting_max: int
) -> None:
    """How often each byte was written, the first time counted too; each file has rows of so many partitions."""
    chance = random.Random(kind)
    sizes = sizes_of(kind, chance)
    files: list[int] = []
    added = written = waiting_most = 0
    for _ in range(1_500):
        files.append(next(sizes))
        added += files[-1]
        written += files[-1]
        while (
            found := planned([sized(size, chunk_count=partitions) for size in files], chunks_max=COMPACTION_CHUNKS_MAX)
        ) is not None:
            merged = sum(files[found.start : found.stop])
            assert merged <= TARGET
            files[found.start : found.stop] = [merged]
            written += merged
        if len(files) > 600:  # what is done for long needs no look
            done = next(index for index, size in enumerate(files) if size < TARGET // 2)
            del files[:done]
        is_done = [size >= TARGET // 2 for size in files]
        waiting_most = max(waiting_most, is_done.count(False) - is_done.count(True))
    assert written <= written_max * added
    assert waiting_most <= waiting_max
