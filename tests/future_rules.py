"""`penstock` as a later version of it might be: it knows rules 2, which differ where anybody can see it.

Rule: under rules 2 a new topic has one partition more than was asked for, and every commit skips an object id; while
rules 1 are in force it applies what today's program applies. Run it instead of `penstock`.
"""

from coordinator import commands

commands.RULES_VERSION = 2  # before anything takes it from there

from dataclasses import replace  # noqa: E402

from coordinator import apply_chunks, apply_topics  # noqa: E402
from coordinator.commands import CommitChunks, CreateTopic, Outcome  # noqa: E402
from coordinator.state import ClusterState  # noqa: E402
from protocol.types import ObjectId, SessionId  # noqa: E402

commit_chunks_1 = apply_chunks.commit_chunks
create_topic_1 = apply_topics.create_topic


def commit_chunks(state: ClusterState, session_id: SessionId, command: CommitChunks) -> Outcome:
    outcome = commit_chunks_1(state, session_id, command)
    if state.rules_version >= 2:
        state.object_id_next = ObjectId(state.object_id_next + 1)
    return outcome


def create_topic(state: ClusterState, command: CreateTopic) -> Outcome:
    if state.rules_version >= 2:
        command = replace(command, partition_count=command.partition_count + 1)
    return create_topic_1(state, command)


apply_chunks.commit_chunks = commit_chunks
apply_topics.create_topic = create_topic

if __name__ == "__main__":
    from agent.cli import main

    main()
