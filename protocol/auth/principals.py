"""Principals: who a connection or an HTTP request speaks for, as ACLs and quotas name it.

Source: org.apache.kafka.common.security.auth.KafkaPrincipal; org.apache.kafka.common.utils.SecurityUtils (Kafka 4.3).
"""

from dataclasses import dataclass
from typing import Final

USER: Final = "User"
GROUP: Final = "Group"
"""The type of the groups that a token names. ACLs may name them beside users; Apache Kafka has no such type."""


class InvalidPrincipal(ValueError):
    """The text is no principal. The message quotes it and shows the right form."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A type and a name. Principals are compared as text, and case counts."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of a client that has not authenticated, and need not."""
EVERY_USER: Final = Principal(USER, "*")
"""In ACLs: every principal."""


def read_principal(text: str) -> Principal:
    """Reads `User:alice`. The name may hold colons and may be empty, as in Kafka. Raises `InvalidPrincipal`."""
    kind, colon, name = text.partition(":")
    if not colon or not kind:
        raise InvalidPrincipal(f"{text!r} is no principal: write TYPE:NAME, as in User:alice")
    return Principal(kind, name)
