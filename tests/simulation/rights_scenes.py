"""Scenes of the rights of clients and of their logins (safety rule S16).

A right is granted, or a user is created, through one agent, and used at another.
"""

import random
from dataclasses import replace

from agent.broker import Broker
from agent.config.listener_security import ListenerSecurity
from agent.config.sasl_settings import PLAIN, SaslSettings
from agent.ledger.ledger_client import LedgerClient
from agent.security.authentication import ConnectionAuthenticator
from agent.security.listener_authentication import ListenerAuthentication
from agent.security.scram_accounts import CredentialSource
from agent.security.wiring import wire_authentication
from coordinator.commands.commands import Rejected
from coordinator.commands.security import AlterScram, CreateAcls, ScramRow
from coordinator.security.acls import EVERY_HOST, Acl
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import ANONYMOUS, Principal, read_principal
from protocol.auth.sasl_session import Reply, Success
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.auth.scram_keys import credential_of, salt_password
from protocol.errors import ErrorCode
from protocol.types import PartitionIndex
from tests.simulation.clients import wire
from tests.simulation.clients.administrators import Administrator
from tests.simulation.clients.clients import Client, ClientWorld
from tests.simulation.cluster.agent_settings import settings_of
from tests.simulation.cluster.agents import AgentInWorld, SeededIds
from tests.simulation.cluster.connections import ConnectionLost
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.auth.sasl_frames import authenticate, handshake, read_authenticate_answer

NEAR, FAR = 1, 0
"""The agent at which rights are granted, and the one whose watch lags."""
LAG_SECONDS = 1.0
LOGIN_LAG_SECONDS = 0.5
"""What is under way when an entry comes makes it up to three times as long, and a login does not wait for ever."""
GRANTS = 5
OWNER = read_principal("User:owner")
EXISTING, MISSING = "existing", "missing"
LISTENER = "SASL_PLAINTEXT"
SEED_OF_NONCES = 16
ITERATIONS = 2


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


async def a_topic_that_a_client_may_not_describe(world: ClientWorld) -> None:
    """Its client is denied alike by every agent whether or not the topic exists."""
    await world.clock.sleep(5.0)  # until the rules that bring ACLs are in force
    for name in (EXISTING, MISSING):
        await _grant(world, OWNER, name)
    await Administrator(world, "owner", EXISTING).create(EXISTING, 1, ())
    client = Client(world, "stranger")
    for agent in world.agents:
        errors = {name: await _end_of(client, agent, name) for name in (EXISTING, MISSING)}
        if set(errors.values()) != {ErrorCode.topic_authorization_failed}:
            world.around.history.violation(f"a client without rights learns which topics exist: {errors}")


async def a_user_that_another_agent_has_not_applied_yet(world: ClientWorld) -> None:
    """Its login may take longer, but must not be rejected. One that another agent deleted before is not let in."""
    await world.clock.sleep(5.0)  # until the rules that bring users are in force
    far, near = world.agents[FAR], _ledger_of(world.agents[NEAR])
    far.ledger.lag_s = LOGIN_LAG_SECONDS
    assert far.broker is not None
    listener, note = _listener_of(far.broker, world), world.around.history.violation
    client, mechanism = DrawnScramClient(), ScramMechanism.SCRAM_SHA_256
    row = ScramRow.of((client.user, mechanism), _credential(client))
    for name in (mechanism.sasl_name, PLAIN):
        await near.propose(AlterScram(upsertions=(row,)))
        if not await _logs_in(listener, client, name):
            note(f"{client.user} was rejected by {name}, and had been created before (S16)")
        await world.clock.sleep(3 * LOGIN_LAG_SECONDS)
        await near.propose(AlterScram(deletions=((client.user, mechanism),)))
        if await _logs_in(listener, client, name):
            note(f"{client.user} logged in by {name}, and had been deleted before (S16)")
        await world.clock.sleep(3 * LOGIN_LAG_SECONDS)
    far.ledger.lag_s = 0.0


def _credential(client: DrawnScramClient) -> ScramCredential:
    salted = salt_password(client.password, salt=b"salt", iterations=ITERATIONS, mechanism=client.mechanism)
    return credential_of(salted, salt=b"salt", iterations=ITERATIONS, mechanism=client.mechanism)


def _listener_of(broker: Broker, world: ClientWorld) -> ListenerAuthentication:
    """A listener with SASL of a simulated agent."""
    sasl = SaslSettings(mechanisms=(PLAIN, *(mechanism.sasl_name for mechanism in ScramMechanism)))
    settings = replace(
        settings_of("agent", world.around.plan), listener_security={LISTENER: ListenerSecurity(sasl=sasl)}
    )
    services = broker.services
    return wire_authentication(
        settings,
        CredentialSource(credentials=lambda: services.state.scram, version=lambda: services.state.scram_version),
        barrier=broker.authorizer.barrier,
        tokens=services.delegation_tokens,
        cluster_id="cluster",
        clock=services.clock,
        ids=SeededIds(random.Random(SEED_OF_NONCES)),
        metrics=services.metrics,
    ).listeners[LISTENER]


async def _logs_in(listener: ListenerAuthentication, client: DrawnScramClient, mechanism: str) -> bool:
    authenticator = ConnectionAuthenticator(listener=listener)
    answered = await authenticator.receive(handshake(mechanism))
    token = b"\0".join((b"", client.user.encode(), client.password.encode()))
    if mechanism != PLAIN:
        answered = await authenticator.receive(authenticate(client.first()))
        assert isinstance(answered, Reply)
        token = client.final(read_authenticate_answer(answered.answer).token)
    return isinstance(await authenticator.receive(authenticate(token)), Success)


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
