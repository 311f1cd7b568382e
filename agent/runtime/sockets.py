"""The sockets of an agent's ports, and the options of others."""

import socket

EVERY_ADDRESS = "::"
"""Every address of this machine, of both families: Java and Go take it so, too."""


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that is bound to the address, and does not listen yet. Raises `OSError`.

    On `EVERY_ADDRESS` it is for clients of both families. Where the machine has no IPv6, that address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != EVERY_ADDRESS))
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        # As socket.create_server words it: `agent.cli.reasons` finds the option by the address.
        text = f"{error.strerror} (while attempting to bind on address {(host, port)!r})"
        raise OSError(error.errno, text) from error
    return bound


def limit_unacknowledged(connection: socket.socket, seconds_max: float) -> None:
    """Have the system close the connection once bytes that were sent are not acknowledged for so long.

    Without the limit it sends them again for a quarter of an hour, and they may arrive that late. Only Linux has such a
    limit for each connection; elsewhere nothing changes. Source: tcp(7), TCP_USER_TIMEOUT.
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        connection.setsockopt(socket.IPPROTO_TCP, option, int(seconds_max * 1000))
