"""How many connections there may be, from one address, on one listener and altogether, and how fast they may come.

Addresses are compared by value: an address of a config or a quota may be written in any way.
Source: org.apache.kafka.network.ConnectionQuotas (Kafka 4.3), KIP-402, KIP-612. Differs from Kafka: beyond a rate or
`max.connections` a connection is held, unread, and closed, in place of waiting in the kernel's queue of the listener.
Kafka's windows are buckets of tokens here, for CONNECTION_RATE_BURST_SECONDS of the rate.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from coordinator.configs.broker_configs import broker_value
from coordinator.security.quota_rules import CONNECTION_CREATION_RATE, IP, QuotaEntity
from protocol.auth.host_addresses import Address, address_of
from protocol.limits import (
    CONNECTION_HOLD_SECONDS_MAX,
    CONNECTION_RATE_BURST_SECONDS,
    CONNECTION_RATES_MAX,
    CONNECTION_RECOUNT_MIN,
    CONNECTION_RECOUNT_SECONDS_MIN,
)

UNLIMITED: Final = (1 << 31) - 1
TOTAL: Final = "max.connections"
PER_IP: Final = "max.connections.per.ip"
OVERRIDES: Final = "max.connections.per.ip.overrides"
RATE: Final = "max.connection.creation.rate"


class OpenSocket(Hashable, Protocol):
    """An accepted socket."""

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRejection:
    """A connection that has to be closed, after it was held unread for so long."""

    reason: str
    hold_s: float = 0.0


@dataclass(slots=True)
class _Bucket:
    """The connections that may come now, and the time at which that was known."""

    tokens: float
    known_s: float


@dataclass(slots=True, kw_only=True)
class _ConnectionBounds:
    """The configs as they are now, read once for each change."""

    total: int = UNLIMITED
    per_ip: int = UNLIMITED
    overrides: Mapping[Address, int] = field(default_factory=dict[Address, int])
    rate: int = UNLIMITED
    totals: Mapping[str, int] = field(default_factory=dict[str, int])
    """By listener, in lower case; so are `rates`."""
    rates: Mapping[str, int] = field(default_factory=dict[str, int])


class ConnectionLimits:
    """The connections of one agent. Not thread-safe: all methods run on the event loop."""

    def __init__(
        self,
        *,
        configs: Callable[[], Mapping[str, str]],
        ip_rate: Callable[[Address | None], float | None],
        monotonic_s: Callable[[], float],
    ) -> None:
        """Begin without connections.

        Args:
            configs: the broker configs that are set: the same object until one of them changes.
            ip_rate: the quota `connection_creation_rate` of an address; None where it has none. The address is None
                where the socket has none.
            monotonic_s: a clock.
        """
        self._configs = configs
        self._ip_rate = ip_rate
        self._monotonic_s = monotonic_s
        self._read: Mapping[str, str] | None = None
        self._limits = _ConnectionBounds()
        self._sockets: dict[OpenSocket, tuple[str, str]] = {}
        """The listener and address of each socket. Closed ones are dropped when the sockets are counted again."""
        self._by_listener = Counter[str]()
        self._by_address = Counter[str]()
        self._recounted_s: float | None = None
        self._recount_at = CONNECTION_RECOUNT_MIN
        self._buckets: dict[str, _Bucket] = {}

    def admit(self, socket: OpenSocket, listener: str, address: str) -> LimitRejection | None:
        """Count a new connection in; the rejection of one that is beyond a limit, which is not counted.

        `address` is as `protocol.auth.host_addresses.host_text` writes it, so that one address has one text.
        """
        limits, listener = self._current(), listener.lower()
        if len(self._sockets) >= self._recount_at:
            self.recount()
            self._recount_at = 2 * len(self._sockets) + CONNECTION_RECOUNT_MIN
        rejection = self._beyond(limits, listener, address)
        if rejection is not None:
            now_s = self._monotonic_s()
            if self._recounted_s is None or now_s - self._recounted_s >= CONNECTION_RECOUNT_SECONDS_MIN:
                self.recount()
                rejection = self._beyond(limits, listener, address)
        rejection = rejection or self._too_fast(limits, listener, address)
        if rejection is None:
            self._sockets[socket] = listener, address
            self._by_listener[listener] += 1
            self._by_address[address] += 1
        return rejection

    def recount(self) -> None:
        """Drop the sockets that are closed."""
        self._recounted_s = self._monotonic_s()
        for socket in [socket for socket in self._sockets if socket.is_closing()]:
            listener, address = self._sockets.pop(socket)
            for counter, key in ((self._by_listener, listener), (self._by_address, address)):
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]

    def _current(self) -> _ConnectionBounds:
        configs = self._configs()
        if configs is not self._read:
            self._read, self._limits = configs, _read_limits(configs)
        return self._limits

    def _beyond(self, limits: _ConnectionBounds, listener: str, address: str) -> LimitRejection | None:
        value = address_of(address)
        per_ip = limits.per_ip if value is None else limits.overrides.get(value, limits.per_ip)
        if self._by_address[address] >= per_ip:
            return LimitRejection(reason=f"{address} has {per_ip} connections, and {PER_IP} allows no more")
        if len(self._sockets) >= limits.total:
            return LimitRejection(reason=f"there are {limits.total} connections, and {TOTAL} allows no more")
        on_listener = limits.totals.get(listener, UNLIMITED)
        if self._by_listener[listener] >= on_listener:
            return LimitRejection(reason=f"the listener has {on_listener} connections, and its {TOTAL} allows no more")
        return None

    def _too_fast(self, limits: _ConnectionBounds, listener: str, address: str) -> LimitRejection | None:
        rates: dict[str, float] = {"": limits.rate, "listener " + listener: limits.rates.get(listener, UNLIMITED)}
        ip_rate = self._ip_rate(address_of(address))
        if ip_rate is not None:
            rates["ip " + address] = ip_rate
        buckets = {key: self._bucket(key, rate) for key, rate in rates.items() if rate < UNLIMITED}
        for key, bucket in buckets.items():
            if bucket.tokens < 1:
                wait_s = (1 - bucket.tokens) / rates[key] if rates[key] else CONNECTION_HOLD_SECONDS_MAX
                hold_s = min(CONNECTION_HOLD_SECONDS_MAX, wait_s)
                return LimitRejection(reason=f"connections come faster than {rates[key]:g} a second", hold_s=hold_s)
        for bucket in buckets.values():
            bucket.tokens -= 1
        return None

    def _bucket(self, key: str, rate: float) -> _Bucket:
        now_s, tokens_max = self._monotonic_s(), rate * CONNECTION_RATE_BURST_SECONDS
        bucket = self._buckets.pop(key, None) or _Bucket(tokens_max, now_s)
        bucket.tokens = min(tokens_max, bucket.tokens + rate * (now_s - bucket.known_s))
        bucket.known_s = now_s
        if len(self._buckets) >= CONNECTION_RATES_MAX:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = bucket
        return bucket


class IpRates:
    """The quotas of addresses (KIP-612), arranged once for each change of the state's quotas.

    Where two texts of one address have quotas the lower one holds. In Kafka the one that was set last holds, which
    differs between its brokers after a restart.
    """

    def __init__(self, quotas: Callable[[], Mapping[QuotaEntity, Mapping[str, float]]]) -> None:
        """`quotas`: the state's quotas: the same object until one of them changes."""
        self._quotas = quotas
        self._read: Mapping[QuotaEntity, Mapping[str, float]] | None = None
        self._rates: dict[Address | None, float] = {}

    def of(self, address: Address | None) -> float | None:
        """The quota of an address, else that of every address; None where there is neither."""
        quotas = self._quotas()
        if quotas is not self._read:
            self._read, self._rates = quotas, _read_rates(quotas)
        return self._rates.get(address, self._rates.get(None))


def _read_rates(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> dict[Address | None, float]:
    """The rates by address; that of every address by None."""
    rates: dict[Address | None, float] = {}
    for entity, values in quotas.items():
        entity_type, text = entity[0]
        rate = values.get(CONNECTION_CREATION_RATE)
        if entity_type == IP and rate is not None:
            address = None if text is None else address_of(text)
            rates[address] = min(rate, rates.get(address, rate))
    return rates


def _read_limits(configs: Mapping[str, str]) -> _ConnectionBounds:
    totals: dict[str, int] = {}
    rates: dict[str, int] = {}
    for name, value in configs.items():
        for config, by_listener in ((TOTAL, totals), (RATE, rates)):
            if name.startswith("listener.name.") and name.endswith("." + config):
                by_listener[name.removeprefix("listener.name.").removesuffix("." + config)] = int(value)
    return _ConnectionBounds(
        total=int(broker_value(configs, TOTAL)),
        per_ip=int(broker_value(configs, PER_IP)),
        overrides=read_overrides(broker_value(configs, OVERRIDES)),
        rate=int(broker_value(configs, RATE)),
        totals=totals,
        rates=rates,
    )


def read_overrides(text: str) -> Mapping[Address, int]:
    """The limits by address of `ADDRESS:COUNT,...`. Others are skipped: DescribeConfigs shows what was set."""
    overrides: dict[Address, int] = {}
    for row in text.split(","):
        written, _, count = row.strip().rpartition(":")
        address = address_of(written.strip().strip("[]"))
        if address is not None and count.isascii() and count.isdigit():
            overrides[address] = int(count)
    return overrides
