"""Addresses of clients: Java's text for ACLs, and their value for limits."""

from ipaddress import ip_address

import pytest

from protocol.auth.host_addresses import address_of, host_text


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    """No address is remembered from other tests: else what they computed would not be computed here."""
    address_of.cache_clear()
    host_text.cache_clear()


@pytest.mark.parametrize(
    ("text", "java"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:c000:201", "192.0.2.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::00A0", "2001:db8:0:0:0:0:0:a0"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("?", "?"),
        ("", ""),
    ],
)
def test_a_host_is_written_as_java_writes_it(text: str, java: str) -> None:
    assert host_text(text) == java
    assert host_text(java) == java


@pytest.mark.parametrize("text", ["::1", "0:0:0:0:0:0:0:1", "0000::0001", "::1%lo"])
def test_an_address_is_compared_by_value(text: str) -> None:
    assert address_of(text) == ip_address("::1")


def test_ipv4_within_ipv6_is_ipv4() -> None:
    assert address_of("::ffff:192.0.2.1") == ip_address("192.0.2.1")


@pytest.mark.parametrize("text", ["", "?", "host.example", "1.2.3", "1.2.3.4:9092", "1.2.3.4%lo"])
def test_another_text_is_no_address(text: str) -> None:
    assert address_of(text) is None
