"""Who one connection speaks for: its principal, its groups, and the SASL mechanism that proved them.

Source, in Kafka 4.3: org.apache.kafka.common.network.Authenticator and ChannelBuilders.createPrincipalBuilder.
"""

from collections.abc import Sequence

from protocol.auth.principals import ANONYMOUS, Principal


class ConnectionAuthenticator:
    """The identity of one connection. On a listener without SASL it is known from the start.

    `groups` are principals of the type `Group`; `mechanism` is the SASL mechanism's name, "" where SASL was not used.
    """

    __slots__ = ("groups", "is_done", "mechanism", "principal")

    def __init__(self, principal: Principal = ANONYMOUS, *, is_done: bool = True) -> None:
        self.principal = principal
        """ANONYMOUS while the client has not authenticated."""
        self.groups: Sequence[Principal] = ()
        self.mechanism = ""
        self.is_done = is_done
        """Whether the client may send any request."""
