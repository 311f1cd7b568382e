"""Identifiers and the clock, as far as they can be pinned down."""

import asyncio

import pytest

from agent.runtime.clock import SystemClock
from agent.runtime.ids import SystemIds, uuid_text


def test_uuids_are_16_bytes_and_do_not_come_twice() -> None:
    ids = SystemIds()
    drawn = {ids.new_uuid() for _ in range(1_000)}
    assert len(drawn) == 1_000
    assert {len(each) for each in drawn} == {16}


def test_a_cluster_id_has_kafkas_form() -> None:
    ids = SystemIds()
    for _ in range(500):
        text = ids.new_cluster_id()
        assert len(text) == 22
        assert not text.startswith("-")


def test_the_text_of_a_uuid_is_kafkas() -> None:
    # org.apache.kafka.common.Uuid: METADATA_TOPIC_ID prints as this.
    assert uuid_text(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_jitter_lies_within_zero_and_one() -> None:
    assert all(0 <= SystemIds().jitter() < 1 for _ in range(100))


async def test_a_timeout_ends_what_takes_too_long() -> None:
    with pytest.raises(TimeoutError):
        async with SystemClock().timeout(0):
            await asyncio.Event().wait()


async def test_no_timeout_does_not_end_anything() -> None:
    async with SystemClock().timeout(None):
        await SystemClock().sleep(0)


def test_wall_time_is_in_milliseconds_and_elapsed_time_does_not_go_back() -> None:
    clock = SystemClock()
    assert 1_700_000_000_000 < clock.now_ms() < 10_000_000_000_000
    assert clock.monotonic_s() <= clock.monotonic_s()
