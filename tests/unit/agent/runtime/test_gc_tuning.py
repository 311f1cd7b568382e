"""The collector of cycles is paused where much is made, and passes over what a start made."""

import gc

import pytest

from agent.runtime.gc_tuning import collect_rarely, cyclic_gc_paused, pass_over_what_lives
from protocol.limits import GC_OBJECTS_MIN


def test_nothing_is_collected_within_the_block_and_again_after_it() -> None:
    assert gc.isenabled()
    with cyclic_gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_goes_on_after_a_block_that_failed() -> None:
    with pytest.raises(ValueError, match="unreadable"), cyclic_gc_paused():
        raise ValueError("unreadable")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with cyclic_gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_lives_is_passed_over() -> None:
    living: list[list[int]] = [[]]
    assert any(found is living for found in gc.get_objects())
    pass_over_what_lives()
    assert not any(found is living for found in gc.get_objects())


def test_the_youngest_are_looked_at_rarely_and_the_others_as_before() -> None:
    before = gc.get_threshold()
    try:
        collect_rarely()
        assert gc.get_threshold() == (GC_OBJECTS_MIN, *before[1:])
    finally:
        gc.set_threshold(*before)
