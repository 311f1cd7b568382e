"""The log's index of a topic's archive: which offsets are how many rows of which file.

Rule: of one moment, with the table's metadata at the same one, as an agent tells it behind a barrier, page by page.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from iceberg_export.jobs.agents import AgentAddress
from iceberg_export.jobs.coverage import LogBounds
from iceberg_export.jobs.examine import IndexRow
from protocol.decoding import Undecodable, decode_json_object
from protocol.limits import HTTP_ROWS_MAX, VERIFY_ATTEMPTS_MAX


class CannotVerify(Exception):
    """Nothing is known then: the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIndex:
    """`rows`: by the keys of files; None where no agent was asked."""

    metadata_key: str
    log: Mapping[int, LogBounds]
    rows: Mapping[str, Sequence[IndexRow]] | None

    def rows_of(self, key: str) -> tuple[IndexRow, ...] | None:
        """Of a file; none where the log has let go of it, None where nobody was asked."""
        return None if self.rows is None else tuple(self.rows.get(key, ()))

    def log_starts(self) -> tuple[int, ...]:
        """Of each partition."""
        return tuple(self.log[number].log_start for number in range(len(self.log)))


def check_agent(agent: AgentAddress, cluster_id: str) -> None:
    """Raises `CannotVerify` where it is another cluster's than the bucket; `AgentUnavailable`, `AgentRejected`."""
    found = _json(agent.get("/api/status")).get("cluster_id")
    if found != cluster_id:
        raise CannotVerify(
            f"the bucket is cluster {cluster_id}'s, and the agent is {found}'s: give what belongs together"
        )


def ask_index(topic: str, agent: AgentAddress) -> LogIndex:
    """Raises `CannotVerify`, `AgentUnavailable`, `AgentRejected`."""
    path = f"/api/lake/{quote(topic, safe='')}/index"
    for _ in range(VERIFY_ATTEMPTS_MAX):
        rows: defaultdict[str, list[IndexRow]] = defaultdict(list)
        after, moments = 0, set[str]()
        while True:
            page = _json(agent.get(f"{path}?after={after}&limit={HTTP_ROWS_MAX}"))
            try:
                moments.add(page["moment"])
                for partition, key, *numbers in page["rows"]:
                    rows[key].append(IndexRow(partition, *numbers))
                after += len(page["rows"])
                is_last = page["is_last"] or not page["rows"]
            except (KeyError, TypeError, ValueError) as error:
                raise CannotVerify(f"the agent's answer to {path} is none of this version's: {error!r}") from error
            if len(moments) > 1 or is_last:
                break
        if len(moments) == 1:
            log = {number: LogBounds(*bounds) for number, bounds in enumerate(page["partitions"])}
            return LogIndex(metadata_key=page["metadata"], log=log, rows=rows)
    raise CannotVerify(f"the index of {topic} changes faster than it is told: verify when less is archived")


def _json(body: bytes) -> dict[str, Any]:
    try:
        return decode_json_object(body)
    except Undecodable as error:
        raise CannotVerify(
            f"the agent's answer is no JSON object: is it an agent's HTTP address? {body[:100]!r}"
        ) from error
