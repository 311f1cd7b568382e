"""When an agent is found to have applied what another one was told."""

import itertools

import pytest

from benchmarks.micro.rights_spread import SECONDS_MAX, Look, spread_s


def test_an_acl_is_seen_by_the_first_look_that_has_reached_its_position() -> None:
    looks = iter([Look(position=7, at_s=10.1), Look(position=7, at_s=10.2), Look(position=9, at_s=10.5)])
    assert spread_s(10.0, lambda: next(looks), lambda: 8) == pytest.approx(0.5)


def test_the_position_is_asked_for_behind_the_first_look_so_that_it_delays_none() -> None:
    asked: list[str] = []

    def look() -> Look:
        asked.append("look")
        return Look(position=8, at_s=10.1)

    def position() -> float:
        asked.append("position")
        return 8

    assert spread_s(10.0, look, position) == pytest.approx(0.1)
    assert asked == ["look", "position"]


def test_a_position_that_never_comes_is_an_error() -> None:
    looks = (Look(position=7, at_s=float(at_s)) for at_s in itertools.count(step=20))
    with pytest.raises(AssertionError, match="position 8"):
        spread_s(0.0, lambda: next(looks), lambda: 8)
    assert next(looks).at_s > SECONDS_MAX
