"""Sets a state's time back to now, where a wrong clock had moved it ahead (safety rule S21).

A state's time never goes back while entries are applied, so a ledger that is ahead waits for real time to catch up: no
garbage goes until then, and retention would take every new record for an old one. A recovery begins an incarnation
with a snapshot, in which the time can be set. Every time that was noted later than now is moved to now with it: it
was noted while the clock was wrong, and nothing is older than it is because of that.

What records themselves say is left as it is: their timestamps, the append times of chunks that the broker stamped
(S14) and those of markers have been served already.
"""

from collections.abc import Iterable

from coordinator.commands.group_values import CommittedOffset, GroupState
from coordinator.state.state import ClusterState
from protocol.types import Milliseconds, PartitionIndex


def reset_time(state: ClusterState, now_ms: Milliseconds) -> None:
    """Let `now_ms` be the state's time, and nothing in it have happened later.

    No transactional id may be left: a recovery has forgotten them (`Recovery.abort_transactions`).
    """
    assert not state.transactional_ids, "their times are not set back"
    state.time_ms = now_ms
    # Before now: sessions that end now are those that the recovery ends. The next recovery recognises them by it
    # (`coordinator.recovery.state_recovery.sessions_ended_unseen`).
    before_ms = Milliseconds(now_ms - 1)
    for session, ended_ms in state.sessions_ended.items():
        state.sessions_ended[session] = min(ended_ms, before_ms)
    for key, released_ms in state.released.items():
        state.released[key] = min(released_ms, now_ms)
    for topic in state.topics.values():
        topic.created_ms = min(topic.created_ms, now_ms)
        for partition in topic.partitions:
            for producer in partition.producers.values():
                producer.last_active_ms = min(producer.last_active_ms, now_ms)
    for group in state.groups.values():
        _reset_group(group, now_ms)


def _reset_group(group: GroupState, now_ms: Milliseconds) -> None:
    if group.empty_since_ms is not None:
        group.empty_since_ms = min(group.empty_since_ms, now_ms)
    for partitions in _partitions(group):
        for partition, committed in partitions.items():
            if committed.commit_ms > now_ms:
                partitions[partition] = committed._replace(commit_ms=now_ms)


def _partitions(group: GroupState) -> Iterable[dict[PartitionIndex, CommittedOffset]]:
    yield from group.offsets.values()
    for pending in group.pending.values():
        yield from pending.values()
