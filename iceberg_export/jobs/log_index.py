"""The log's index of a topic's archive: the file, and the count of rows, of each range of offsets.

An agent returns it after a barrier, page by page. Index and table metadata are of the same ledger position.
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
    """The verification is not possible, so it has no result: the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIndex:
    """The index of a topic at one ledger position.

    `log`: by partition. `rows`: by file key; None where there is no agent to ask.
    """

    metadata_key: str
    log: Mapping[int, LogBounds]
    rows: Mapping[str, Sequence[IndexRow]] | None

    def rows_of(self, key: str) -> tuple[IndexRow, ...] | None:
        """The rows of a file; () where the log no longer refers to it, None where there is no agent to ask."""
        return None if self.rows is None else tuple(self.rows.get(key, ()))

    def log_starts(self) -> tuple[int, ...]:
        """The first offset of each partition's log."""
        return tuple(self.log[number].log_start for number in range(len(self.log)))


def check_agent(agent: AgentAddress, cluster_id: str) -> None:
    """Check that the agent is of the bucket's cluster.

    Raises `CannotVerify` where it is not, `AgentUnavailable`, `AgentRejected`.
    """
    agent_cluster_id = _json(agent.get("/api/status")).get("cluster_id")
    if agent_cluster_id != cluster_id:
        raise CannotVerify(
            f"the bucket belongs to cluster {cluster_id}, but the agent to {agent_cluster_id}: give a bucket and an "
            f"agent of the same cluster"
        )


def ask_index(topic: str, agent: AgentAddress) -> LogIndex:
    """The index of a topic. Raises `CannotVerify`, `AgentUnavailable`, `AgentRejected`."""
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
                raise CannotVerify(
                    f"the agent's answer to {path} is not that of this version; use the agent's version: {error!r}"
                ) from error
            # The index changed between two pages, which then do not fit together: begin again.
            if len(moments) > 1 or is_last:
                break
        if len(moments) == 1:
            log = {number: LogBounds(*bounds) for number, bounds in enumerate(page["partitions"])}
            return LogIndex(metadata_key=page["metadata"], log=log, rows=rows)
    raise CannotVerify(
        f"the index of {topic} changed in each of {VERIFY_ATTEMPTS_MAX} attempts to read it: verify when less is "
        f"archived"
    )


def _json(body: bytes) -> dict[str, Any]:
    try:
        return decode_json_object(body)
    except Undecodable as error:
        raise CannotVerify(f"the answer is no JSON object: is this an agent's HTTP address? {body[:100]!r}") from error
