"""The wait of a fetch, which other parts of the agent may end early, apart from the fetch's own limits."""

from collections.abc import Callable


class FetchWait:
    """The wait of one fetch. `end` may come before it, during it, after it, or never."""

    __slots__ = ("_wake", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._wake: Callable[[], None] | None = None

    def wakes(self, wake: Callable[[], None]) -> None:
        """Call `wake` when it ends; replaces the function of an earlier call."""
        self._wake = wake

    def end(self) -> None:
        """End the wait: the fetch answers with the records that there are."""
        self.is_over = True
        if self._wake is not None:
            self._wake()
