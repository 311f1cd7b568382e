"""Client metrics (KIP-714): the subscription of each client, and the checks of its pushes.

Rule: a client's subscription follows from the state, and the subscription id from the subscription and the client's own
id. So a client may get it from one agent and push to another. Each agent has the times of a client's last requests to
it in memory, until the client's connection closes, or until it was silent for three intervals.
Source: org.apache.kafka.server.ClientMetricsManager, org.apache.kafka.server.metrics.ClientMetricsInstance (Kafka 4.3).
"""

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.runtime.clock import Clock
from agent.runtime.ids import Ids, uuid_text
from agent.runtime.metrics import Metrics
from agent.runtime.regexes import matcher
from agent.runtime.threads import run_in_thread
from agent.telemetry.client_info import ConnectedClient
from agent.telemetry.series import ClientLabels, ClientSeries, UnreadableMetrics, read_metrics
from coordinator.configs.client_subscriptions import (
    EVERY_METRIC,
    ClientSubscription,
    read_subscription,
)
from protocol.errors import ErrorCode
from protocol.limits import (
    CLIENT_INSTANCES_MAX,
    CLIENT_SAID_CHARS_MAX,
    CLIENT_SILENT_INTERVALS_MAX,
    CLIENT_SILENT_SECONDS_MIN,
)
from protocol.records.compression import Compression
from protocol.records.crc import crc32c

ACCEPTED_COMPRESSION: Sequence[Compression] = (
    Compression.ZSTD,
    Compression.LZ4,
    Compression.GZIP,
    Compression.SNAPPY,
)
"""The compressions offered to clients, the best one first."""
KNOWN_COMPRESSION = frozenset(int(kind) for kind in Compression)
NEVER_S = float("-inf")
MAY_ASK_AGAIN = (ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type)
"""After these errors a client may request its subscription before its interval is over."""
RESERVED_IDS = (uuid.UUID(int=0), uuid.UUID(int=1))
NOTHING = read_subscription({})
"""The subscription of a client that no resource matches."""
TAKEN = "taken"


class TelemetryRejected(Exception):
    """A rejected request, with the error code for its client."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(error_code.name)
        self.error_code = error_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The client of a request. `address` is HOST:PORT."""

    client_id: str
    address: str
    connection: ConnectedClient

    def attributes(self, instance_id: uuid.UUID) -> Mapping[str, str]:
        """The attributes that subscriptions match, by the names of
        `coordinator.configs.client_metrics_configs.MATCHED`."""
        host, _, port = self.address.rpartition(":")
        return {
            "client_instance_id": uuid_text(instance_id.bytes),
            "client_id": self.client_id[:CLIENT_SAID_CHARS_MAX],
            "client_software_name": self.connection.software_name,
            "client_software_version": self.connection.software_version,
            "client_source_address": host,
            "client_source_port": port,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A push of a client. `metrics`: OTLP's MetricsData, compressed."""

    subscription_id: int
    is_terminating: bool
    compression: int
    metrics: bytes


@dataclass(slots=True, kw_only=True)
class ClientInstance:
    """A client that this agent knows. Times are monotonic."""

    instance_id: uuid.UUID
    attributes: Mapping[str, str]
    connection: ConnectedClient
    subscription_id: int
    metrics: Sequence[str]
    interval_ms: int
    version: int
    """The version of `_Subscriptions` from which this was made."""
    used_s: float
    asked_s: float = NEVER_S
    pushed_s: float = NEVER_S
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.none

    @property
    def silent_s_max(self) -> float:
        return max(CLIENT_SILENT_SECONDS_MIN, CLIENT_SILENT_INTERVALS_MAX * self.interval_ms / 1000)

    def may_ask(self, now_s: float) -> bool:
        """Whether its interval is over since its last request; if so, note a request for the subscription."""
        if now_s - max(self.asked_s, self.pushed_s) < self.interval_ms / 1000:
            return False
        self.asked_s = now_s
        return True

    def may_push(self, now_s: float) -> bool:
        """Whether it may push; if so, note a push. The first push may come at any time, as clients spread them."""
        if self.asked_s <= self.pushed_s and now_s - self.pushed_s < self.interval_ms / 1000:
            return False
        self.pushed_s = now_s
        return True


@dataclass(slots=True)
class _Subscriptions:
    """The subscriptions of the state, parsed once for each change."""

    seen: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    read: Sequence[ClientSubscription] = ()
    version: int = 0

    def follow(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        if configs != self.seen:
            self.seen = {name: dict(values) for name, values in configs.items()}
            self.read = [read_subscription(values) for values in self.seen.values()]
            self.version += 1


class ClientTelemetry:
    """Handles telemetry requests; `series` has the pushed metrics."""

    def __init__(
        self,
        *,
        configs: Callable[[], Mapping[str, Mapping[str, str]]],
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
        bytes_max: int,
    ) -> None:
        self._configs = configs
        self._clock = clock
        self._ids = ids
        self._metrics = metrics
        self._subscriptions = _Subscriptions()
        self._instances: OrderedDict[uuid.UUID, ClientInstance] = OrderedDict()
        """The instances, least recently used first."""
        self._reading = asyncio.Lock()
        self.series = ClientSeries(clock=clock, count_dropped=metrics.client_telemetry_series_dropped.inc)
        self.bytes_max = bytes_max
        """The largest push, before decompression: Kafka's telemetry.max.bytes."""

    @property
    def instances_count(self) -> int:
        """The number of known clients."""
        return len(self._instances)

    async def subscribe(self, instance_id: uuid.UUID | None, asker: Asker) -> ClientInstance:
        """The client with its subscription; a client without an id gets one. Raises `TelemetryRejected`."""
        instance = await self._instance(self._new_id() if instance_id is None else instance_id, asker)
        if not instance.may_ask(self._clock.monotonic_s()) and instance.last_error not in MAY_ASK_AGAIN:
            raise TelemetryRejected(ErrorCode.throttling_quota_exceeded)
        instance.last_error = ErrorCode.none
        return instance

    async def push(self, instance_id: uuid.UUID | None, asker: Asker, push: Push) -> None:
        """Add a push to `series`. Raises `TelemetryRejected`, and then changes no series."""
        if instance_id is None or instance_id in RESERVED_IDS:
            raise self._rejected(ErrorCode.invalid_request)
        instance = await self._instance(instance_id, asker)
        try:
            instance.last_error = self._judge(instance, push)
        finally:
            instance.is_terminating = push.is_terminating
        if instance.last_error:
            raise self._rejected(instance.last_error)
        if push.metrics:
            await self._take(instance, push)
        self._metrics.client_telemetry_pushes.labels(TAKEN).inc()

    def disconnected(self, connection: ConnectedClient) -> None:
        """Forget the client of a closed connection: it starts over with its next request."""
        instance = None if connection.instance_id is None else self._instances.get(connection.instance_id)
        if instance is not None and instance.connection is connection:
            del self._instances[instance.instance_id]

    async def _take(self, instance: ClientInstance, push: Push) -> None:
        async with self._reading:  # one push at a time, because decompressed pushes take much memory
            try:
                points = await run_in_thread(read_metrics, Compression(push.compression), push.metrics)
            except UnreadableMetrics as error:
                instance.last_error = ErrorCode.invalid_record
                raise self._rejected(ErrorCode.invalid_record) from error
        labels = ClientLabels(
            instance_id=instance.attributes["client_instance_id"],
            client_id=instance.attributes["client_id"],
            software_name=instance.attributes["client_software_name"],
        )
        self.series.add(labels, points, ttl_s=instance.silent_s_max)

    def _judge(self, instance: ClientInstance, push: Push) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.invalid_request
        if not instance.may_push(self._clock.monotonic_s()) and not push.is_terminating:
            return ErrorCode.throttling_quota_exceeded
        if push.subscription_id != instance.subscription_id:
            return ErrorCode.unknown_subscription_id
        if push.compression not in KNOWN_COMPRESSION:
            return ErrorCode.unsupported_compression_type
        return ErrorCode.telemetry_too_large if len(push.metrics) > self.bytes_max else ErrorCode.none

    def _rejected(self, error_code: ErrorCode) -> TelemetryRejected:
        self._metrics.client_telemetry_pushes.labels(error_code.name).inc()
        return TelemetryRejected(error_code)

    async def _instance(self, instance_id: uuid.UUID, asker: Asker) -> ClientInstance:
        """The client with its current subscription, as the most recently used one."""
        self._forget_silent(self._clock.monotonic_s())
        self._subscriptions.follow(self._configs())
        read, version = self._subscriptions.read, self._subscriptions.version
        instance = self._instances.get(instance_id)
        if instance is None or instance.version != version:
            attributes = asker.attributes(instance_id) if instance is None else instance.attributes
            has_patterns = any(subscription.match for subscription in read)
            matching = await run_in_thread(_matching, read, attributes) if has_patterns else read
            instance = self._instances.get(instance_id)  # a concurrent request may have made it
            if instance is None or instance.version != version:
                instance = self._made(instance_id, attributes, asker.connection, matching, version)
                self._instances[instance_id] = instance
        instance.used_s, instance.connection = self._clock.monotonic_s(), asker.connection
        asker.connection.instance_id = instance_id
        self._instances.move_to_end(instance_id)
        if len(self._instances) > CLIENT_INSTANCES_MAX:
            self._instances.popitem(last=False)
        return instance

    def _forget_silent(self, now_s: float) -> None:
        while self._instances:
            oldest = next(iter(self._instances.values()))
            if now_s - oldest.used_s < oldest.silent_s_max:
                return
            self._instances.popitem(last=False)

    def _made(
        self,
        instance_id: uuid.UUID,
        attributes: Mapping[str, str],
        connection: ConnectedClient,
        matching: Sequence[ClientSubscription],
        version: int,
    ) -> ClientInstance:
        metrics = sorted({metric for subscription in matching for metric in subscription.metrics})
        if EVERY_METRIC in metrics:
            metrics = [EVERY_METRIC]
        interval_ms = min((NOTHING.interval_ms, *(subscription.interval_ms for subscription in matching)))
        return ClientInstance(
            instance_id=instance_id,
            attributes=attributes,
            connection=connection,
            subscription_id=subscription_id(metrics, interval_ms, instance_id),
            metrics=metrics,
            interval_ms=interval_ms,
            version=version,
            used_s=self._clock.monotonic_s(),
        )

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._ids.new_uuid())


def _matching(
    subscriptions: Sequence[ClientSubscription], attributes: Mapping[str, str]
) -> Sequence[ClientSubscription]:
    """The subscriptions that match the client with these attributes."""
    return [each for each in subscriptions if all(_is_match(attributes[name], re) for name, re in each.match.items())]


def _is_match(text: str, expression: str) -> bool:
    return bool(matcher([text])(expression))


def subscription_id(metrics: Sequence[str], interval_ms: int, instance_id: uuid.UUID) -> int:
    """The id of a set of metrics and an interval for a client: the same at every agent, a signed 32-bit number."""
    checksum = crc32c(f"{metrics}{interval_ms}".encode())
    for first in range(0, 16, 4):
        checksum ^= int.from_bytes(instance_id.bytes[first : first + 4], "big")
    return checksum - (1 << 32) if checksum >> 31 else checksum
