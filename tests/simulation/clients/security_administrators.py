"""A simulated administrator who changes ACLs and SCRAM users through any agent, and looks at them through others.

Rule: one change at a time. Of each ACL and user it is known what may hold: what was acknowledged last, and what changes
of unknown outcome would make of it as long as the session that proposed them can still write. Whatever agent is asked
behind a barrier shows one of these (safety rule S4), and rights as the ACLs that it shows decide them, one by one.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from agent.admin.security_changes import SecurityChanges
from agent.admin.topics import TopicError
from agent.broker import Broker
from coordinator.commands.security import CredentialId, ScramRow
from coordinator.ledger.port import LedgerError, OutcomeUnknown
from coordinator.security.acls import EVERY_HOST, Acl, AclFilter
from coordinator.state.state import ClusterState
from protocol.auth.operations import EVERY_NAME, Operation, PatternType, Permission, ResourceType, bits
from protocol.auth.principals import EVERY_USER, Principal
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.errors import ErrorCode
from protocol.types import SessionId
from tests.simulation.clients.clients import ClientWorld
from tests.simulation.cluster.agents import Life

PAUSE_SECONDS_MAX: Final = 2.0
CHANGE_SECONDS_MAX: Final = 10.0
LOOK_CHANCE: Final = 0.4
USERS: Final = ("ann", "ben")
PRINCIPALS: Final = (Principal("User", "ann"), Principal("User", "ben"))
NAMES: Final = ("guarded", "guarded-a", "guarded-b")
OPERATIONS: Final = (Operation.READ, Operation.WRITE, Operation.ALL)
HOST: Final = "10.0.0.1"
RETRIABLE: Final = (ErrorCode.request_timed_out, ErrorCode.not_leader_or_follower, ErrorCode.unsupported_version)
Key = TypeVar("Key")
Value = TypeVar("Value")


class SecurityAdministrator:
    """Changes and looks in turn; `judge` at the end of the world."""

    def __init__(self, world: ClientWorld) -> None:
        self._world = world
        self._busy: Life | None = None
        self._acls: dict[Acl, set[bool]] = defaultdict(lambda: {False})
        self._users: dict[CredentialId, set[ScramCredential | None]] = defaultdict(lambda: {None})
        self._current: list[tuple[SessionId, object, object]] = []
        """The change on its way: the session that proposes it, and what it would make of what."""
        self._late: list[tuple[SessionId, object, object]] = []
        """The same of changes whose outcome is unknown."""

    async def run(self) -> None:
        chance = self._world.chance
        while True:
            await self._world.clock.sleep(chance.random() * PAUSE_SECONDS_MAX)
            life = chance.choice(self._world.agents).life
            if life is None or life.broker is None or not (self._busy is None or self._busy.is_dead):
                continue
            self._busy = life
            self._world.around.loop.create_task(self._act(life.broker), context=life.context)

    def judge(self) -> None:
        """When nothing is on its way any more."""
        self._judge(self._world.around.ledger.truth.state, "the ledger")

    async def _act(self, broker: Broker) -> None:
        chance = self._world.chance
        self._late += self._current
        self._current = []
        try:
            if chance.random() < LOOK_CHANCE:
                await broker.services.ledger.barrier()
                self._judge(broker.state, f"the agent of session {broker.session}")
            else:
                await chance.choice((self._create, self._create, self._delete, self._alter_users))(broker)
        except (LedgerError, OutcomeUnknown):
            pass
        except TopicError as error:
            if error.error_code not in RETRIABLE:
                self._world.around.history.violation(f"a change of ACLs or users was rejected: {error}")
        self._busy = None

    def _changes(self, broker: Broker) -> SecurityChanges:
        clock = self._world.clock
        return SecurityChanges(broker.services.ledger, clock, clock.monotonic_s() + CHANGE_SECONDS_MAX)

    async def _create(self, broker: Broker) -> None:
        acls = list(dict.fromkeys(self._drawn_acl() for _ in range(self._world.chance.choice((1, 3)))))
        self._may_become(broker.session, self._acls, acls, True)
        await self._changes(broker).create_acls(acls)
        self._became(self._acls, acls, True)

    async def _delete(self, broker: Broker) -> None:
        chance = self._world.chance
        acl_filter = AclFilter(
            principal=str(chance.choice(PRINCIPALS)),
            name=chance.choice((None, *NAMES)),
            pattern=chance.choice((PatternType.ANY, PatternType.MATCH)),
        )
        matching = [acl for acl in self._acls if acl_filter.matches(acl)]
        self._may_become(broker.session, self._acls, matching, False)
        deleted = await self._changes(broker).delete_acls(acl_filter)
        if not all(acl_filter.matches(acl) for acl in deleted):
            self._world.around.history.violation(f"{acl_filter} removed {deleted}")
        self._became(self._acls, matching, False)

    async def _alter_users(self, broker: Broker) -> None:
        chance = self._world.chance
        key = (chance.choice(USERS), ScramMechanism.SCRAM_SHA_256)
        row = ScramRow(*key, b"salt", chance.randbytes(4), chance.randbytes(4), 4096)
        is_deletion = chance.random() < 0.3
        value = None if is_deletion else row.credential()
        self._may_become(broker.session, self._users, [key], value)
        await self._changes(broker).alter_scram([key] if is_deletion else [], [] if is_deletion else [row])
        self._became(self._users, [key], value)

    def _drawn_acl(self) -> Acl:
        chance = self._world.chance
        return Acl(
            principal=chance.choice((*PRINCIPALS, EVERY_USER)),
            host=chance.choice((EVERY_HOST, HOST)),
            operation=chance.choice(OPERATIONS),
            permission=chance.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
            resource_type=ResourceType.TOPIC,
            name=chance.choice((EVERY_NAME, *NAMES)),
            pattern=chance.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        )

    def _may_become(
        self, session: SessionId, possible: dict[Key, set[Value]], keys: Iterable[Key], value: Value
    ) -> None:
        for key in keys:
            possible[key].add(value)
            self._current.append((session, key, value))

    def _became(self, possible: dict[Key, set[Value]], keys: Sequence[Key], value: Value) -> None:
        """A change was acknowledged. What sessions that have not ended proposed before may still come after it."""
        ended = self._world.around.ledger.truth.ended
        self._current = []
        self._late = [late for late in self._late if late[0] not in ended]
        for key in keys:
            may_come = {late for _, changed, late in self._late if changed == key}
            possible[key] = {value, *(each for each in possible[key] if each in may_come)}

    def _judge(self, state: ClusterState, where: str) -> None:
        history = self._world.around.history
        for acl, may_be in self._acls.items():
            if (acl in state.acls) not in may_be:
                history.violation(f"{where}: {acl} is there: {acl in state.acls}, and may be {may_be} (S4)")
        for key, credentials in self._users.items():
            if state.scram.get(key) not in credentials:
                history.violation(f"{where}: the credential of {key} is another one than was acknowledged (S4)")
        history.note("administrator", "looks at ACLs", f"{where}: {len(state.acls)}")
        for principal in PRINCIPALS:
            for name in NAMES:
                expected = decided(state.acls, principal, HOST, name)
                rights = state.acl_index.rights_of(
                    [principal], HOST, ResourceType.TOPIC, name, is_allowed_without_acls=False
                )
                if rights & bits(*expected) != bits(*(each for each, is_allowed in expected.items() if is_allowed)):
                    history.violation(f"{where}: rights of {principal} on {name} are {rights:#x}, not {expected}")


def decided(acls: Iterable[Acl], principal: Principal, host: str, name: str) -> dict[Operation, bool]:
    """Whether each operation is allowed, by a look at each ACL of topics: a DENY denies whatever else allows it."""
    fitting = [
        acl
        for acl in acls
        if acl.resource_type == ResourceType.TOPIC
        and acl.principal in (principal, EVERY_USER)
        and acl.host in (EVERY_HOST, host)
        and (name.startswith(acl.name) if acl.pattern == PatternType.PREFIXED else acl.name in (name, EVERY_NAME))
    ]
    result: dict[Operation, bool] = {}
    for operation in (Operation.READ, Operation.WRITE, Operation.ALTER):
        said = {acl.permission for acl in fitting if acl.operation in (operation, Operation.ALL)}
        result[operation] = Permission.ALLOW in said and Permission.DENY not in said
    return result
