"""When something was so: of an agent that was disturbed, or of a bucket that answered otherwise than it promises."""

import math
from collections.abc import Callable


class Spells:
    """Times in seconds of the world; what begins twice ends with its last end."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._spells: list[tuple[float, float]] = []
        self._depth = 0

    @property
    def is_on(self) -> bool:
        return self._depth > 0

    def begin(self) -> None:
        if not self._depth:
            self._spells.append((self._now_s(), math.inf))
        self._depth += 1

    def end(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._close()

    def end_all(self) -> None:
        """End whatever goes on."""
        if self._depth:
            self._depth = 0
            self._close()

    def was_on(self, first_s: float, last_s: float = math.inf) -> bool:
        """Whether it was so at some moment between two times."""
        return any(began_s <= last_s and ended_s >= first_s for began_s, ended_s in self._spells)

    def is_on_since(self, first_s: float) -> bool:
        """Whether it was so all the time from then on."""
        return bool(self._spells) and self._spells[-1][0] <= first_s and self.is_on

    def _close(self) -> None:
        self._spells[-1] = (self._spells[-1][0], self._now_s())
