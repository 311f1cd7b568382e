"""The limits of connections: by address, by listener, altogether, and by their rate."""

from collections.abc import Callable, Mapping

import pytest

from agent.security.connections.connection_limits import ConnectionLimits, IpRates, read_overrides
from coordinator.security.quota_rules import QuotaEntity
from protocol.auth.host_addresses import Address, address_of


class FakeSocket:
    def __init__(self) -> None:
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed


class Limited:
    """Limits whose configs, quotas and clock a test sets."""

    def __init__(self, configs: Mapping[str, str]) -> None:
        self.configs = configs
        self.ip_rates: dict[Address | None, float] = {}
        self.now_s = 0.0
        self.limits = ConnectionLimits(
            configs=lambda: self.configs, ip_rate=self.ip_rates.get, monotonic_s=lambda: self.now_s
        )

    def rejection(self, address: str = "a", listener: str = "OUT") -> str:
        """The reason why a new connection is rejected, "" where it is admitted."""
        rejection = self.limits.admit(FakeSocket(), listener, address)
        return "" if rejection is None else rejection.reason

    def admitted(self, count: int, address: str = "a", listener: str = "OUT") -> int:
        return sum(self.rejection(address, listener) == "" for _ in range(count))


def test_without_limits_all_are_admitted() -> None:
    assert Limited({}).admitted(3_000) == 3_000


def test_an_address_has_its_limit_and_may_have_its_own() -> None:
    limited = Limited({"max.connections.per.ip": "2", "max.connections.per.ip.overrides": "10.0.0.1:3, [::1]:1"})
    assert limited.admitted(5, "a") == 2
    assert limited.admitted(5, "10.0.0.1") == 3
    assert limited.admitted(5, "0:0:0:0:0:0:0:1") == 1
    assert "a has 2 connections, and max.connections.per.ip" in limited.rejection("a")


def test_the_agent_and_a_listener_have_limits() -> None:
    limited = Limited({"max.connections": "5", "listener.name.out.max.connections": "2"})
    assert limited.admitted(9, listener="OUT") == 2
    assert "its max.connections" in limited.rejection(listener="OUT")
    assert limited.admitted(9, listener="IN") == 3
    assert "there are 5 connections" in limited.rejection(listener="IN")


def test_a_closed_connection_makes_room() -> None:
    limited = Limited({"max.connections.per.ip": "1"})
    first = FakeSocket()
    assert limited.limits.admit(first, "OUT", "a") is None
    assert limited.rejection() != ""
    first.is_closed = True
    limited.now_s += 0.01
    assert limited.rejection() != ""  # counted again a moment ago
    limited.now_s += 0.05
    assert limited.rejection() == ""


def test_closed_connections_are_forgotten_without_a_limit() -> None:
    limited, sockets = Limited({}), [FakeSocket() for _ in range(2_000)]
    for socket in sockets:
        socket.is_closed = True
        limited.limits.admit(socket, "OUT", "a")
    limited.configs = {"max.connections": "1001"}
    assert limited.rejection() == ""


def test_a_changed_config_holds_from_then_on() -> None:
    limited = Limited({"max.connections": "1"})
    assert limited.admitted(2) == 1
    limited.configs = {"max.connections": "2"}
    assert limited.admitted(2) == 1


@pytest.mark.parametrize("config", ["max.connection.creation.rate", "listener.name.out.max.connection.creation.rate"])
def test_beyond_a_rate_connections_are_held_and_closed(config: str) -> None:
    limited = Limited({config: "2"})
    assert limited.admitted(30) == 20
    rejection = limited.limits.admit(FakeSocket(), "OUT", "a")
    assert rejection is not None
    assert rejection.hold_s == pytest.approx(0.5)
    assert rejection.reason == "connections come faster than 2 a second"
    limited.now_s += 3
    assert limited.admitted(30) == 6


def test_an_address_has_a_rate_of_its_own() -> None:
    limited = Limited({})
    limited.ip_rates[address_of("10.0.0.1")] = 1
    assert limited.admitted(30, "10.0.0.1") == 10
    assert limited.admitted(30, "10.0.0.2") == 30


def test_a_rate_of_nothing_admits_nothing() -> None:
    limited = Limited({"max.connection.creation.rate": "0"})
    rejection = limited.limits.admit(FakeSocket(), "OUT", "a")
    assert rejection is not None
    assert rejection.hold_s == 1.0


def test_the_rates_of_many_addresses_are_forgotten() -> None:
    limited = Limited({})
    ask: Callable[[Address | None], float] = lambda address: 1.0  # noqa: E731
    limited.limits = ConnectionLimits(configs=dict[str, str], ip_rate=ask, monotonic_s=lambda: 0.0)
    assert limited.admitted(30, "first") == 10
    assert all(limited.admitted(1, str(number)) for number in range(10_000))
    assert limited.admitted(30, "first") == 10


def rate_of(quotas: Mapping[QuotaEntity, Mapping[str, float]], address: str) -> float | None:
    return IpRates(lambda: quotas).of(address_of(address))


def test_the_quota_of_an_address_comes_before_that_of_all() -> None:
    quotas: dict[QuotaEntity, dict[str, float]] = {
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0},
        (("ip", None),): {"connection_creation_rate": 5.0},
    }
    assert [rate_of(quotas, address) for address in ("10.0.0.1", "10.0.0.2", "?")] == [3.0, 5.0, 5.0]
    assert rate_of({(("user", "a"),): {"producer_byte_rate": 1.0}}, "10.0.0.1") is None


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "::ffff:a00:1"),
        ("2001:DB8:0:0::1", "2001:db8:0:0:0:0:0:1"),
        ("fe80::1", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_addresses_are_compared_by_value(written: str, address: str) -> None:
    assert rate_of({(("ip", written),): {"connection_creation_rate": 3.0}}, address) == 3.0
    limited = Limited({"max.connections.per.ip.overrides": f"[{written}]:2"})
    assert limited.admitted(5, address) == 2


def test_of_two_texts_of_an_address_the_lower_quota_holds() -> None:
    texts = ("::1", "0::1")
    for rates in ((3.0, 5.0), (5.0, 3.0)):
        quotas: dict[QuotaEntity, dict[str, float]] = {
            (("ip", text),): {"connection_creation_rate": rate} for text, rate in zip(texts, rates, strict=True)
        }
        assert rate_of(quotas, "::1") == 3.0


def test_changed_quotas_are_read_again() -> None:
    quotas: dict[QuotaEntity, dict[str, float]] = {(("ip", "::1"),): {"connection_creation_rate": 3.0}}
    rates = IpRates(lambda: quotas)
    assert rates.of(address_of("::1")) == 3.0
    quotas = {}
    assert rates.of(address_of("::1")) is None


def test_an_override_without_an_address_or_a_number_is_skipped() -> None:
    assert read_overrides("10.0.0.1:1,b:2,10.0.0.2,10.0.0.3:x,:4") == {address_of("10.0.0.1"): 1}
