"""The rules of the alerts in a faster world: a run of minutes shows what takes hours.

Rule: durations after `for`, windows, steps and offsets are divided by one factor, and so are the bounds of metrics that
say how long something has lasted (`WAITS`). All else of an expression stays: the latency of a request and the life of a
certificate are no shorter in this world.
"""

import copy
import re
from collections.abc import Mapping
from typing import Any, Final

WAITS: Final = (
    "penstock_external_catalog_lag_seconds",
    "penstock_group_lag_seconds",
    "penstock_last_stable_offset_lag_seconds",
    "penstock_ledger_outage_seconds",
    "penstock_store_outage_seconds",
    "penstock_tail_manifest_age_seconds",
    "penstock_topic_unarchived_seconds",
    "penstock_transaction_oldest_open_seconds",
)
"""Metrics that grow by a second each second."""
_MILLISECONDS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = r"(\d+)([smhd])"
_WINDOW: Final = re.compile(rf"(\[|:|\boffset ){_DURATION}\b")
_BOUND: Final = re.compile(rf"((?:{'|'.join(WAITS)})\)?) > (\d+)\b")


def faster_rules(rules: Mapping[str, Any], factor: int) -> Mapping[str, Any]:
    """The contents of a file of rules, so many times as fast."""
    changed = copy.deepcopy(dict(rules))
    for group in changed["groups"]:
        for rule in group["rules"]:
            rule["expr"] = faster_expression(rule["expr"], factor)
            if "for" in rule:
                rule["for"] = re.sub(_DURATION, lambda match: _shorter(match[1], match[2], factor), rule["for"])
    return changed


def faster_expression(expression: str, factor: int) -> str:
    """A PromQL expression, so many times as fast."""
    expression = _WINDOW.sub(lambda match: match[1] + _shorter(match[2], match[3], factor), expression)
    return _BOUND.sub(lambda match: f"{match[1]} > {int(match[2]) / factor:g}", expression)


def _shorter(number: str, unit: str, factor: int) -> str:
    return f"{int(number) * _MILLISECONDS[unit] // factor}ms"
