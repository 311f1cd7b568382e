"""What a seed draws before anything runs: the cluster, its settings, the workload and the faults that may happen.

Rule: each seed enables only some kinds of fault and exaggerates some settings, because a world in which everything
happens at once hides what needs quiet to be seen ("swarm testing", Groce and others, ISSTA 2012).

Above 500 lines, for all that a seed draws is here, in the order in which it is drawn.
"""

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tests.simulation.faults.fault_names import FIRST_FAULTS, HARD_FAULTS, FaultName
from txn.transaction import EPOCH_EXHAUSTED

TRIMMED_SHARE: Final = 0.14
LOST_SHARE: Final = 0.07
COMMON_CLOCK_SHARE: Final = 0.2
"""Of the worlds whose clocks are set at all."""
GROWTH_SHARE: Final = 0.3
"""Of the worlds without groups in which topics come and go."""
GROUPS_SHARE: Final = 0.3
"""Of the worlds whose ledger is not lost."""
TRANSACTIONS_SHARE: Final = 0.3
"""Of the worlds without groups whose ledger is not lost."""
LOST_TRANSACTIONS_SHARE: Final = 0.5
"""Of the worlds whose ledger is lost."""
LATER_SHARE: Final = 0.12
"""Of the worlds in which nothing is special, which have transactions whose ids expire, or whose version changes."""
EXPIRATIONS_MS: Final = (3_000, 8_000)
PRODUCER_EXPIRATION_MS: Final = 20_000
LATER_SALT: Final = 83
"""Of the stream from which is drawn what came to the worlds later."""
CLOCKLESS_SALT: Final = 97
CLOCKLESS_SHARE: Final = 0.3
"""Of the worlds whose clocks are set at all."""
HARD_SALT: Final = 449
"""Of the stream from which is drawn what else a store or a ledger answers, and whether tables are changed by people."""
HARD_SHARE: Final = 0.12
"""Of the worlds whose ledger is not lost."""
HARD_FAULT_SHARE: Final = 0.3
EDITED_SHARE: Final = 0.5
"""Of these worlds."""
OWN_NAMES_SHARE: Final = 0.15
"""Of all worlds."""
OWN_NAMES_SALT: Final = 112
"""Of the stream from which is drawn whether agents are sure of their names."""
NAMESAKE_SHARE: Final = 0.6
"""Of these worlds, unless their ledger is lost."""
ONE_ADDRESS_SHARE: Final = 0.3
"""Of the worlds with groups whose ledger is not lost."""
ONE_ADDRESS_SALT: Final = 398162
"""Of the stream from which is drawn whether one address leads to all agents. It changes no seed of `caught.txt`."""
AGENTS_CUT_SHARE: Final = 0.5
"""Of these worlds."""
OLDER_SHARE: Final = 0.15
"""Of the worlds whose ledger is not lost."""
SECURITY_SHARE: Final = 0.2
"""Of the worlds with neither groups nor transactions whose ledger is not lost."""
SECURITY_SALT: Final = 104
"""Of the stream from which is drawn whether ACLs and users are changed."""
OLDER_SALT: Final = 89
"""Of the stream from which is drawn whether agents are upgraded."""
MEMBERS_SHARE: Final = 0.25
"""Of the worlds with neither groups, transactions nor probers whose ledger is not lost."""
MONITORED_SHARE: Final = 0.5
"""Of the worlds with groups in which an agent may read the ledger late."""


class LedgerLoss(StrEnum):
    """What becomes of the ledger in the middle of a run, before `penstock recover`."""

    WIPED = "wiped"
    RESTORED = "restored"
    """As it was some seconds before."""
    NONE_BUT_RECOVERED = "none"
    """It is whole, and recovered all the same, while somebody starts agents."""


class GroupKind(StrEnum):
    """What members of a group speak."""

    EAGER = "eager"
    """JoinGroup; everybody gives up everything in a rebalance."""
    COOPERATIVE = "cooperative"
    """JoinGroup; only what moves is given up (KIP-429)."""
    CONSUMER = "consumer"
    """ConsumerGroupHeartbeat; the coordinator assigns (KIP-848)."""
    MIXED = "mixed"
    """One or the other, from life to life: the group migrates back and forth."""


DRAWN_KINDS: Final = (GroupKind.EAGER, GroupKind.COOPERATIVE, GroupKind.CONSUMER)
MIXED_SHARE: Final = 0.4
"""Of the groups of the consumer protocol."""


class ProducerFate(StrEnum):
    """What becomes of a transactional producer besides what its agents do."""

    CRASH = "crash"
    """It is gone without a word, and starts again."""
    HIJACK = "hijack"
    """Another instance begins under its transactional id, while it goes on."""
    PAUSE = "pause"
    """Shorter or longer than its transaction's time-out."""
    TERMINATE = "terminate"
    """A tool aborts what it has open (safety rule S15)."""


class Fate(StrEnum):
    """What a member's program may do besides reading."""

    CRASH = "crash"
    """It is gone without a word, and starts again."""
    LEAVE = "leave"
    """It says that it goes, and starts again; static members of classic groups say nothing."""
    PAUSE = "pause"
    """Shorter or longer than its session: others take over, and it wakes up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """One transactional id, and how restless its producers are."""

    version: int
    """1, or 2 (KIP-890)."""
    is_flow: bool
    """It consumes what others produce, and commits the offsets of its group in its transactions."""
    timeout_ms: int
    pause_s: float
    abort_chance: float
    late_chance: float
    """How often a request arrives late, when its client has given up on the connection and gone on by another."""
    rests_chance: float
    """How often it waits between the writes of a transaction."""
    fates: tuple[ProducerFate, ...]
    fate_s: float
    """Between two of them, on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """One group, and how restless its members are."""

    kind: GroupKind
    members: int
    static_members: int
    """Of them (KIP-345)."""
    session_ms: int
    """The same for all groups of the consumer protocol: the agents say so."""
    rebalance_ms: int
    heartbeat_s: float
    commit_chance: float
    """After each fetch."""
    fates: tuple[Fate, ...]
    fate_s: float
    """Between two of them of a member, on average."""
    producer: ProducerPlan | None = None
    """With what each member produces what it makes of its input, and commits its offsets; None where it commits them by
    itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPlan:
    """The transactions of a world."""

    producers: tuple[ProducerPlan, ...]
    placements: tuple[bool, ...]
    """For each of the topics that they write to, whether it is placed at commit."""
    readers: int
    is_shared: bool
    """Whether somebody writes to the same partitions without transactions."""
    epoch_last: int = EPOCH_EXHAUSTED
    """The last epoch that a producer id is given to clients with."""
    expiration_ms: int = 0
    """When transactional ids that nobody uses are forgotten; 0 for never."""
    producer_expiration_ms: int = 0
    """When partitions forget idle producers; 0 for never. Longer than any batch is sent again, which would count as new
    then."""
    has_version_changes: bool = False
    """Whether transaction.version is lowered and raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is drawn once. Times in seconds of the world."""

    agents: int
    faults: tuple[FaultName, ...]
    fault_interval_s: float
    """Between two faults, on average."""
    seconds: float
    """How long faults happen."""
    choice_max: int
    """Among how many ready callbacks the next is drawn."""
    delay_s: float
    """Of one message, on average."""
    store_delay_s: float
    is_store_cheap: bool
    flush_interval_ms: int
    archive_interval_s: int
    gc_min_age_s: int
    snapshot_entries: int
    read_cache_bytes: int
    partitions: int
    producers: int
    plain_producers: int
    consumers: int
    producer_pause_s: float
    window: int
    """Requests of an idempotent producer in flight."""
    has_topic_churn: bool
    move_chance: float
    """How often a client goes to another agent although nothing is wrong."""
    probers: int
    has_operator: bool
    retention_ms: int = -1
    """Of all topics that are read to their ends; -1 indefinitely. So is the next one."""
    retention_bytes: int = -1
    is_table_kept: bool = False
    """Whether the topics' tables keep what retention drops."""
    deleters: int = 0
    """Who call DeleteRecords."""
    ledger_loss: LedgerLoss | None = None
    has_common_clock: bool = False
    """Whether all wall clocks are set at once now and then, as where they follow one server."""
    has_store_clock: bool = True
    """Whether the bucket tells the time; without that clocks are set by hours and days, and for longer."""
    has_growth: bool = False
    """Whether the topics that come and go get more partitions while they are there."""
    groups: tuple[GroupPlan, ...] = ()
    first_rebalance_delay_ms: int = 0
    has_lag_monitors: bool = False
    """Whether others than members ask how far the groups have come."""
    transactions: TransactionPlan | None = None
    is_taking_over_name: bool = False
    """Whether an agent that starts ends the session that holds its name (`--take-over-name`)."""
    has_older_agents: bool = False
    has_authorizer: bool = False
    """Whether agents authorise their clients, who may do everything that no ACL is about."""
    """Whether all agents begin as an older program, and are upgraded one after another (safety rule S3)."""
    has_one_address: bool = False
    """Whether clients reach all agents by one address, which leads to any of them."""
    has_security_changes: bool = False
    """Whether somebody changes ACLs and users."""
    is_embedded: bool = False
    """Whether its one agent keeps ledger and intake in a journal (`tests.simulation.cluster.embedded`)."""
    table_editors: int = 0
    """People who change properties and tags of tables, and have tables begun again from their files."""
    serves_small_chunks: bool = False
    """Whether agents serve also small chunks from memory behind an archive pass. All chunks of a world are small."""

    @property
    def is_store_tried(self) -> bool:
        """Whether agents try at their start what the store allows and promises, as against every shared bucket. Only
        where it may matter, so that all other worlds stay as they are."""
        return not {FaultName.STORE_DENIED, FaultName.UNCONDITIONAL}.isdisjoint(self.faults)

    @property
    def is_log_trimmed(self) -> bool:
        """Whether records may go, by retention or because somebody asks for it."""
        return self.retention_ms >= 0 or self.retention_bytes >= 0 or self.deleters > 0


def group_ids(plan: Plan) -> list[str]:
    """The names of a world's groups."""
    return [f"group-{number}" for number in range(len(plan.groups))]


def draw(chance: random.Random) -> Plan:
    """The plan of a seed."""
    faults = tuple(name for name in FIRST_FAULTS if chance.random() < 0.45)
    plan = Plan(
        agents=chance.choice((2, 3, 3)),
        faults=faults,
        fault_interval_s=chance.choice((1.0, 2.0, 4.0)),
        seconds=chance.choice((15.0, 25.0, 40.0)),
        choice_max=chance.choice((1, 2, 1000)),
        delay_s=chance.choice((0.0005, 0.002, 0.02)),
        store_delay_s=chance.choice((0.002, 0.02, 0.1)),
        is_store_cheap=chance.random() < 0.4,
        flush_interval_ms=chance.choice((5, 50, 250)),
        archive_interval_s=chance.choice((2, 5, 15, 1000)),
        gc_min_age_s=chance.choice((5, 20)),
        snapshot_entries=chance.choice((15, 50, 100_000)),
        read_cache_bytes=chance.choice((0, 2_000, 1_000_000)),
        partitions=chance.choice((1, 2)),
        producers=chance.choice((1, 2)),
        plain_producers=chance.choice((0, 1)),
        consumers=chance.choice((1, 2)),
        producer_pause_s=chance.choice((0.3, 0.8, 2.0)),
        window=chance.choice((1, 3, 5)),
        has_topic_churn=chance.random() < 0.4,
        move_chance=chance.choice((0.0, 0.05, 0.3)),
        probers=chance.choice((0, 0, 0, 0, 5)),
        has_operator=chance.random() < 0.3,
    )
    plan = _with_transactions(_with_growth(_with_groups(_special(plan, chance), chance), chance), chance)
    plan = _with_later(_with_transacting_members(plan, chance), chance)
    plan = _with_hard_faults(_with_older_agents(_without_store_clock(plan, chance), chance), chance)
    return _with_one_address(_with_own_names(_with_security_changes(plan, chance), chance), chance)


def _copy(chance: random.Random) -> random.Random:
    """Another stream that goes on as `chance` does, so that worlds in which nothing is special stay as they are."""
    copied = random.Random()
    copied.setstate(chance.getstate())
    return copied


def _own(chance: random.Random, salt: int) -> random.Random:
    """A stream of a purpose's own."""
    return random.Random(_copy(chance).getrandbits(64) + salt)


def _with_own_names(plan: Plan, chance: random.Random) -> Plan:
    """Some worlds have agents that are sure of their names, rightly or not, drawn from a stream of its own."""
    own = _own(chance, OWN_NAMES_SALT)
    if own.random() >= OWN_NAMES_SHARE:
        return plan
    has_namesakes = own.random() < NAMESAKE_SHARE and plan.ledger_loss is None
    faults = (*plan.faults, FaultName.NAMESAKE) if has_namesakes else plan.faults
    return replace(plan, is_taking_over_name=True, faults=faults)


def _with_one_address(plan: Plan, chance: random.Random) -> Plan:
    """In some worlds with groups one address leads to all agents, drawn from a stream of its own."""
    own = _own(chance, ONE_ADDRESS_SALT)
    has_flow = plan.transactions is not None and any(each.is_flow for each in plan.transactions.producers)
    if plan.ledger_loss is not None or not (plan.groups or has_flow) or own.random() >= ONE_ADDRESS_SHARE:
        return plan
    faults = (*plan.faults, FaultName.AGENTS_CUT) if own.random() < AGENTS_CUT_SHARE else plan.faults
    return replace(plan, has_one_address=True, faults=faults)


def _with_security_changes(plan: Plan, chance: random.Random) -> Plan:
    """Some worlds have an administrator of ACLs and users, drawn from a stream of its own."""
    is_plain = plan.ledger_loss is None and plan.transactions is None and not plan.groups
    is_drawn = _own(chance, SECURITY_SALT).random() < SECURITY_SHARE
    return replace(plan, has_security_changes=is_drawn and is_plain)


def _with_hard_faults(plan: Plan, chance: random.Random) -> Plan:
    """Some worlds have stores and ledgers that reject requests, or tables that people change."""
    own = _own(chance, HARD_SALT)
    if plan.ledger_loss is not None or own.random() >= HARD_SHARE:
        return plan
    first = own.choice(HARD_FAULTS)
    more = tuple(name for name in HARD_FAULTS if own.random() < HARD_FAULT_SHARE and name is not first)
    editors = 1 if own.random() < EDITED_SHARE else 0
    return replace(plan, faults=(*plan.faults, first, *more), table_editors=editors)


def _without_store_clock(plan: Plan, chance: random.Random) -> Plan:
    """Some worlds whose clocks are set have a bucket that tells no time, drawn from a stream of its own."""
    own = _own(chance, CLOCKLESS_SALT)
    is_drawn = own.random() < CLOCKLESS_SHARE
    return replace(plan, has_store_clock=not (is_drawn and FaultName.CLOCK in plan.faults))


def _with_older_agents(plan: Plan, chance: random.Random) -> Plan:
    """Some worlds are upgraded, drawn from a stream of its own, so that all others stay as they are."""
    own = _own(chance, OLDER_SALT)
    return replace(plan, has_older_agents=plan.ledger_loss is None and own.random() < OLDER_SHARE)


def _with_later(plan: Plan, chance: random.Random) -> Plan:
    """What else some worlds have, drawn from a stream of its own, so that all others stay as they are."""
    own = _own(chance, LATER_SALT)
    if plan.ledger_loss is not None and own.random() < LOST_TRANSACTIONS_SHARE:
        return _transacting(plan, own)
    is_special = plan.ledger_loss is not None or plan.groups or plan.transactions is not None or plan.probers
    if is_special or own.random() >= LATER_SHARE:
        return plan
    plan = _transacting(plan, own)
    expiration_ms, has_version_changes = own.choice(
        ((0, True), (own.choice(EXPIRATIONS_MS), False), (own.choice(EXPIRATIONS_MS), True))
    )
    assert plan.transactions is not None, "it was just given some"
    transactions = replace(plan.transactions, expiration_ms=expiration_ms, has_version_changes=has_version_changes)
    if not expiration_ms:
        return replace(plan, transactions=transactions)
    # An idempotent producer sends its batches again for as long as it takes.
    transactions = replace(transactions, producer_expiration_ms=PRODUCER_EXPIRATION_MS)
    return replace(plan, transactions=transactions, producers=0, plain_producers=1)


def _with_transacting_members(plan: Plan, chance: random.Random) -> Plan:
    """Some worlds have groups whose members commit in transactions, drawn as what is special is: from a copy of
    `chance`."""
    copied = _copy(chance)
    share = [copied.random() for _ in range(6)][-1]
    is_special = plan.ledger_loss is not None or plan.groups or plan.transactions is not None or plan.probers
    if is_special or share >= MEMBERS_SHARE:
        return plan
    group = _draw_group(copied)
    if group.kind is GroupKind.CONSUMER and group.members > 1 and copied.random() < MIXED_SHARE:
        group = replace(group, kind=GroupKind.MIXED)
    producer = replace(
        _draw_producer(copied),
        is_flow=True,
        late_chance=copied.choice((0.0, 0.03, 0.1)),
        rests_chance=copied.choice((0.0, 0.3)),
        fates=(),
    )
    transactions = TransactionPlan(
        producers=(), placements=copied.choice(((False,), (True,), (False, True))), readers=1, is_shared=False
    )
    return replace(
        plan,
        groups=(replace(group, producer=producer),),
        first_rebalance_delay_ms=copied.choice((0, 500)),
        has_lag_monitors=copied.random() < MONITORED_SHARE,
        transactions=transactions,
        producers=1,
        consumers=1,
        has_topic_churn=False,
        has_growth=False,
        move_chance=min(plan.move_chance, 0.05),
    )


def _with_transactions(plan: Plan, chance: random.Random) -> Plan:
    """Some worlds have transactions, drawn as what is special is: from a copy of `chance`."""
    copied = _copy(chance)
    share = [copied.random() for _ in range(5)][-1]
    if plan.ledger_loss is not None or plan.groups or share >= TRANSACTIONS_SHARE:
        return plan
    return _transacting(plan, copied)


def _transacting(plan: Plan, chance: random.Random) -> Plan:
    placements = chance.choice(((False,), (True,), (False, True)))
    late_chance, rests_chance = chance.choice((0.0, 0.03, 0.1)), chance.choice((0.0, 0.3))
    producers = tuple(
        replace(_draw_producer(chance), late_chance=late_chance, rests_chance=rests_chance)
        for _ in range(chance.choice((1, 2, 3)))
    )
    transactions = TransactionPlan(
        producers=producers,
        placements=placements,
        readers=chance.choice((1, 2)),
        is_shared=chance.random() < 0.3,
        epoch_last=chance.choice((EPOCH_EXHAUSTED, EPOCH_EXHAUSTED, 4)),
    )
    return replace(plan, transactions=transactions, producers=1, consumers=1, probers=0, has_topic_churn=False)


def _draw_producer(chance: random.Random) -> ProducerPlan:
    return ProducerPlan(
        version=chance.choice((1, 2)),
        is_flow=chance.random() < 0.4,
        timeout_ms=chance.choice((1_500, 8_000, 60_000)),
        pause_s=chance.choice((0.1, 0.5, 1.5)),
        abort_chance=chance.choice((0.0, 0.2, 0.5)),
        late_chance=0.0,
        rests_chance=0.0,
        fates=tuple(fate for fate in ProducerFate if chance.random() < 0.4),
        fate_s=chance.choice((3.0, 8.0)),
    )


def _with_growth(plan: Plan, chance: random.Random) -> Plan:
    """In some worlds topics get more partitions, drawn as what is special is: from a copy of `chance`."""
    copied = _copy(chance)
    share = [copied.random() for _ in range(4)][-1]
    return replace(plan, has_growth=plan.has_topic_churn and not plan.groups and share < GROWTH_SHARE)


def _with_groups(plan: Plan, chance: random.Random) -> Plan:
    """Some worlds have groups, drawn as what is special is: from a copy of `chance`."""
    copied = _copy(chance)
    copied.random()
    if plan.ledger_loss is not None or copied.random() >= GROUPS_SHARE:
        return plan
    groups = [_draw_group(copied) for _ in range(copied.choice((1, 1, 2)))]
    first_rebalance_delay_ms = copied.choice((0, 500))
    for row, group in enumerate(groups):
        if group.kind is GroupKind.CONSUMER:
            kind = GroupKind.MIXED if group.members > 1 and copied.random() < MIXED_SHARE else GroupKind.CONSUMER
            groups[row] = replace(group, kind=kind, session_ms=groups[0].session_ms)
    return replace(
        plan,
        groups=tuple(groups),
        first_rebalance_delay_ms=first_rebalance_delay_ms,
        has_lag_monitors=FaultName.LEDGER_LAG in plan.faults and copied.random() < MONITORED_SHARE,
        consumers=1,
        move_chance=min(plan.move_chance, 0.05),
    )


def _draw_group(chance: random.Random) -> GroupPlan:
    members = chance.choice((1, 2, 2, 3))
    return GroupPlan(
        kind=chance.choice(DRAWN_KINDS),
        members=members,
        static_members=chance.choice((0, 0, 1, members)),
        session_ms=chance.choice((2_000, 6_000, 15_000)),
        rebalance_ms=chance.choice((1_000, 3_000, 6_000)),
        heartbeat_s=chance.choice((0.3, 0.6)),
        commit_chance=chance.choice((0.1, 0.5, 1.0)),
        fates=tuple(fate for fate in Fate if chance.random() < 0.5),
        fate_s=chance.choice((4.0, 10.0)),
    )


def _special(plan: Plan, chance: random.Random) -> Plan:
    """Some worlds have more in them: records that go, or a ledger that is lost.

    From a copy of `chance`, so that all others stay as they are.
    """
    copied = _copy(chance)
    kind = copied.random()
    if kind < TRIMMED_SHARE:
        return replace(
            plan,
            retention_ms=copied.choice((-1, 3_000, 10_000)),
            retention_bytes=copied.choice((-1, 600, 2_000)),
            is_table_kept=copied.random() < 0.3,
            deleters=copied.choice((1, 1, 2)),
        )
    if kind < TRIMMED_SHARE + LOST_SHARE:
        return replace(plan, ledger_loss=copied.choice(tuple(LedgerLoss)), has_topic_churn=False)
    has_common_clock = FaultName.CLOCK in plan.faults and copied.random() < COMMON_CLOCK_SHARE
    return replace(plan, has_common_clock=has_common_clock)
