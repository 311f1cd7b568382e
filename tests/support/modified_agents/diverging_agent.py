"""`penstock` with a bug that makes it compute another state than other agents do, from a moment of a test's choice on.

Rule: until the topic `TRIGGER` exists it applies what the others apply. Then its state differs silently: no client sees
it, nothing is refused. Run it instead of `penstock`.
"""

from coordinator.apply import chunks as apply_chunks
from coordinator.commands.commands import CommitChunks, Outcome
from coordinator.state.state import ClusterState
from protocol.types import ObjectId, SessionId

TRIGGER = "diverge"

commit_chunks_right = apply_chunks.commit_chunks


def commit_chunks(state: ClusterState, session_id: SessionId, command: CommitChunks) -> Outcome:
    outcome = commit_chunks_right(state, session_id, command)
    if TRIGGER in state.topic_ids:
        state.object_id_next = ObjectId(state.object_id_next + 1)
    return outcome


apply_chunks.commit_chunks = commit_chunks

if __name__ == "__main__":
    from agent.cli.main import main

    main()
