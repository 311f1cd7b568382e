"""Which names a topic can have, and which two topics cannot have together.

Source: org.apache.kafka.common.internals.Topic (validate, hasCollision; Kafka 4.3).
"""

import re

from protocol.limits import TOPIC_NAME_CHARS_MAX

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Names that Kafka keeps for itself (Topic.INTERNAL_TOPICS)."""

AUDIT_TOPIC = "__penstock_audit"
"""The topic of the audit log. Agents create and write it; clients may read it."""


class InvalidTopicName(ValueError):
    """No topic can have this name. The message says why."""


def validate_topic_name(name: str) -> None:
    """Raise `InvalidTopicName` for a name that no topic can have."""
    if not name:
        raise InvalidTopicName("The topic name is empty; give it 1 to 249 characters.")
    if name in (".", ".."):
        raise InvalidTopicName(f"The topic name '{name}' means a folder; choose another one.")
    if len(name) > TOPIC_NAME_CHARS_MAX:
        raise InvalidTopicName(f"The topic name has {len(name)} characters, {TOPIC_NAME_CHARS_MAX} is the most.")
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopicName(
            f"The topic name '{name}' holds a character other than letters, digits, '.', '_' and '-'."
        )


def shape(name: str) -> str:
    """The name as metrics write it, with '.' as '_': equal shapes collide, so `a.b` and `a_b` cannot both exist."""
    return name.replace(".", "_")
