"""`penstock` as a later version of it might be: it knows a version of the rules more, which differs visibly.

Rule: under those rules a new topic has one partition more than was asked for, and every commit skips an object id.
While others are in force it applies what today's program applies. Run it instead of `penstock`.
"""

from msgspec.structs import replace

from coordinator.commands import rules

RULES_FUTURE = rules.RULES_NEWEST + 1
rules.RULES_NEWEST = RULES_FUTURE  # type: ignore[misc]  # before another module imports it

from coordinator.apply import chunks as apply_chunks  # noqa: E402  # after the rules
from coordinator.apply import topics as apply_topics  # noqa: E402  # after the rules
from coordinator.commands.commands import CommitChunks, CreateTopic, Outcome  # noqa: E402  # after the rules
from coordinator.state.state import ClusterState  # noqa: E402  # after the rules
from protocol.types import ObjectId, SessionId  # noqa: E402  # after the rules

commit_chunks_1 = apply_chunks.commit_chunks
create_topic_1 = apply_topics.create_topic


def commit_chunks(state: ClusterState, session_id: SessionId, command: CommitChunks) -> Outcome:
    outcome = commit_chunks_1(state, session_id, command)
    if state.rules_version >= RULES_FUTURE:
        state.object_id_next = ObjectId(state.object_id_next + 1)
    return outcome


def create_topic(state: ClusterState, command: CreateTopic) -> Outcome:
    if state.rules_version >= RULES_FUTURE:
        command = replace(command, partition_count=command.partition_count + 1)
    return create_topic_1(state, command)


apply_chunks.commit_chunks = commit_chunks
apply_topics.create_topic = create_topic

if __name__ == "__main__":
    from agent.cli.main import main

    main()
