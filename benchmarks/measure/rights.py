"""The authorizer with 10,000 ACLs beside none: what it adds to a broker's CPU.

Two new brokers of a peer's kind, alike but for the authorizer, take turns within every round (A B B A), so that the
machine's drift meets both. The client is ANONYMOUS and no super user: three ACLs allow it its topics, groups and the
cluster (by which a Kafka broker asks its own controller, too); all the others name other users and topics.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, cast

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from benchmarks.cases import KIB, Case
from benchmarks.measure import rows
from benchmarks.measure.rows import Bench, Loaded
from benchmarks.peers.brokers import ADMIN_SECONDS_MAX, Peer
from benchmarks.report.statistics import means
from benchmarks.schedule import RIGHTS_PASSES

ACLS_COUNT: Final = 10_000
ACLS_OF_A_REQUEST: Final = 1_000
TEAMS: Final = 1_000
FOREIGN_TOPIC: Final = "team0.topic0"
ANONYMOUS: Final = "User:ANONYMOUS"
WITHOUT, WITH = 0, 1
TURNS: Final = (WITHOUT, WITH, WITH, WITHOUT)
FETCHES: Final = {"fetch.max.bytes": str(64 * KIB), "max.partition.fetch.bytes": str(64 * KIB)}
"""With the client's defaults a topic is read in a few large answers, and a broker judges next to nothing."""

Brokers = tuple[Peer, Peer]
"""One without the authorizer, and one with it."""


class NotEnforced(Exception):
    """The ACLs are not there, or the broker does not judge by them."""


def configs(super_user: str) -> dict[str, str]:
    """Broker configs that turn the authorizer on."""
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    return {"authorizer.class.name": name, "super.users": super_user}


def acls() -> list[AclBinding]:
    """`ACLS_COUNT` ACLs: three of the client, the others of 1,000 teams; of each ten, six are on a topic of the team's
    and four on a prefix."""
    allowed = [
        _acl(ResourceType.TOPIC, rows.TOPIC_PREFIX, ResourcePatternType.PREFIXED, ANONYMOUS, AclOperation.ALL),
        _acl(ResourceType.GROUP, "*", ResourcePatternType.LITERAL, ANONYMOUS, AclOperation.ALL),
        _acl(ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, ANONYMOUS, AclOperation.ALL),
    ]
    return [*allowed, *(_team_acl(number) for number in range(ACLS_COUNT - len(allowed)))]


def _team_acl(number: int) -> AclBinding:
    team, kind = number % TEAMS, number // TEAMS
    if kind < 6:
        name, pattern, operation = f"team{team}.topic{kind}", ResourcePatternType.LITERAL, AclOperation.READ
    else:
        name, pattern, operation = f"team{team}.part{kind}.", ResourcePatternType.PREFIXED, AclOperation.WRITE
    return _acl(ResourceType.TOPIC, name, pattern, f"User:team{team}", operation)


def _acl(
    resource: ResourceType, name: str, pattern: ResourcePatternType, principal: str, operation: AclOperation
) -> AclBinding:
    return AclBinding(resource, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)


@contextmanager
def turns(bench: Bench, peer: Peer, new_peer: Callable[[Path], Peer]) -> Iterator[Brokers]:
    """Two warm brokers, made by `new_peer` for a folder each; the peer itself rests meanwhile.

    Raises `NotEnforced`, and what a start or Kafka's client raises.
    """
    peer.stop()
    with ExitStack() as stack:
        made: list[Peer] = []
        for name in ("without", "with"):
            made.append(new_peer(peer.folder.with_name(f"{peer.name.value}-{name}-acls")))
            stack.callback(made[-1].remove)
        brokers = made[WITHOUT], made[WITH]
        brokers[WITHOUT].start()
        _start_with_acls(brokers[WITH])
        for broker in brokers:
            rows.warm_up(bench, broker)
        yield brokers


def _start_with_acls(broker: Peer) -> None:
    """Start a broker, whose client may do everything until the ACLs are there, and nothing but by them from then on."""
    broker.configs = configs(super_user=ANONYMOUS)
    broker.start()
    wanted = acls()
    for first in range(0, len(wanted), ACLS_OF_A_REQUEST):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for created in admin.create_acls(wanted[first : first + ACLS_OF_A_REQUEST]).values():
            created.result(ADMIN_SECONDS_MAX)
    broker.create_topic(FOREIGN_TOPIC, 1)
    broker.configs = configs(super_user="User:admin")
    broker.restart()
    _require_enforced(broker)


def _require_enforced(broker: Peer) -> None:
    """Raises `NotEnforced` unless all ACLs are there, and the client may not see a topic of others."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    any_text = cast("str", None)  # as the library has it; its types know no filter without a name
    every = AclBindingFilter(
        ResourceType.ANY, any_text, ResourcePatternType.ANY, any_text, any_text, AclOperation.ANY, AclPermissionType.ANY
    )
    found = len(admin.describe_acls(every, request_timeout=ADMIN_SECONDS_MAX).result(ADMIN_SECONDS_MAX))
    if found != ACLS_COUNT:
        raise NotEnforced(f"{found} ACLs of {ACLS_COUNT} are there")
    error = admin.list_topics(FOREIGN_TOPIC, timeout=ADMIN_SECONDS_MAX).topics[FOREIGN_TOPIC].error
    if error is None or error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise NotEnforced(f"the client sees a topic that it has no rights on: {error}")


def produce(bench: Bench, brokers: Brokers, case: Case) -> dict[str, float]:
    return _in_turns(lambda side: rows.produce(bench, brokers[side], case))


@contextmanager
def loaded(bench: Bench, brokers: Brokers, case: Case) -> Iterator[tuple[Loaded, Loaded]]:
    """Topics to consume on both brokers."""
    without, authorized = brokers
    with rows.loaded(bench, without, case) as first, rows.loaded(bench, authorized, case) as second:
        yield first, second


def consume(bench: Bench, brokers: Brokers, case: Case, topics: tuple[Loaded, Loaded]) -> dict[str, float]:
    return _in_turns(lambda side: _consume(bench, brokers[side], case, topics[side]))


def _consume(bench: Bench, broker: Peer, case: Case, topics: Loaded) -> dict[str, float]:
    """Several passes of one client; the first one, over the other topic, warms it."""
    wanted = [(topics.warm_topic, topics.warm_records), *[(topics.topic, topics.records)] * RIGHTS_PASSES]
    _, *passes = bench.tools.consume(broker.bootstrap, wanted, broker.cpu_seconds, configs=FETCHES)
    broker.settle()
    cpu = sum(each.after - each.before for each in passes)
    return {
        "mb_per_s": means([each.figures for each in passes])["mb_per_s"],
        "cpu_s_per_gb": cpu / (RIGHTS_PASSES * topics.records * case.value_bytes / 1e9),
    }


def _in_turns(measure: Callable[[int], dict[str, float]]) -> dict[str, float]:
    measured: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
    for side in TURNS:
        measured[side].append(measure(side))
    return beside(*measured)


def beside(without: Sequence[dict[str, float]], authorized: Sequence[dict[str, float]]) -> dict[str, float]:
    """The means of the authorized turns, with those that compare them with the turns without."""
    plain, found = means(without), means(authorized)
    return found | {
        "cpu_of_unauthorized": found["cpu_s_per_gb"] / plain["cpu_s_per_gb"],
        "unauthorized_cpu_s_per_gb": plain["cpu_s_per_gb"],
        "unauthorized_mb_per_s": plain["mb_per_s"],
    }
