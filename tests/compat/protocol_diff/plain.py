"""Answers in comparable form, and the differences of two.

Rule: what differs from run to run is replaced, by a symbol in order of appearance (topic and producer ids, members,
delegation tokens), by minutes since the conversation's first delegation token was issued (`TOKEN_TIMES`), or by "*"
(`MASKED`); rows of a list are put in order by what names them.
"""

import uuid
from collections.abc import Iterable
from typing import Any

from tests.compat.protocol_diff.batches import batches
from tests.compat.protocol_diff.steps import Step

MASKED = {
    "BatchIndexErrorMessage",
    "BrokerId",
    "Brokers",
    "ClusterId",
    "ControllerId",
    "CoordinatorEpoch",
    "CoordinatorId",
    "Documentation",
    "EligibleLeaderReplicas",
    "ErrorMessage",
    "FinalizedFeaturesEpoch",
    "Host",
    "IsrNodes",
    "LastKnownElr",
    "LastTimestamp",
    "LeaderEpoch",
    "LeaderId",
    "LogAppendTimeMs",
    "NodeId",
    "OfflineReplicas",
    "Port",
    "Rack",
    "ReplicaNodes",
    "SessionId",
    "StatusMessage",
    "TransactionStartTimeMs",
    "first_ts",
    "max_ts",
}
"""Fields whose value says nothing about conformance."""
PRODUCER_IDS = {"ProducerId", "pid"}
TOKEN_TIMES = {
    "IssueTimestamp", "IssueTimestampMs", "ExpiryTimestamp", "ExpiryTimestampMs", "MaxTimestamp", "MaxTimestampMs",
}  # fmt: skip
MINUTE_MS = 60_000
MEMBER_ID_LENGTH_MIN = 21
NAMING = (
    "Name", "Topic", "TopicName", "TopicId", "GroupId", "TransactionalId", "ResourceName", "ConfigName", "Key", "Index",
    "PartitionIndex", "Partition", "ApiKey", "base", "ResourceType", "MemberId", "GroupInstanceId", "PrincipalName",
    "TokenId",
)  # fmt: skip
"""Fields that tell the rows of a list apart."""
ABSENT = "absent"
WHOLE = "answer"


class Plain:
    """Puts the answers of one run into comparable form."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._symbols: dict[Any, str] = {}
        self._first_issue_ms: int | None = None

    def answer(self, value: Any, step: Step, name: str = "") -> Any:
        """`value`, the field `name` of the answer to `step`, in comparable form."""
        if name in step.mask or name in MASKED:
            return "*"
        if name == "ThrottleTimeMs":
            return "throttled" if value else "*"
        if name == "Records" and isinstance(value, bytes):
            if value and step.records:
                return [self.answer(each, step) for each in batches(value)]
            return "records" if value else ""
        if isinstance(value, dict):
            return {key: self.answer(each, step, key) for key, each in value.items()}
        if isinstance(value, list | tuple):
            items = [self.answer(each, step, name) for each in value]
            return sorted(items, key=_order) if all(isinstance(item, dict) for item in items) else items
        return self._scalar(value, name)

    def _scalar(self, value: Any, name: str) -> Any:
        if isinstance(value, uuid.UUID):
            return "-" if value.int == 0 else self._symbol("uuid", value)
        if name == "Hmac" and value:
            return self._symbol(f"hmac of {len(value)} bytes ", value)
        if name == "TokenId" and value:
            return self._symbol("token", value)
        if name in TOKEN_TIMES and value > 0:
            return self._time(value, name)
        if name == "SessionLifetimeMs" and value:
            return f"{round(value / MINUTE_MS)} min"
        if isinstance(value, bytes):
            return value.decode("latin-1").replace(self._prefix, "~")
        if name in PRODUCER_IDS and isinstance(value, int) and value >= 0:
            return self._symbol("pid", value)
        if isinstance(value, str):
            if name in ("MemberId", "Leader") and len(value) >= MEMBER_ID_LENGTH_MIN and not value.startswith("~"):
                return self._symbol("member", value)
            return value.replace(self._prefix, "~")
        return value

    def _time(self, time_ms: int, name: str) -> str:
        """A time of a delegation token by the conversation's first, to the minute."""
        if self._first_issue_ms is None and name.startswith("Issue"):
            self._first_issue_ms = time_ms
        if self._first_issue_ms is None:
            return "a time"
        return f"{round((time_ms - self._first_issue_ms) / MINUTE_MS):+d} min"

    def _symbol(self, kind: str, value: Any) -> str:
        if value not in self._symbols:
            self._symbols[value] = f"{kind}{sum(known.startswith(kind) for known in self._symbols.values())}"
        return self._symbols[value]


def dig(value: Any, path: str) -> Any:
    """The field at a path such as "Topics.0.ErrorCode"."""
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def error_codes(value: Any) -> set[int]:
    """Every error code in an answer."""
    if isinstance(value, dict):
        found = {each for key, each in value.items() if key.endswith("ErrorCode") and isinstance(each, int)}
        return found.union(*[error_codes(each) for each in value.values()])
    if isinstance(value, list):
        return set().union(*[error_codes(each) for each in value])
    return set()


def differences(kafka: Any, penstock: Any, name: str = WHOLE) -> list[tuple[str, str]]:
    """What differs between two comparable answers: (Kafka's field and value, Penstock's).

    Lists of different lengths differ by that, and by the rows that both have.
    """
    if isinstance(kafka, dict) and isinstance(penstock, dict):
        keys = [*kafka, *(key for key in penstock if key not in kafka)]
        return _flatten(differences(kafka.get(key, ABSENT), penstock.get(key, ABSENT), key) for key in keys)
    if isinstance(kafka, list) and isinstance(penstock, list):
        if len(kafka) == len(penstock):
            return _flatten(differences(x, y, name) for x, y in zip(kafka, penstock, strict=True))
        here = [("more " + name, "fewer")] if len(kafka) > len(penstock) else [("fewer " + name, "more")]
        by_name = {_order(row): row for row in penstock if isinstance(row, dict)}
        both = [row for row in kafka if isinstance(row, dict) and _order(row) in by_name]
        return here + _flatten(differences(row, by_name[_order(row)], name) for row in both)
    theirs = _short(kafka) if name == WHOLE else f"{name} {_short(kafka)}"
    return [] if kafka == penstock else [(theirs, _short(penstock))]


def _flatten(lists: Iterable[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """All differences once, in order."""
    return list(dict.fromkeys(each for differing in lists for each in differing))


def _short(value: Any) -> str:
    if isinstance(value, dict):
        codes = sorted(error_codes(value) - {0})
        return f"error {', '.join(map(str, codes))}" if codes else "given"
    if isinstance(value, list):
        return f"of {len(value)}"
    return "null" if value is None else '""' if value == "" else str(value)


def _order(row: dict[str, Any]) -> str:
    return repr([f"{row[k]:>9}" if isinstance(row.get(k), int) else str(row.get(k)) for k in NAMING if k in row])
