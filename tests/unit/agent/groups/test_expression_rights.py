"""A regular expression of a consumer group matches what the member that sent it may describe (KIP-848)."""

from agent.groups.consumer_coordinator import ConsumerGroupCoordinator
from agent.security.rights import Rights
from protocol.auth.operations import Operation, ResourceType, bits
from protocol.types import TopicId
from tests.support.commands.commands import create
from tests.support.groups.consumer_coordinator import GroupAgent, one_agent
from tests.support.groups.consumer_groups import beat
from tests.support.security.fixed_rights import FixedJudge

HIDDEN = TopicId(b"h" * 16)


def matches_of(agent: GroupAgent, regex: str) -> tuple[str, ...] | None:
    return agent.group.regexes.get(regex)


async def joined(agent: GroupAgent, member_id: str, regex: str, rights: Rights) -> None:
    await agent.groups.heartbeat("g", beat(member_id, regex=regex), is_id_required=True, rights=rights)
    await agent.groups.look_after()
    await agent.parts.ledger.barrier()


async def test_an_expression_matches_no_topic_that_its_member_may_not_describe() -> None:
    async with one_agent() as agent:
        await agent.parts.ledger.propose(create("hidden", topic_id=HIDDEN))
        table = {(ResourceType.TOPIC, "t"): bits(Operation.DESCRIBE)}
        await joined(agent, "a", ".*", Rights(FixedJudge(lambda: dict(table))))
        assert matches_of(agent, ".*") == ("t",)


async def test_an_expression_is_matched_by_the_rights_of_its_newest_heartbeat() -> None:
    async with one_agent() as agent:
        await agent.parts.ledger.propose(create("hidden", topic_id=HIDDEN))
        none, every = Rights(FixedJudge(dict)), {(ResourceType.TOPIC, "*"): bits(Operation.DESCRIBE)}
        await joined(agent, "a", "[a-z]+", none)
        assert matches_of(agent, "[a-z]+") == ()
        agent.parts.clock.seconds += 600.5
        await joined(agent, "b", "[a-z]+", Rights(FixedJudge(lambda: every)))
        assert set(matches_of(agent, "[a-z]+") or ()) == {"t", "hidden"}


async def test_with_an_authorizer_an_expression_waits_for_a_heartbeat_of_its_member() -> None:
    async with one_agent() as agent:
        context = agent.parts.context()
        agent.groups = ConsumerGroupCoordinator(
            context, group_ledger=agent.ledger, classic=agent.classic, default_rights=None
        )
        agent.classic.consumer_groups = agent.groups
        table = {(ResourceType.TOPIC, "t"): bits(Operation.DESCRIBE)}
        await joined(agent, "a", "t", Rights(FixedJudge(lambda: dict(table))))
        live = agent.groups._live["g"]
        live.rights_by_regex.clear()
        agent.parts.clock.seconds += 600.5
        await agent.groups.look_after()
        assert matches_of(agent, "t") == ("t",)
