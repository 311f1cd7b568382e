"""What live sessions leave in the bucket that no entry brought in (safety rule S6, third case).

Rule: a live session deletes what it put for nothing, unless an entry may still bring it in, or its deletion failed. An
object is a leak where its agent knew that it was put, was disturbed by nothing around that time, so that every outcome
was certain, and never asked to have it deleted.
"""

from collections.abc import Sequence
from typing import Final

from storage.refs import session_of_key
from tests.simulation.audit.truth import Truth
from tests.simulation.cluster.agents import AgentInWorld
from tests.simulation.cluster.store import SimulatedBucket

CERTAIN_SECONDS: Final = 40.0
"""After so long without a disturbance no request of an agent waits, it knows what became of what it put, and has acted
on that."""


def left_by_live_sessions(bucket: SimulatedBucket, truth: Truth) -> list[str]:
    """The keys of all objects that live sessions put and no entry names."""
    state = truth.state
    keys = (key for key in bucket.objects if key not in state.object_ids and key not in state.released)
    return [key for key in keys if session_of_key(key) in state.sessions]


def leaks(bucket: SimulatedBucket, truth: Truth, agents: Sequence[AgentInWorld], now_s: float) -> list[str]:
    """Those of them that their agents should have deleted."""
    by_name = {agent.name: agent for agent in agents}
    found: list[str] = []
    for key in left_by_live_sessions(bucket, truth):
        session, put_s = session_of_key(key), bucket.objects[key].put_s
        assert session is not None, "it names the session that lives"
        agent = by_name[truth.state.sessions[session].name]
        is_certain = key in bucket.answered and now_s - put_s >= CERTAIN_SECONDS
        is_excused = agent.disturbed.was_on(put_s - CERTAIN_SECONDS, put_s + CERTAIN_SECONDS)
        if is_certain and not is_excused and key not in bucket.unwanted:
            found.append(key)
    return found


def put_behind_recovery(bucket: SimulatedBucket, truth: Truth, trusted_s: float | None) -> frozenset[str]:
    """The keys that agents of the ledger before put once it had been recovered, at `trusted_s`: of sessions that this
    ledger does not know. They are left alone, and reported."""
    if trusted_s is None or trusted_s <= 0:
        return frozenset()
    return frozenset(
        key
        for key, stored in bucket.objects.items()
        if stored.put_s > trusted_s and session_of_key(key) not in truth.state.sessions_ended
    )
