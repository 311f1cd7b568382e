"""Scenes of the rights of clients (safety rule S16): a right that is granted through one agent, and used at another."""

from agent.ledger.ledger_client import LedgerClient
from coordinator.commands.commands import Rejected
from coordinator.commands.security import CreateAcls
from coordinator.security.acls import EVERY_HOST, Acl
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import ANONYMOUS, Principal, read_principal
from protocol.errors import ErrorCode
from protocol.types import PartitionIndex
from tests.simulation.clients import wire
from tests.simulation.clients.clients import Client, ClientWorld
from tests.simulation.cluster.agents import AgentInWorld
from tests.simulation.cluster.connections import ConnectionLost

NEAR, FAR = 1, 0
"""The agent at which rights are granted, and the one whose watch lags."""
LAG_SECONDS = 1.0
GRANTS = 5
OWNER = read_principal("User:owner")


async def a_grant_that_another_agent_has_not_applied_yet(world: ClientWorld) -> None:
    """Its client may be answered late, but must not be denied."""
    await world.clock.sleep(5.0)  # until the rules that bring ACLs are in force
    far = world.agents[FAR]
    far.ledger.lag_s = LAG_SECONDS
    client = Client(world, "grantee")
    for number in range(GRANTS):
        name = f"granted-{number}"
        await _grant(world, OWNER, name)
        await world.clock.sleep(3 * LAG_SECONDS)  # the other agent knows by then that only the owner may
        await _grant(world, ANONYMOUS, name)
        error = await _end_of(client, far, name)
        if error == ErrorCode.topic_authorization_failed:
            world.around.history.violation(f"a client was denied what was granted before it asked (S16): {name}")
    far.ledger.lag_s = 0.0


async def _grant(world: ClientWorld, principal: Principal, name: str) -> None:
    """Return once a principal may read a topic, by the ledger."""
    acl = Acl(
        principal=principal,
        host=EVERY_HOST,
        operation=Operation.READ,
        permission=Permission.ALLOW,
        resource_type=ResourceType.TOPIC,
        name=name,
        pattern=PatternType.LITERAL,
    )
    outcome = await _ledger_of(world.agents[NEAR]).propose(CreateAcls.of([acl]))
    assert not isinstance(outcome, Rejected), outcome


def _ledger_of(agent: AgentInWorld) -> LedgerClient:
    assert agent.broker is not None
    return agent.broker.services.ledger


async def _end_of(client: Client, agent: AgentInWorld, name: str) -> int | None:
    """The error of the end of a partition that does not exist; None where the connection is lost."""
    client.stay_with(agent)
    body = wire.list_offset((name, PartitionIndex(0)), wire.LATEST)
    try:
        answer = await client.ask(wire.LIST_OFFSETS, wire.LIST_OFFSETS_VERSION, body)
    except ConnectionLost:
        return None
    error, _ = wire.read_offset(answer)
    return error
