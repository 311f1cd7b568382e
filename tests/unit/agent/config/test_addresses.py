"""Addresses as people write them."""

import pytest

from agent.config.addresses import (
    EtcdUrl,
    FileUrl,
    HostPort,
    InvalidAddress,
    JournalUrl,
    ListenerAddress,
    MemoryUrl,
    S3Url,
    SqliteUrl,
    is_every_interface,
    is_loopback,
    read_host_port,
    read_ledger_url,
    read_listener,
    read_store_url,
    store_root,
)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("broker.example:0", "broker.example", 0),
        ("[::1]:65535", "::1", 65535),
        (":9092", "", 9092),
    ],
)
def test_host_and_port_are_read_and_written_alike(text: str, host: str, port: int) -> None:
    address = read_host_port(text)
    assert (address.host, address.port) == (host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "9092", "host", "host:", "host:x", "host:-1", "host:65536", "::1:9092", "http://h:1", "a b:1", "h:²"]
)
def test_what_is_no_address_is_quoted_in_the_error(text: str) -> None:
    with pytest.raises(InvalidAddress) as caught:
        read_host_port(text)
    assert repr(text) in str(caught.value)


def test_a_listener_without_a_name_is_kafkas_default() -> None:
    assert read_listener("127.0.0.1:9092") == ListenerAddress(name="PLAINTEXT", host="127.0.0.1", port=9092)


def test_a_listeners_name_is_in_capitals() -> None:
    assert str(read_listener("external://[::1]:1")) == "EXTERNAL://[::1]:1"


@pytest.mark.parametrize("text", ["a-b://127.0.0.1:1", "://127.0.0.1:1", "A://127.0.0.1"])
def test_a_listener_needs_a_plain_name_and_an_address(text: str) -> None:
    with pytest.raises(InvalidAddress):
        read_listener(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_loopback_is_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "broker"])
def test_everything_else_counts_as_reachable(host: str) -> None:
    assert not is_loopback(host)


def test_addresses_that_mean_every_interface_are_recognised() -> None:
    assert all(is_every_interface(host) for host in ("", "0.0.0.0", "::"))
    assert not is_every_interface("127.0.0.1")


def test_ledgers_are_read() -> None:
    assert read_ledger_url("memory:") == MemoryUrl()
    assert read_ledger_url("sqlite:///srv/ledger.sqlite") == SqliteUrl(path="/srv/ledger.sqlite")
    assert read_ledger_url("journal:///srv/journal") == JournalUrl(path="/srv/journal")
    hosts = (HostPort(host="a", port=2379), HostPort(host="b", port=2380))
    assert read_ledger_url("etcd://a:2379,b:2380/prod") == EtcdUrl(endpoints=hosts, cluster="prod")


def test_stores_are_read() -> None:
    assert read_store_url("memory:") == MemoryUrl()
    assert read_store_url("file:///srv/bucket") == FileUrl(path="/srv/bucket")
    assert read_store_url("s3://lake/kafka/prod/") == S3Url(bucket="lake", prefix="kafka/prod")
    assert read_store_url("S3://lake") == S3Url(bucket="lake", prefix="")


@pytest.mark.parametrize("text", ["", "sqlite://x", "sqlite:///", "etcd://a:1", "etcd:///c", "etcd://a/c", "redis://x"])
def test_what_is_no_ledger_is_refused(text: str) -> None:
    with pytest.raises(InvalidAddress):
        read_ledger_url(text)


@pytest.mark.parametrize("refused", ["#", "?", "\n", "\x00", "\x7f"])
def test_what_engines_take_for_no_part_of_a_path_is_refused_by_name(refused: str) -> None:
    with pytest.raises(InvalidAddress, match=r"the path must not have .*: rename the folder") as found:
        read_store_url(f"file:///srv/a{refused}b/store")
    assert repr(refused) in str(found.value)
    with pytest.raises(InvalidAddress, match="must not have"):
        read_ledger_url(f"sqlite:///srv/a{refused}b/ledger.sqlite")


@pytest.mark.parametrize("path", ["/srv/a b", "/srv/100%", "/srv/a%20b", "/srv/ü ‰", "/srv/[a]&b;c+d='e'"])
def test_every_other_character_of_a_path_is_taken_as_it_stands(path: str) -> None:
    assert read_store_url(f"file://{path}") == FileUrl(path=path)
    assert store_root(FileUrl(path=path)) == f"file://{path}"


@pytest.mark.parametrize("text", ["", "file://x", "s3:lake", "s3:///x", "gs://lake", "/srv/bucket"])
def test_what_is_no_store_is_refused(text: str) -> None:
    with pytest.raises(InvalidAddress):
        read_store_url(text)
