"""Addresses of clients: the text by which ACLs name a host, and the value by which limits compare them.

An IPv4 address within IPv6 (`::ffff:192.0.2.1`, from a socket for both) is the IPv4 address.
Source of the text: java.net.InetAddress.getHostAddress, with which org.apache.kafka.metadata.authorizer
.StandardAuthorizerData compares an ACL's host character by character: IPv6 has all eight groups, in lower case, without
leading zeros (`0:0:0:0:0:0:0:1`). Source of the value: java.net.InetAddress.equals, by which
org.apache.kafka.network.ConnectionQuotas knows addresses (Kafka 4.3).
"""

import ipaddress
from functools import lru_cache

from protocol.limits import ADDRESSES_REMEMBERED_MAX

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
GROUP_BYTES = 2


@lru_cache(ADDRESSES_REMEMBERED_MAX)
def address_of(text: str) -> Address | None:
    """The value of an address; None for a text that is none. The zone of an IPv6 address (`%eth0`) does not count."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or ipaddress.IPv6Address(address.packed)
    return address


@lru_cache(ADDRESSES_REMEMBERED_MAX)
def host_text(text: str) -> str:
    """An address as Java writes it: the host that an ACL names. A text that is no address stays as it is."""
    address = address_of(text)
    if not isinstance(address, ipaddress.IPv6Address):
        return text if address is None else str(address)
    packed = address.packed
    groups = ":".join(f"{int.from_bytes(packed[at : at + GROUP_BYTES]):x}" for at in range(0, len(packed), GROUP_BYTES))
    _, percent, zone = text.partition("%")
    return groups + percent + zone
