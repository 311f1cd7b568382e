"""Throttling: the use of each request is counted in its client's quotas, and a client above one is muted.

The answer leaves at once and says for how long the client is throttled (KIP-219). The longest of several times counts.

- Produce: the bytes of the request. The time of a request with acks=0 is not counted.
- Fetch: the bytes of the response. Above a quota the answer is empty, and its bytes are not counted.
- The time of a handler, on the event loop and in threads that it waits for; throttled for a window at most.
- Mutations of the cluster: partitions that a request creates or deletes (KIP-599).

Differs from Kafka: a response that alone is more than its quota allows in all windows is sent once nothing else is
counted. In Kafka a consumer never gets beyond a batch of that size.
Source: kafka.server.KafkaApis (handleProduceRequest, handleFetchRequest), RequestHandlerHelper,
ControllerMutationQuotaManager (Kafka 4.3).
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final, TypeVar

from agent.runtime.cpu_meter import CpuMeter
from agent.security.quotas.quota_windows import CountedRate, TokenBucket
from agent.security.quotas.quotas import PERCENT_PER_SECOND, ClientQuotas, Meter, Quotas
from protocol.api_versions import ApiKey
from protocol.connection import RequestFrame
from protocol.limits import THROTTLE_MS_MAX

T = TypeVar("T")

EXEMPT_FROM_TIME: Final = frozenset({ApiKey.WRITE_TXN_MARKERS})
"""Requests between brokers in Kafka."""


class RequestUsage:
    """The use of one request of a client that has quotas, and the time for which that client is throttled."""

    __slots__ = (
        "_api_key",
        "_client",
        "_cpu",
        "_is_time_counted",
        "_meter",
        "_quota",
        "_quotas",
        "_request_bytes",
        "_until_s",
    )

    def __init__(self, quotas: Quotas, client: ClientQuotas, frame: RequestFrame) -> None:
        self._quotas = quotas
        self._client = client
        self._api_key = frame.api_key
        self._request_bytes = frame.header_bytes + len(frame.body)
        self._cpu = None if client.request is None else CpuMeter(quotas.clock)
        self._is_time_counted = frame.api_key in EXEMPT_FROM_TIME
        self._until_s = quotas.clock.monotonic_s()
        """Until when the client is throttled."""
        self._quota = ""
        """The quota that asks for that, and its meter."""
        self._meter: Meter[CountedRate] | Meter[TokenBucket] | None = None
        produce = client.produce
        if produce is not None and produce.is_shared and frame.api_key == ApiKey.PRODUCE:
            # Now, so that the entry that commits its records has it. Here it counts when it is answered.
            quotas.shared_use.sent(produce.applied, self._request_bytes)

    async def measure(self, handling: Coroutine[object, object, T]) -> T:
        """The handler's result; its time is measured where the client has a quota of it."""
        return await (handling if self._cpu is None else self._cpu.measure(handling))

    @property
    def fetch_bytes_max(self) -> int:
        """The largest response to a fetch that is not throttled in any case."""
        meter = self._client.fetch
        return THROTTLE_MS_MAX if meter is None else max(1, int(meter.limit * self._quotas.windows.full_seconds))

    def is_fetch_throttled(self, response_bytes: int) -> bool:
        """Count a fetch; whether it is to be answered without records, and then its bytes are not counted."""
        now_s = self._quotas.clock.monotonic_s()
        self._count_time(now_s)
        meter, windows = self._client.fetch, self._quotas.windows
        if meter is not None:
            is_first = meter.counted.is_empty(now_s, windows)
            self._count("fetch", meter, response_bytes, now_s)
            if is_first and response_bytes > self.fetch_bytes_max:
                return False
        if not self._throttle_ms(now_s):
            return False
        if meter is not None:
            meter.counted.count(-response_bytes, now_s, windows)
        return True

    def take_mutations(self, partitions_count: int, *, is_strict: bool) -> bool:
        """Count partitions that are about to be created or deleted.

        With `is_strict` nothing is counted while the client owes some, and the answer is False: reject the mutation.
        """
        meter = self._client.mutations
        if meter is None:
            return True
        now_s, windows = self._quotas.clock.monotonic_s(), self._quotas.mutation_windows
        if is_strict and (owed_s := meter.counted.owed_s(meter.limit, now_s, windows)):
            self._throttle("controller_mutation", meter, owed_s, now_s)
            return False
        meter.counted.take(partitions_count, meter.limit, now_s, windows)
        if not is_strict:
            self._throttle("controller_mutation", meter, meter.counted.owed_s(meter.limit, now_s, windows), now_s)
        return True

    def end(self, *, is_answered: bool) -> int:
        """The milliseconds for which the client is throttled, now that the answer is ready; 0 where it is not."""
        now_s = self._quotas.clock.monotonic_s()
        if self._api_key == ApiKey.PRODUCE and self._client.produce is not None:
            self._count("produce", self._client.produce, self._request_bytes, now_s)
        if is_answered:
            self._count_time(now_s)
        throttle_ms = self._throttle_ms(now_s)
        if throttle_ms and self._meter is not None:
            self._quotas.throttled(self._quota, self._meter, throttle_ms / 1000)
        return throttle_ms

    def _count_time(self, now_s: float) -> None:
        if self._cpu is not None and self._client.request is not None and not self._is_time_counted:
            self._is_time_counted = True
            percents = self._cpu.seconds * PERCENT_PER_SECOND
            self._count("request", self._client.request, percents, now_s, seconds_max=self._quotas.windows.seconds)

    def _count(
        self,
        quota: str,
        meter: Meter[CountedRate],
        amount: float,
        now_s: float,
        *,
        seconds_max: float = THROTTLE_MS_MAX / 1000,
    ) -> None:
        windows = self._quotas.windows
        meter.counted.count(amount, now_s, windows)
        self._throttle(quota, meter, min(seconds_max, meter.counted.throttle_s(meter.limit, now_s, windows)), now_s)

    def _throttle(
        self, quota: str, meter: Meter[CountedRate] | Meter[TokenBucket], seconds: float, now_s: float
    ) -> None:
        if now_s + seconds > self._until_s:
            self._until_s, self._quota, self._meter = now_s + seconds, quota, meter

    def _throttle_ms(self, now_s: float) -> int:
        return min(THROTTLE_MS_MAX, max(0, round((self._until_s - now_s) * 1000)))


def usage_of(quotas: Quotas, user: str, frame: RequestFrame) -> RequestUsage | None:
    """The use of a request that is to be counted; None where its client has no quota."""
    client = quotas.of_client(user, frame.client_id)
    return None if client is None else RequestUsage(quotas, client, frame)


class Mute:
    """The time for which a connection is not served because its client is above a quota."""

    __slots__ = ("_end", "_is_over", "_timer", "_until_s", "since_s")

    def __init__(self, end: Callable[[], None]) -> None:
        """`end` is called when the time is over."""
        self._end = end
        self._timer: asyncio.TimerHandle | None = None
        self._is_over: asyncio.Future[None] | None = None
        self._until_s = 0.0
        self.since_s = 0.0
        """The injected monotonic clock's time when it began."""

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    def extend(self, seconds: float, now_s: float) -> None:
        """Mute for `seconds` from now on, or for as long as it is muted already if that is longer."""
        if self._timer is None:
            self.since_s = now_s
        elif now_s + seconds <= self._until_s:
            return
        else:
            self._timer.cancel()
        self._until_s = now_s + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._finish)

    async def wait(self) -> None:
        """Return once the time is over; at once where it is not muted."""
        while self._timer is not None:
            if self._is_over is None:
                self._is_over = asyncio.get_running_loop().create_future()
            await self._is_over

    def cancel(self) -> None:
        """The connection is gone: its task, which may wait, is ended by others."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _finish(self) -> None:
        self._timer = None
        is_over, self._is_over = self._is_over, None
        if is_over is not None and not is_over.done():
            is_over.set_result(None)
        self._end()
