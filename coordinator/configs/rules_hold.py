"""Whether the rules version is held: agents announce the rules that they know, and none raises the version (S3).

The hold is a broker config of every broker. So it outlives the agents that asked for it, agents of older versions carry
it along, and Kafka's tools show it and end it.
"""

import re
from collections.abc import Mapping
from typing import Final

from protocol.types import Milliseconds

RULES_HOLD: Final = "penstock.rules.hold.since.ms"
NOT_HELD: Final = "-1"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
"""The numbers that `ConfigSpec.validate` lets pass."""


def rules_hold_since_ms(every_broker: Mapping[str, str]) -> Milliseconds | None:
    """Since when the rules version is held, by the configs of every broker; None where it is not held."""
    text = every_broker.get(RULES_HOLD, NOT_HELD).strip()
    # Proposers check values. What is no number holds nothing: apply must not fail at any text.
    since_ms = int(text) if _NUMBER.fullmatch(text) else -1
    return Milliseconds(since_ms) if since_ms >= 0 else None
