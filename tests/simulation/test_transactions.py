"""Transactions in simulated worlds: all of one or nothing, decided once, by whoever has its transactional id.

Producers of both versions are late, stand still, die and are taken over, beside the faults of the worlds. That a world
in which a rule does not hold is found out, `tests.simulation.mutations.transactions` proves.
"""

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from tests.simulation.clients.transaction_wire import Fetched, Producer, batch_of, decode
from tests.simulation.faults.fault_names import FaultName
from tests.simulation.plan import ProducerFate, draw
from tests.simulation.scripted_plans import plan_of, producer_of
from tests.simulation.seeds import SEEDS, assert_sound, verdict_of
from tests.simulation.world import run
from tests.support.records.plain_records import Record, make_batch

DRAWN = 16
"""So many worlds with transactions, of those that no other test runs."""
DRAWN_QUICK = 8
"""Those of each run."""
DRAWN_PER_TEST = 4


@cache
def drawn_seeds() -> list[int]:
    """The first seeds that have transactions."""
    found = (seed for seed in range(SEEDS + 1, 20 * SEEDS) if draw(random.Random(seed)).transactions is not None)
    return [next(found) for _ in range(DRAWN)]


@pytest.mark.parametrize(
    "first",
    [
        first if first < DRAWN_QUICK else pytest.param(first, marks=pytest.mark.slow)
        for first in range(0, DRAWN, DRAWN_PER_TEST)
    ],
)
def test_every_world_with_transactions_is_sound(first: int) -> None:
    for seed in drawn_seeds()[first : first + DRAWN_PER_TEST]:
        assert_sound(verdict_of(seed))


def test_s7_a_late_request_on_a_connection_that_was_left_decides_nothing() -> None:
    """KAFKA-17754 for clients of V1, whose epoch does not tell one transaction from the next."""
    verdict = run(3, plan_of(3, producer_of(1, late_chance=0.15), producer_of(1, late_chance=0.15, is_flow=True)))
    assert_sound(verdict)
    assert "stale" in verdict.counts
    assert "committed" in verdict.counts


def test_a_late_request_under_the_epoch_before_decides_nothing() -> None:
    """KAFKA-17754 for clients of V2: the epoch tells."""
    verdict = run(5, plan_of(5, producer_of(2, late_chance=0.15), producer_of(2, late_chance=0.15, is_flow=True)))
    assert_sound(verdict)
    assert "stale" not in verdict.counts
    assert "committed" in verdict.counts


@pytest.mark.parametrize("version", [1, 2])
def test_of_two_instances_under_one_transactional_id_the_older_one_writes_nothing_any_more(version: int) -> None:
    fates = (ProducerFate.HIJACK, ProducerFate.PAUSE)
    restless = producer_of(version, fates=fates, is_flow=True)
    verdict = run(7, plan_of(7, restless, restless))
    assert_sound(verdict)
    assert "fenced" in verdict.counts
    assert "committed" in verdict.counts


@pytest.mark.parametrize("version", [1, 2])
def test_what_nobody_ends_is_aborted_in_time_or_by_a_tool(version: int) -> None:
    fates = (ProducerFate.PAUSE, ProducerFate.CRASH, ProducerFate.TERMINATE)
    restless = producer_of(version, timeout_ms=1_500, fates=fates, rests_chance=0.5)
    verdict = run(11, plan_of(11, restless, restless, restless))
    assert_sound(verdict)
    assert "ExpireTransaction" in verdict.counts
    assert "TerminateTransaction" in verdict.counts


@pytest.mark.parametrize("version", [1, 2])
def test_each_input_counts_once_while_agents_come_and_go(version: int) -> None:
    flow = producer_of(version, is_flow=True, fates=(ProducerFate.CRASH,), late_chance=0.03)
    plan = replace(plan_of(11, flow, flow), faults=(FaultName.CRASH, FaultName.PAUSE), fault_interval_s=2.0)
    verdict = run(11, plan)
    assert_sound(verdict)
    assert "CommitTransactionalOffsets" in verdict.counts
    assert {"crashes", "resumes"} & verdict.counts.keys()


def test_a_topic_whose_archived_records_were_all_aborted_has_a_tail_manifest_that_says_so() -> None:
    plan = plan_of(9, producer_of(2, abort_chance=1.0), placements=(False,))
    assert plan.transactions is not None
    verdict = run(9, replace(plan, transactions=replace(plan.transactions, is_shared=False)))
    assert_sound(verdict)
    assert "aborted" in verdict.counts
    assert "committed" not in verdict.counts


def test_the_worlds_with_transactions_are_not_idle() -> None:
    """A harness that lets nothing happen would find nothing."""
    happened = sum((Counter(verdict_of(seed).counts) for seed in drawn_seeds()[:DRAWN_QUICK]), Counter[str]())
    assert {
        "AddToTransaction",
        "CommitTransactionalOffsets",
        "EndTransaction",
        "InitTransactionalProducer",
        "ReplaceChunks",
        "aborted",
        "committed",
        "fate",
        "fenced",
        "offsets fetched",
    } <= happened.keys()


def test_a_reader_drops_what_was_aborted_up_to_its_marker_and_no_more() -> None:
    def written(value: bytes, offset: int) -> bytes:
        producer = Producer(transactional_id="a", producer_id=7, epoch=0)
        return at(batch_of([value], timestamp=5, producer=producer, sequence=offset), offset)

    def at(batch: bytes, offset: int) -> bytes:
        return offset.to_bytes(8, "big") + batch[8:]

    marker = bytearray(make_batch([Record(offset=0, timestamp=5, key=b"\x00\x00\x00\x00", value=b"\x00" * 6)]))
    marker[22] |= 0x30
    marker[43:51] = (7).to_bytes(8, "big")
    records = written(b"void", 4) + at(bytes(marker), 5) + written(b"true", 6)
    fetched = Fetched(error=0, last_stable=7, aborted=((7, 4),), records=records)
    assert decode(fetched, is_committed=True).records == [(6, b"true")]
    assert decode(fetched, is_committed=False).records == [(4, b"void"), (6, b"true")]
    assert decode(fetched, is_committed=True).ranges == [(4, 5), (5, 6), (6, 7)]
