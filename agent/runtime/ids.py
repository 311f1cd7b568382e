"""Randomness: new identifiers and jitter. The only module that draws entropy.

Rule: code that needs randomness takes an `Ids`, so that a simulation is repeatable from its seed.
Kafka's text form of a UUID is base64url without padding, 22 characters: org.apache.kafka.common.Uuid.
"""

import base64
import random
import uuid
from typing import Protocol

UUID_BYTES = 16
RESERVED_UUIDS = frozenset(number.to_bytes(UUID_BYTES, "big") for number in range(2))
"""Zero means "no id" and one is the topic of Kafka's own metadata; neither may name a topic."""


class Ids(Protocol):
    def new_uuid(self) -> bytes:
        """16 random bytes, never one of Kafka's reserved UUIDs."""
        ...

    def new_cluster_id(self) -> str:
        """A new cluster's id, in Kafka's text form."""
        ...

    def jitter(self) -> float:
        """A number from [0, 1), to spread events that would otherwise coincide."""
        ...


class SystemIds:
    """The machine's entropy."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def new_uuid(self) -> bytes:
        while True:
            drawn = uuid.uuid4().bytes
            # Like Kafka's Uuid.randomUuid: command lines would read a leading "-" as an option.
            if drawn not in RESERVED_UUIDS and not uuid_text(drawn).startswith("-"):
                return drawn

    def new_cluster_id(self) -> str:
        return uuid_text(self.new_uuid())

    def jitter(self) -> float:
        return self._random.random()


def uuid_text(uuid_bytes: bytes) -> str:
    """Kafka's text form: 22 characters of base64url, no padding."""
    return base64.urlsafe_b64encode(uuid_bytes).rstrip(b"=").decode()
