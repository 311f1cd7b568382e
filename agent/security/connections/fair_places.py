"""Places that connections of many addresses share, so that one address keeps no other out.

Rule: where all places are taken, the address with the most loses its oldest one to an address that has fewer.
"""

from collections.abc import Callable, Hashable
from typing import Protocol


class Stranger(Hashable, Protocol):
    """A connection that takes a place until its client has shown who it is."""

    @property
    def address(self) -> str:
        """The client's address, without port."""
        ...

    def give_way(self) -> None:
        """Close, and leave the place at once: another address needs it."""
        ...


class FairPlaces:
    """The places, and who has them. Not thread-safe: one event loop's."""

    def __init__(self, places_max: int) -> None:
        self._places_max = places_max
        self.room: Callable[[], int] = lambda: places_max
        """How many places others leave, where they share a larger limit with these."""
        self._by_address: dict[str, dict[Stranger, None]] = {}
        """The connections by address, each address's oldest first."""
        self._addresses: dict[int, dict[str, None]] = {}
        """The addresses that have so many, for each number that one has."""
        self._most = 0
        self.count = 0
        """The places that are taken."""

    def take(self, newcomer: Stranger) -> bool:
        """Give a place to a connection that has none; False where its address has its share."""
        if self.count >= min(self._places_max, self.room()) and not self._make_room(newcomer):
            return False
        of_address = self._by_address.setdefault(newcomer.address, {})
        of_address[newcomer] = None
        self._note(newcomer.address, len(of_address) - 1, len(of_address))
        self.count += 1
        return True

    def leave(self, stranger: Stranger) -> None:
        """Take back the place of a connection, where it has one."""
        of_address = self._by_address.get(stranger.address, {})
        if stranger in of_address:
            del of_address[stranger]
            self._note(stranger.address, len(of_address) + 1, len(of_address))
            self.count -= 1
            if not of_address:
                del self._by_address[stranger.address]

    def _make_room(self, newcomer: Stranger) -> bool:
        """End the oldest connection of the address that has the most, unless the newcomer's would have as many."""
        if self._most <= len(self._by_address.get(newcomer.address, ())) + 1:
            return False
        busiest = next(iter(self._addresses[self._most]))
        next(iter(self._by_address[busiest])).give_way()
        return True

    def _note(self, address: str, before: int, now: int) -> None:
        """An address has one more, or one less. In constant time: strangers may come as fast as they like."""
        if before:
            of_number = self._addresses[before]
            del of_number[address]
            if not of_number:
                del self._addresses[before]
        if now:
            self._addresses.setdefault(now, {})[address] = None
        if now > self._most or self._most not in self._addresses:
            self._most = now
