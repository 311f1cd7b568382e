"""How long rows should take, and how much time is left."""

from dataclasses import replace

import pytest

from benchmarks.__main__ import FULL, ROUNDS
from benchmarks.cases import MIB, Case, Kind, PeerName, cases
from benchmarks.schedule import Progress, rounds_of, row_seconds, run_seconds

PRODUCE = Case(kind=Kind.PRODUCE, value_bytes=1000)
BOTH = (PeerName.KAFKA, PeerName.EMBEDDED)
WHOLE_RUN_MINUTES_MAX = 110


def test_a_whole_run_should_take_an_hour_and_fifty_minutes_at_most() -> None:
    assert run_seconds(list(cases()), FULL, list(PeerName), ROUNDS) / 60 <= WHOLE_RUN_MINUTES_MAX


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.plain_name)
def test_every_row_has_an_estimate(case: Case) -> None:
    assert row_seconds(case, FULL, list(PeerName), 1) > 0


def test_kafka_and_the_embedded_broker_get_the_same_work() -> None:
    assert all(FULL.records(case, PeerName.KAFKA) == FULL.records(case, PeerName.EMBEDDED) for case in cases())


def test_a_producer_sends_what_its_seconds_take_at_the_usual_speed() -> None:
    scale = replace(FULL, produce_seconds=3)
    assert scale.records(PRODUCE, PeerName.KAFKA) == 3 * 20_000
    assert scale.records(replace(PRODUCE, batch_bytes=MIB, partitions=16), PeerName.MINIO) == 3 * 150_000


def test_small_batches_through_minio_are_half_as_many() -> None:
    assert FULL.records(PRODUCE, PeerName.MINIO) == FULL.records(PRODUCE, PeerName.KAFKA) // 2


def test_of_small_records_half_as_many_bytes_are_loaded() -> None:
    large, small = (Case(kind=Kind.CONSUME_MEMORY, value_bytes=value_bytes) for value_bytes in (1000, 100))
    assert FULL.records(large, PeerName.KAFKA) * 1000 == FULL.megabytes * 1_000_000
    assert FULL.records(small, PeerName.KAFKA) * 100 == FULL.megabytes * 500_000


def test_rounds_and_peers_multiply() -> None:
    once = row_seconds(PRODUCE, FULL, [PeerName.KAFKA], 1)
    assert row_seconds(PRODUCE, FULL, BOTH, 3) == pytest.approx(6 * once)


def test_a_peer_that_a_row_does_not_have_costs_nothing() -> None:
    assert row_seconds(replace(PRODUCE, peers=BOTH), FULL, [PeerName.MINIO], 3) == 0


def test_what_repeats_by_itself_has_one_round() -> None:
    assert [rounds_of(Case(kind=kind), 3) for kind in (Kind.IDLE, Kind.GROUPS, Kind.LATENCY)] == [1, 1, 3]


def test_before_the_first_row_all_that_is_expected_is_left() -> None:
    assert Progress(expected=[10.0, 30.0]).seconds_left == 40


def test_the_pace_of_the_rows_so_far_holds_for_the_others() -> None:
    progress = Progress(expected=[10.0, 10.0, 30.0])
    progress.done(5.0)
    progress.done(25.0)
    assert progress.seconds_left == pytest.approx(45.0)
    progress.done(60.0)
    assert progress.seconds_left == 0
