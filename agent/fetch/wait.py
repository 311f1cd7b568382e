"""How long a fetch may go on waiting, apart from its own limits.

Rule: it ends once, and whoever waits is told at once. Nothing here waits.
"""

from collections.abc import Callable


class FetchWait:
    """The wait of one fetch. `end` may come before it, during it, after it, or never."""

    __slots__ = ("_wake", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._wake: Callable[[], None] | None = None

    def wakes(self, wake: Callable[[], None]) -> None:
        """Call `wake` when it ends; the last one named counts."""
        self._wake = wake

    def end(self) -> None:
        """The fetch waits no longer: it answers what is there."""
        self.is_over = True
        if self._wake is not None:
            self._wake()
