"""ACLs on one core: entries applied, first checks of a name, filters, and snapshots, with many ACLs there.

Run: `.venv/bin/python -m benchmarks.micro.rights [--acls 50000]`. One JSON line a row on stdout.
Goals (shared CPU time counts, the least of the rounds): an ACL created in 50 us with 50,000 there; the first check of a
name in 10 us with 10,000 ACLs, also with all of them on that name; a remembered check in 150 ns. The last rows are what
one request of a topic costs with the authorizer off and on: a produce or fetch request takes 200 us and more.
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable
from functools import partial

from agent.config.authorizer_settings import AuthorizerSettings
from agent.security.authorizer import Authorizer, StateAcls
from agent.security.rights import KnownBits
from benchmarks.micro.apply import Applier
from coordinator.commands.security import CreateAcls, DeleteAcls
from coordinator.security.acl_index import AclIndex
from coordinator.security.acls import EVERY_HOST, Acl, AclFilter
from coordinator.snapshot import Frozen, decode_snapshot, encode_snapshot
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import Principal
from tests.support.agent.ledger_parts import running_parts

TEAMS = 1_000
CHECKS = 20_000
ROUNDS = 5
TOPIC = ResourceType.TOPIC
READ_BIT = 1 << Operation.READ
ME = Principal("User", "u7")


def acl(name: str, user: int, operation: Operation, pattern: PatternType = PatternType.LITERAL) -> Acl:
    """An ACL that allows a user something on a topic."""
    return Acl(
        principal=Principal("User", f"u{user}"),
        host=EVERY_HOST,
        operation=operation,
        permission=Permission.ALLOW,
        resource_type=TOPIC,
        name=name,
        pattern=pattern,
    )


def team_acls(count: int) -> list[Acl]:
    """ACLs of 1,000 teams: six of ten on a topic of theirs, four on a prefix of theirs."""
    acls: list[Acl] = []
    for number in range(count):
        user, kind = number % TEAMS, number // TEAMS
        if kind % 10 < 6:
            acls.append(acl(f"team{user}.topic{kind}", user, Operation.READ))
        else:
            acls.append(acl(f"team{user}.part{kind}.", user, Operation.WRITE, PatternType.PREFIXED))
    return acls


def least_us(work: Callable[[], object], count: int) -> float:
    """The processor time of one of `count` pieces of `work`, in microseconds: the least of the rounds."""
    taken: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return round(min(taken) / count * 1e6, 3)


def show(what: str, value: float, unit: str) -> None:
    print(json.dumps({"what": what, "value": value, "unit": unit}), flush=True)


def checks_us(index: AclIndex, names: list[str]) -> float:
    """The time of a check of all operations on a name that is not remembered."""

    def check() -> None:
        for name in names:
            index.rights_of([ME], "10.0.0.1", TOPIC, name, is_allowed_without_acls=False)

    return least_us(check, len(names))


async def show_requests() -> None:
    """Print what the rights of a request cost that names one topic, remembered, with 10,000 ACLs and without any."""
    topic, peer = "team7.topic3", "10.0.0.1"
    async with running_parts() as parts:
        for each in team_acls(10_000):
            parts.ledger.state.acls[each] = None
            parts.ledger.state.acl_index.add(each)
        for is_enabled in (False, True):
            authorizer = Authorizer(
                AuthorizerSettings(is_enabled=is_enabled),
                acls=StateAcls(parts.ledger),
                ledger=parts.ledger,
                clock=parts.clock,
                metrics=parts.metrics,
            )
            rights = authorizer.rights(ME, (), peer)
            known = rights.topics
            checks: tuple[tuple[str, Callable[[], object]], ...] = (
                ("a remembered check by dict", partial(_look_up, known, topic)),
                ("a remembered check by method", partial(rights.may, Operation.READ, TOPIC, topic)),
            )
            state = "on, 10,000 ACLs" if is_enabled else "off"
            for what, check in checks:
                show(f"{what}, authorizer {state}", 1_000 * least_us(partial(_repeat, check), CHECKS), "ns")

            async def ask(authorizer: Authorizer = authorizer) -> None:
                for _ in range(CHECKS):
                    assert not await authorizer.rights(ME, (), peer).denied_names(Operation.READ, TOPIC, (topic,))

            taken: list[float] = []
            for _ in range(ROUNDS):
                began = time.process_time()
                await ask()
                taken.append(time.process_time() - began)
            show(f"rights of a request of one topic, authorizer {state}", min(taken) / CHECKS * 1e6, "us")


def _look_up(known: KnownBits, topic: str) -> int:
    return known[topic] & READ_BIT


def _repeat(check: Callable[[], object]) -> None:
    for _ in range(CHECKS):
        check()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--acls", type=int, default=50_000)
    count = parser.parse_args().acls
    applier = Applier()
    acls = team_acls(count - 2_000)
    for first in range(0, len(acls), 1_000):
        applier.apply(CreateAcls.of(acls[first : first + 1_000]))
    last = [acl(f"more{number}", number, Operation.READ) for number in range(1_000)]
    command, undo = CreateAcls.of(last), DeleteAcls.of(AclFilter(operation=Operation.READ, name="more0"))

    taken: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time()
        applier.apply(command)
        taken.append(time.process_time() - began)
        for each in last:
            applier.apply(DeleteAcls.of(AclFilter(name=each.name, pattern=PatternType.LITERAL)))
    show(f"create an ACL, {len(acls)} there, 1,000 an entry", round(min(taken) / len(last) * 1e6, 3), "us")
    show("apply a deletion by a filter with a name that is not there", least_us(lambda: applier.apply(undo), 1), "us")
    every = AclFilter(principal="User:nobody", pattern=PatternType.MATCH, name="x", host=EVERY_HOST)
    show(
        "a filter that searches one principal", least_us(lambda: list(applier.state.acl_index.matching(every)), 1), "us"
    )
    by_host = AclFilter(host="10.9.9.9")
    show("a filter that searches all", least_us(lambda: list(applier.state.acl_index.matching(by_host)), 1), "us")

    drawn = random.Random(1)
    names = [f"team{drawn.randrange(TEAMS)}.topic{drawn.randrange(20)}" for _ in range(CHECKS)]
    show("first check of a name, 10,000 ACLs", checks_us(AclIndex.of(team_acls(10_000)), names), "us")
    hot = AclIndex.of(acl("hot", number, Operation.READ) for number in range(10_000))
    show("first check of the name that 10,000 ACLs are on", checks_us(hot, ["hot"] * CHECKS), "us")
    show(f"first check of a name, {len(acls)} ACLs", checks_us(applier.state.acl_index, names), "us")
    state = applier.state
    show("freeze the state for a snapshot, on the loop", least_us(lambda: Frozen(state), 1_000), "ms")
    data = encode_snapshot(state)
    show("bytes of the snapshot", len(data), "bytes")
    show("load the snapshot", least_us(lambda: decode_snapshot(data), 1_000), "ms")
    asyncio.run(show_requests())


if __name__ == "__main__":
    main()
