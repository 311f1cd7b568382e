"""Record rules and an arrival time."""

from agent.produce.record_rules import RecordRules
from agent.produce.record_validator import (
    Arrival,
)

RULES = RecordRules(
    message_bytes_max=1_000,
    is_compacted=False,
    uses_append_time=False,
    timestamp_before_max_ms=100,
    timestamp_after_max_ms=10,
)
NOW_MS = 1_000
NOW = Arrival(NOW_MS, NOW_MS)
