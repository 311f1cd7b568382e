"""A lookup of topics is the same object until a topic changes."""

from msgspec.structs import replace

from agent.groups.group_topics import GroupTopics
from coordinator.commands.admin import CreatePartitions
from protocol.types import TopicId
from tests.support.agent.ledger_parts import running_parts
from tests.support.commands.commands import TOPIC, create

OTHER = TopicId(bytes([9] * 16))


async def test_the_lookup_changes_with_topics_alone() -> None:
    async with running_parts() as parts:
        lookup = GroupTopics(parts.ledger)
        assert lookup.finder("t") is None
        await parts.ledger.propose(create())
        finder = lookup.finder
        assert finder("t") == (TOPIC, 1)
        assert lookup.finder is finder
        await parts.ledger.propose(CreatePartitions(topic_id=TOPIC, partition_count=3))
        assert lookup.finder is not finder
        assert (lookup.find("t"), lookup.name_of(TOPIC), lookup.name_of(OTHER)) == ((TOPIC, 3), "t", None)


async def test_names_are_counted_where_a_topic_comes_and_not_where_one_grows() -> None:
    async with running_parts() as parts:
        lookup = GroupTopics(parts.ledger)
        await parts.ledger.propose(create())
        assert lookup.has_uncounted_changes
        lookup.count_names()
        assert (lookup.names_number, lookup.has_uncounted_changes) == (1, False)
        await parts.ledger.propose(CreatePartitions(topic_id=TOPIC, partition_count=3))
        lookup.count_names()
        assert lookup.names_number == 1
        await parts.ledger.propose(replace(create(), topic_id=OTHER, name="u"))
        lookup.count_names()
        assert lookup.names_number == 2
