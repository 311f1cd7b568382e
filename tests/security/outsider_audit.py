"""The denials that the audit topic has, and whether each try is among them."""

import json
import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from coordinator.configs.topic_names import AUDIT_TOPIC
from protocol.api_versions import ApiKey
from tests.security.tenant import ATTACKER, Tenants
from tests.support.records.plain_records import read_batches

if TYPE_CHECKING:
    from tests.security.outsider_tries import Try

SECONDS_MAX: Final = 30.0
FRAME_BYTES: Final = 5
"""A zero byte and the schema's id, in front of the JSON."""
LOGIN: Final = "login"
"""Stands for the API of logins that were rejected. Their name is that of the principal."""
DeniedKey = tuple[str, str]
"""The API, or method and path, and the resource's name."""


class DeniedEvents:
    """The attacker's denials. Each is taken by one try."""

    def __init__(self, counts: Counter[DeniedKey]) -> None:
        self._counts = counts

    def take(self, each: "Try") -> str:
        """Takes a try's event: there, missing, or "-" where the try has none."""
        if each.event is None:
            return "-"
        api, names = each.event
        key = next(((api, name) for name in sorted(names) if self._counts[api, name]), None)
        if key is None:
            return "missing"
        self._counts[key] -= 1
        return "there"


def denied_events(tenants: Tenants, count: int) -> DeniedEvents:
    """The events, once there are so many or the time is over."""
    ends = time.monotonic() + SECONDS_MAX
    counts: Counter[DeniedKey] = Counter()
    offset = 0
    while time.monotonic() < ends and counts.total() < count:
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 24}
        sizes = {"max_wait": timedelta(seconds=1), "min_bytes": 1, "max_bytes": 1 << 24, "forgotten_topics_data": []}
        topics = [{"topic": AUDIT_TOPIC, "partitions": [partition]}]
        answer = tenants.admin.ask(ApiKey.FETCH, 12, {**sizes, "topics": topics})
        for record in read_batches(bytes(answer.responses[0].partitions[0].records or b"")).records:
            if record.offset < offset:
                continue
            offset = record.offset + 1
            event = json.loads((record.value or b"")[FRAME_BYTES:])
            if event["decision"] == "denied" and event["principal"] == f"User:{ATTACKER}":
                counts[event["api"], event["resource"].partition(":")[2]] += event["count"]
            elif event["decision"] == "rejected":
                counts[LOGIN, event["principal"]] += event["count"]
    return DeniedEvents(counts)
