"""Places that addresses share."""

import random
from collections import Counter

from agent.security.connections.fair_places import FairPlaces


class SilentPeer:
    """A connection that never authenticates."""

    def __init__(self, places: FairPlaces, address: str) -> None:
        self.places = places
        self.address = address
        self.is_open = places.take(self)

    def give_way(self) -> None:
        self.is_open = False
        self.places.leave(self)


def test_one_address_keeps_no_other_out() -> None:
    places = FairPlaces(10)
    greedy = [SilentPeer(places, "greedy") for _ in range(12)]
    assert [each.is_open for each in greedy] == [True] * 10 + [False] * 2
    others = [SilentPeer(places, f"other {number % 4}") for number in range(12)]
    # The oldest ones give way, until every address has its share and none gains by another's loss.
    assert [each.is_open for each in others] == [True] * 8 + [False] * 4
    assert [each.is_open for each in greedy[:10]] == [False] * 8 + [True] * 2
    assert places.count == 10


def test_the_address_with_the_most_loses_its_oldest_whoever_came_and_went() -> None:
    drawn = random.Random(1)
    places = FairPlaces(20)
    there: list[SilentPeer] = []
    for _ in range(3_000):
        if there and drawn.random() < 0.3:
            places.leave(there.pop(drawn.randrange(len(there))))
            continue
        counts = Counter(each.address for each in there)
        newcomer = SilentPeer(places, f"{int(drawn.expovariate(0.3))}")
        most = max(counts.values(), default=0)
        gone = [each for each in there if not each.is_open]
        if len(there) < 20:
            assert newcomer.is_open
            assert not gone
        elif newcomer.is_open:
            (lost,) = gone
            assert counts[lost.address] == most > counts[newcomer.address] + 1
            assert lost is next(each for each in there if each.address == lost.address)
            there.remove(lost)
        else:
            assert most <= counts[newcomer.address] + 1
        if newcomer.is_open:
            there.append(newcomer)
        assert places.count == len(there)


def test_a_place_is_left_once() -> None:
    places = FairPlaces(1)
    first = SilentPeer(places, "first")
    places.leave(first)
    places.leave(first)
    assert places.count == 0
    second = SilentPeer(places, "second")
    assert second.is_open
    assert not SilentPeer(places, "third").is_open
    assert second.is_open, "an address with one place keeps it"
