"""Addresses in options: HOST:PORT, NAME://HOST:PORT, and the URLs of ledger and store. Pure."""

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import TypeVar

PORT_MAX = 65_535
LISTENER_NAME_DEFAULT = "PLAINTEXT"
NAME_FIELD = "{name}"
"""In the host of an advertised address: the agent's name."""
_DASHED_FIELD = re.compile(r"\{dashed:([^{}]*)\}")
_LISTENER_NAME = re.compile(r"[A-Z0-9_]+")
_NOT_IN_A_PATH = re.compile(r"[#?\x00-\x1f\x7f]")
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class InvalidAddress(ValueError):
    """The text is no address. The message quotes it and shows the right form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    """A host and a port. The system chooses a free port for 0."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAddress:
    """The address of an HTTP port, as others reach it."""

    is_https: bool
    address: HostPort

    def __str__(self) -> str:
        return f"{'https' if self.is_https else 'http'}://{self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAddress:
    """An address under a listener's name. `host` "" means every interface, as "0.0.0.0" and "::" do."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{HostPort(host=self.host, port=self.port)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUrl:
    """A ledger or store in memory, which ends with the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteUrl:
    """An embedded ledger in SQLite, for a store that is elsewhere."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalUrl:
    """An embedded ledger in a journal, which has the intake of the embedded store beside it, too."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdUrl:
    """A ledger in etcd."""

    endpoints: tuple[HostPort, ...]
    cluster: str
    is_tls: bool = False
    """Whether the scheme is `etcds`; certificates turn TLS on, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUrl:
    """An embedded store."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Url:
    """A store in S3. `prefix` has no slash at either end; "" is the bucket's root."""

    bucket: str
    prefix: str


Advertised = TypeVar("Advertised", HostPort, ListenerAddress)
LedgerUrl = MemoryUrl | SqliteUrl | JournalUrl | EtcdUrl
StoreUrl = MemoryUrl | FileUrl | S3Url


def read_host_port(text: str) -> HostPort:
    """Reads `127.0.0.1:9092`, `broker.example:9092`, `[::1]:9092` or `:9092`. Raises `InvalidAddress`."""
    host, colon, port_text = text.rpartition(":")
    if not colon or not port_text.isascii() or not port_text.isdigit() or int(port_text) > PORT_MAX:
        raise InvalidAddress(f"{text!r} is not HOST:PORT with a port from 0 to {PORT_MAX}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidAddress(f"{text!r}: write an IPv6 address in brackets, as in [::1]:9092")
    if any(char.isspace() or char in "/@?#" for char in host):
        raise InvalidAddress(f"{text!r} is not HOST:PORT: {host!r} is no host name")
    return HostPort(host=host, port=int(port_text))


def read_listener(text: str) -> ListenerAddress:
    """Reads `[NAME://]HOST:PORT`; the default name is PLAINTEXT. Raises `InvalidAddress`.

    `{dashed:ADDRESS}` in the host becomes the address as a label of DNS: a pod of Kubernetes learns its address alone.
    """
    name, separator, address = text.rpartition("://")
    address = _DASHED_FIELD.sub(lambda field: dashed(field[1]), address)
    name = name.upper() if separator else LISTENER_NAME_DEFAULT
    if not _LISTENER_NAME.fullmatch(name):
        raise InvalidAddress(f"{text!r} is not [NAME://]HOST:PORT: a name is letters, digits and _")
    host_port = read_host_port(address)
    return ListenerAddress(name=name, host=host_port.host, port=host_port.port)


def read_http_address(text: str) -> tuple[bool, HostPort]:
    """Reads `[http://|https://]HOST:PORT`; returns whether it is https, and the address. Raises `InvalidAddress`."""
    scheme, separator, address = text.rpartition("://")
    if separator and scheme.lower() not in ("http", "https"):
        raise InvalidAddress(f"{text!r} is not [https://]HOST:PORT")
    address = _DASHED_FIELD.sub(lambda field: dashed(field[1]), address)
    return scheme.lower() == "https", read_host_port(address.removesuffix("/") if separator else address)


def with_agent_name(advertised: Advertised, agent: str) -> Advertised:
    """The address with the agent's name for NAME_FIELD in its host: a router by SNI has one address for all agents."""
    return replace(advertised, host=advertised.host.replace(NAME_FIELD, agent))


def dashed(address: str) -> str:
    """The label of an IP address in DNS, such as 10-77-1-2, as Kubernetes names endpoints of headless Services.

    Raises `InvalidAddress`. Source: CoreDNS, plugin kubernetes, `endpointHostname`.
    """
    try:
        ipaddress.ip_address(address)
    except ValueError as error:
        raise InvalidAddress(f"{{dashed:{address}}}: {address!r} is no IP address") from error
    label = address.replace(".", "-").replace(":", "-")
    return label + "0" if label.endswith("-") else label


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. A name other than localhost counts as reachable."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_every_interface(host: str) -> bool:
    """Whether the address stands for every interface: a listener may have it, and no client can connect to it."""
    return host in ("", "0.0.0.0", "::")  # noqa: S104 - recognised, not bound


def read_ledger_url(text: str) -> LedgerUrl:
    """Reads `etcd://HOST:PORT[,HOST:PORT...]/CLUSTER` (TLS: `etcds://`), `journal:///PATH`, `sqlite:///PATH` or
    `memory:`. Raises `InvalidAddress`.
    """
    scheme, rest = _scheme(text)
    match scheme:
        case "memory":
            return MemoryUrl()
        case "sqlite":
            return SqliteUrl(path=_path(text, rest))
        case "journal":
            return JournalUrl(path=_path(text, rest))
        case "etcd" | "etcds":
            hosts, _, cluster = rest.removeprefix("//").partition("/")
            if not hosts or not _CLUSTER_NAME.fullmatch(cluster):
                raise InvalidAddress(f"{text!r} is not {scheme}://HOST:PORT[,HOST:PORT...]/CLUSTER")
            endpoints = tuple(read_host_port(host) for host in hosts.split(","))
            return EtcdUrl(endpoints=endpoints, cluster=cluster, is_tls=scheme == "etcds")
        case _:
            raise InvalidAddress(
                f"{text!r} is no ledger: write etcd://HOST:PORT/CLUSTER, journal:///PATH, sqlite:///PATH or memory:",
            )


def read_store_url(text: str) -> StoreUrl:
    """Reads `s3://BUCKET/PREFIX`, `file:///PATH` or `memory:`. Raises `InvalidAddress`."""
    scheme, rest = _scheme(text)
    match scheme:
        case "memory":
            return MemoryUrl()
        case "file":
            return FileUrl(path=_path(text, rest))
        case "s3":
            bucket, _, prefix = rest.removeprefix("//").partition("/")
            if not rest.startswith("//") or not bucket:
                raise InvalidAddress(f"{text!r} is not s3://BUCKET/PREFIX")
            return S3Url(bucket=bucket, prefix=prefix.strip("/"))
        case _:
            raise InvalidAddress(f"{text!r} is no store: write s3://BUCKET/PREFIX, file:///PATH or memory:")


def store_root(url: StoreUrl) -> str:
    """The URI of the bucket's root without a slash at its end. Tables name their files by it, a slash and the key."""
    match url:
        case FileUrl(path=path):
            return f"file://{path.rstrip('/')}"
        case S3Url(bucket=bucket, prefix=prefix):
            return f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
        case MemoryUrl():
            return "memory:/"


def _scheme(text: str) -> tuple[str, str]:
    scheme, _, rest = text.partition(":")
    return scheme.lower(), rest


def _path(text: str, rest: str) -> str:
    """The absolute path of `scheme:///PATH`: what follows the two slashes."""
    if not rest.startswith("///") or len(rest) == len("///"):
        raise InvalidAddress(f"{text!r}: write three slashes and an absolute path after the scheme: file:///srv/x")
    path = rest.removeprefix("//")
    # Tables name their files by this URL, and engines end a path at # and ?. All engines take other characters, % and
    # spaces included, as they are.
    invalid = _NOT_IN_A_PATH.search(path)
    if invalid is not None:
        raise InvalidAddress(
            f"{text!r}: the path must not have {invalid[0]!r}: rename the folder, or choose another one"
        )
    return path
