"""Quotas of this agent's clients: what each used, and for how long it is throttled.

In: users, client ids and what their requests used. Out: throttle times. The state says which quotas there are
(`coordinator.security.quota_rules`), `quota_windows` counts. Each agent counts by itself, as each broker does in Kafka.
With `penstock.quota.scope=cluster` quotas of bytes hold for all agents together: producers are counted through all of
them (`shared_use`), the quota of consumers is divided by the agents that have a session.
Who is held to no quota is counted nowhere. Quotas of addresses, which limit connections, are no part of it.
Source: kafka.server.ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager (Kafka 4.3).
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.security.quotas.quota_windows import CountedRate, QuotaWindows, TokenBucket
from agent.security.quotas.shared_use import SharedUse
from coordinator.configs.broker_configs import QUOTA_SCOPE, QUOTA_SCOPE_CLUSTER, broker_value
from coordinator.security.quota_rules import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    AppliedQuota,
    QuotaEntity,
    applied_quota,
)
from coordinator.state.state import ClusterState
from protocol.limits import QUOTA_CLIENTS_COUNTED_MAX, QUOTA_ENTITY_LABELS_MAX

PERCENT_PER_SECOND: Final = 100.0
"""request_percentage is of one processor: 100 is all the time of the event loop."""

OTHERS: Final = "other"
"""The label of entities that have none of their own in a metric."""

S = TypeVar("S", CountedRate, TokenBucket)
Shared = WeakValueDictionary[tuple[str, str, str], S]
"""Counters by quota and by the user and client id that share it, as long as a client of theirs is known."""


@dataclass(frozen=True, slots=True)
class Meter(Generic[S]):
    """One quota of a client: its limit a second, and what is counted; others with the same quota share that."""

    limit: float
    counted: S
    applied: AppliedQuota
    is_shared: bool = False
    """Whether what other agents count is counted in it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotas:
    """The quotas that hold for a user and a client id, None where there is none of a kind."""

    source: Mapping[QuotaEntity, Mapping[str, float]]
    """The state's quotas, from which these follow."""
    agents_count: int
    """The agents among which quotas of bytes are shared; 0 where each agent has them for itself."""
    produce: Meter[CountedRate] | None
    fetch: Meter[CountedRate] | None
    request: Meter[CountedRate] | None
    mutations: Meter[TokenBucket] | None

    @property
    def is_any(self) -> bool:
        return any((self.produce, self.fetch, self.request, self.mutations))


class Quotas:
    """The quotas of all clients of an agent. Not thread-safe: all methods run on the event loop."""

    def __init__(
        self,
        *,
        state: Callable[[], ClusterState],
        broker_configs: Mapping[str, str],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._state = state
        self.clock = clock
        self.windows = QuotaWindows(
            int(broker_value(broker_configs, "quota.window.num")),
            int(broker_value(broker_configs, "quota.window.size.seconds")),
        )
        self.mutation_windows = QuotaWindows(
            int(broker_value(broker_configs, "controller.quota.window.num")),
            int(broker_value(broker_configs, "controller.quota.window.size.seconds")),
        )
        self._broker_configs = broker_configs
        self.shared_use = SharedUse(clock=clock, windows=self.windows)
        self._throttled_seconds = metrics.request_throttle_duration_seconds
        self._throttled = metrics.quota_throttled
        self._labels: set[str] = set()
        """The entities that have a label of their own in a metric."""
        self._clients: OrderedDict[tuple[str, str], ClientQuotas] = OrderedDict()
        """By user and client id, the least recently used first."""
        self._rates: Shared[CountedRate] = WeakValueDictionary()
        self._buckets: Shared[TokenBucket] = WeakValueDictionary()

    def of_client(self, user: str, client_id: str) -> ClientQuotas | None:
        """The quotas that hold for a user and a client id; None where none does."""
        state = self._state()
        source = state.client_quotas
        if not source:
            return None
        is_cluster = broker_value(self._broker_configs, QUOTA_SCOPE) == QUOTA_SCOPE_CLUSTER
        agents_count = max(1, len(state.sessions)) if is_cluster else 0
        key = (user, client_id)
        client = self._clients.get(key)
        if client is None or client.source is not source or client.agents_count != agents_count:
            # The one before lives until here, and with it what its quotas have counted.
            client = self._clients[key] = self._judged(source, agents_count, user, client_id)
            if len(self._clients) > QUOTA_CLIENTS_COUNTED_MAX:
                self._clients.popitem(last=False)
        self._clients.move_to_end(key)
        return client if client.is_any else None

    def throttled(self, quota: str, meter: Meter[CountedRate] | Meter[TokenBucket], seconds: float) -> None:
        """Count that a client is throttled by a quota for so long."""
        self._throttled_seconds.labels(quota).observe(seconds)
        label = meter.applied.entity_text
        if label not in self._labels:
            if len(self._labels) >= QUOTA_ENTITY_LABELS_MAX:
                label = OTHERS
            else:
                self._labels.add(label)
        self._throttled.labels(label).inc()

    def _judged(
        self, source: Mapping[QuotaEntity, Mapping[str, float]], agents_count: int, user: str, client_id: str
    ) -> ClientQuotas:
        def meter(name: str, kept: Shared[S], new: Callable[[], S], divisor: int = 1) -> Meter[S] | None:
            applied = applied_quota(source, name, user, client_id)
            if applied is None:
                return None
            return Meter(applied.limit / divisor, _shared(kept, name, applied, new), applied)

        produce = meter(PRODUCER_BYTE_RATE, self._rates, CountedRate)
        if produce is not None and agents_count:
            counted = self.shared_use.rate_of(produce.applied)
            produce = Meter(produce.limit, counted, produce.applied, is_shared=True)
        return ClientQuotas(
            source=source,
            agents_count=agents_count,
            produce=produce,
            fetch=meter(CONSUMER_BYTE_RATE, self._rates, CountedRate, max(1, agents_count)),
            request=meter(REQUEST_PERCENTAGE, self._rates, CountedRate),
            mutations=meter(CONTROLLER_MUTATION_RATE, self._buckets, TokenBucket),
        )


def _shared(kept: Shared[S], name: str, applied: AppliedQuota, new: Callable[[], S]) -> S:
    """The counter of those who share a quota."""
    key = (name, applied.user, applied.client_id)
    counted = kept.get(key)
    if counted is None:
        counted = kept[key] = new()
    return counted
