"""How long a failed authentication waits for its answer: a guesser gets slower with each failure.

Kafka's `connection.failed.authentication.delay.ms` holds for all. Beyond AUTHENTICATION_FAILURES_MAX failures of an
address within a minute each further one doubles it, up to AUTHENTICATION_DELAY_SECONDS_MAX.
"""

import math

from protocol.limits import (
    AUTHENTICATION_ADDRESSES_MAX,
    AUTHENTICATION_DELAY_SECONDS_MAX,
    AUTHENTICATION_FAILURE_SECONDS,
    AUTHENTICATION_FAILURES_MAX,
)


class FailureDelays:
    """The failures of each address in the minute that began with its first one."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[float, int]] = {}
        """The time of the first failure and the number, by address; the oldest first."""

    def delay_s(self, address: str, base_s: float, now_s: float) -> float:
        """Counts a failure, and returns for how many seconds its answer waits.

        Args:
            address: the client's, without its port.
            base_s: the usual delay.
            now_s: the monotonic clock's time.
        """
        since_s, count = self._failures.get(address, (now_s, 0))
        if now_s - since_s >= AUTHENTICATION_FAILURE_SECONDS:
            since_s, count = now_s, 0
        if not count:
            self._failures.pop(address, None)  # it is the newest from now on
            if len(self._failures) >= AUTHENTICATION_ADDRESSES_MAX:
                del self._failures[next(iter(self._failures))]
        self._failures[address] = since_s, count + 1
        beyond = min(count + 1 - AUTHENTICATION_FAILURES_MAX, 16)  # 2**16 of any delay is beyond the longest one
        if beyond <= 0:
            return base_s
        return max(base_s, min(AUTHENTICATION_DELAY_SECONDS_MAX, math.ldexp(max(base_s, 0.1), beyond)))
