"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups and ListGroups: what each version tells."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from agent.handlers import consumer_group_describe, describe_groups
from agent.request.services import Services
from coordinator.commands.group_values import ClassicGroup
from coordinator.ledger.memory import MemoryLedger
from protocol.api_versions import range_of
from protocol.errors import ErrorCode
from protocol.limits import CLASSIC_MEMBERS_MAX, CLASSIC_PROTOCOLS_MAX, ROWS_PER_TURN
from tests.support.agent.data_paths import another_agent, data_paths, services_of
from tests.support.commands.group_commands import GENERATION, JOINED, generation, member
from tests.support.handlers.classic_groups import CONSUMER_DESCRIBE, CONSUMER_HEARTBEAT, serving
from tests.support.handlers.handler_client import ask, turns_of_others
from tests.support.records.kio_messages import KioEntity

JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST = 11, 12, 13, 14, 15, 16
NONE = ErrorCode.none
ON_GROUP = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: what Kafka 4.3.1 tells (3400)."""
DELAY_S = 3.0


def versions(api_key: int) -> Sequence[int]:
    served = range_of(api_key)
    assert served is not None
    return range(served.version_min, served.version_max + 1)


async def asked_to_join(services: Services, version: int, member_id: str = "", group_id: str = "g") -> KioEntity:
    more = {"rebalance_timeout": timedelta(seconds=60)} if version >= 1 else {}
    return await ask(
        services,
        JOIN,
        version,
        group_id=group_id,
        session_timeout=timedelta(seconds=10),
        member_id=member_id,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"m"}],
        **more,
    )


async def join(services: Services, version: int, member_id: str = "") -> KioEntity:
    """A JoinGroup to the end of its wait."""
    asked = asyncio.ensure_future(asked_to_join(services, version, member_id))
    while not asked.done():
        await services.clock.sleep(DELAY_S / 50)
        services.groups._timers._has_earlier.set()
    return asked.result()


async def joined(services: Services) -> str:
    """The id of the one member of generation 1, to which nothing is assigned yet."""
    return str((await join(services, 3)).member_id)


@pytest.mark.parametrize("version", versions(JOIN))
async def test_every_version_of_a_join(version: int) -> None:
    async with serving() as services:
        told = await join(services, version)
        if version >= 4:
            assert (told.error_code, told.generation_id, told.leader) == (ErrorCode.member_id_required, -1, "")
            assert told.protocol_name == (None if version >= 7 else "")
            told = await join(services, version, told.member_id)
        assert (told.error_code, told.generation_id, told.protocol_name) == (NONE, 1, "range")
        assert told.leader == told.member_id
        assert [(each.member_id, each.metadata) for each in told.members] == [(told.member_id, b"m")]
        if version >= 7:
            assert told.protocol_type == "consumer"
        if version == 0:
            value = services.state.groups["g"].value
            assert isinstance(value, ClassicGroup)
            assert value.members[0].rebalance_timeout_ms == 10_000


@pytest.mark.parametrize("version", versions(SYNC))
async def test_every_version_of_a_sync(version: int) -> None:
    async with serving() as services:
        member_id = await joined(services)
        believed = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        told = await ask(
            services,
            SYNC,
            version,
            group_id="g",
            generation_id=1,
            member_id=member_id,
            assignments=[{"member_id": member_id, "assignment": b"part"}],
            **believed,
        )
        assert (told.error_code, told.assignment) == (NONE, b"part")
        if version >= 5:
            assert (told.protocol_type, told.protocol_name) == ("consumer", "range")


async def test_a_sync_of_version_5_has_to_tell_its_protocol() -> None:
    async with serving() as services:
        told = await ask(services, SYNC, 5, group_id="g", generation_id=1, member_id="a", assignments=[])
        assert told.error_code is ErrorCode.inconsistent_group_protocol


@pytest.mark.parametrize("version", versions(HEARTBEAT))
async def test_every_version_of_a_heartbeat(version: int) -> None:
    async with serving() as services:
        member_id = await joined(services)
        told = await ask(services, HEARTBEAT, version, group_id="g", generation_id=1, member_id=member_id)
        assert told.error_code is NONE
        told = await ask(services, HEARTBEAT, version, group_id="g", generation_id=2, member_id=member_id)
        assert told.error_code is ErrorCode.illegal_generation


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_leave_of_one_member_tells_its_error(version: int) -> None:
    async with serving() as services:
        member_id = await joined(services)
        for error_code in (NONE, ErrorCode.unknown_member_id):
            told = await ask(services, LEAVE, version, group_id="g", member_id=member_id)
            assert told.error_code is error_code
        assert (
            await ask(services, LEAVE, version, group_id="", member_id="a")
        ).error_code is ErrorCode.invalid_group_id


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_a_leave_of_several_members_tells_of_each(version: int) -> None:
    async with serving() as services:
        member_id = await joined(services)
        members: list[object] = [{"member_id": member_id}, {"member_id": "", "group_instance_id": "nobody"}]
        told = await ask(services, LEAVE, version, group_id="g", members=members)
        assert told.error_code is NONE
        assert [(each.member_id, each.group_instance_id, each.error_code) for each in told.members] == [
            (member_id, None, NONE),
            ("", "nobody", ErrorCode.unknown_member_id),
        ]
        told = await ask(services, LEAVE, version, group_id="", members=members)
        assert (told.error_code, told.members) == (ErrorCode.invalid_group_id, ())


async def described(services: Services, version: int, *groups: str) -> KioEntity:
    more = {"include_authorized_operations": False} if version >= 3 else {}
    return await ask(services, DESCRIBE, version, groups=list(groups), **more)


@pytest.mark.parametrize("version", versions(DESCRIBE))
async def test_every_version_of_a_description(version: int) -> None:
    async with serving() as services:
        await services.group_ledger.claim("g")
        await services.group_ledger.write("g", GENERATION)
        await services.group_ledger.claim("next")
        await services.group_ledger.write_consumer("next", JOINED)
        told = await described(services, version, "g", "nobody", "next")
        known, unknown, other = told.groups
        assert (known.error_code, known.group_state, known.protocol_data) == (NONE, "Stable", "range")
        (member,) = known.members
        assert (member.member_id, member.client_host, member.member_assignment) == ("m1", "/127.0.0.1", b"mine")
        assert (unknown.group_state, unknown.members) == ("Dead", ())
        error_code = ErrorCode.group_id_not_found if version >= 6 else NONE
        assert (unknown.error_code, other.error_code) == (error_code, error_code)
        if version >= 6:
            assert unknown.error_message == "Group nobody not found."
            assert other.error_message == "Group next is not a classic group."


@pytest.mark.parametrize(("is_asked", "told_operations"), [(True, ON_GROUP), (False, -(1 << 31))])
async def test_operations_are_told_to_who_asks(is_asked: bool, told_operations: int) -> None:
    async with serving() as services:
        told = await ask(services, DESCRIBE, 3, groups=["g"], include_authorized_operations=is_asked)
        assert told.groups[0].authorized_operations == told_operations


LONG = "m" * 30_000


LARGE: Sequence[tuple[int, int, Mapping[str, object], ErrorCode]] = [
    (
        JOIN,
        3,
        {
            "session_timeout": timedelta(seconds=10),
            "rebalance_timeout": timedelta(seconds=10),
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": bytes(30)}] * (CLASSIC_PROTOCOLS_MAX + 1),
        },
        ErrorCode.inconsistent_group_protocol,
    ),
    (
        SYNC,
        3,
        {
            "generation_id": 1,
            "member_id": "a",
            "assignments": [{"member_id": "a", "assignment": bytes(9)}] * (CLASSIC_MEMBERS_MAX + 1),
        },
        ErrorCode.invalid_request,
    ),
    (LEAVE, 3, {"members": [{"member_id": "a member"}] * (CLASSIC_MEMBERS_MAX + 1)}, ErrorCode.invalid_request),
    (HEARTBEAT, 3, {"group_id": "", "generation_id": 1, "member_id": LONG}, ErrorCode.invalid_group_id),
    (
        CONSUMER_HEARTBEAT,
        1,
        {
            "group_id": "",
            "member_id": LONG,
            "member_epoch": 0,
            "subscribed_topic_names": None,
            "topic_partitions": None,
        },
        ErrorCode.invalid_request,
    ),
]


@pytest.mark.parametrize(("api_key", "version", "values", "error_code"), LARGE)
async def test_a_large_request_is_read_beside_the_loop_and_has_bounds(
    api_key: int, version: int, values: Mapping[str, object], error_code: ErrorCode
) -> None:
    async with serving() as services:
        told, turns_count = await turns_of_others(ask(services, api_key, version, **{"group_id": "g", **values}))
        assert told.error_code is error_code
        assert turns_count > 0
        assert "g" not in services.state.groups


async def test_each_group_is_described_once() -> None:
    async with serving() as services:
        await services.group_ledger.claim("g")
        await services.group_ledger.write("g", GENERATION)
        await services.group_ledger.claim("next")
        await services.group_ledger.write_consumer("next", JOINED)
        told = await described(services, 6, "g", "nobody", "g", "g")
        assert [each.group_id for each in told.groups] == ["g", "nobody"]
        told = await ask(
            services, CONSUMER_DESCRIBE, 1, group_ids=["next", "nobody", "next"], include_authorized_operations=False
        )
        assert [each.group_id for each in told.groups] == ["next", "nobody"]
        assert len(told.groups[0].members) == len(JOINED.members)


@pytest.mark.parametrize("is_held", [True, False])
async def test_a_large_group_is_described_in_turns(*, is_held: bool) -> None:
    async with serving() as services:
        turns_counts = []
        for group_id, count in (("small", 1), ("large", 4 * ROWS_PER_TURN)):
            group = generation(1, *(member(f"m{number:04}") for number in range(count)))
            await services.group_ledger.claim(group_id)
            await services.group_ledger.write(group_id, group)
            if is_held:
                assert await services.groups.heartbeat(group_id, "m0000", None, 1) is NONE
            told, turns_count = await turns_of_others(described(services, 6, group_id))
            assert [each.member_id for each in told.groups[0].members] == [each.member_id for each in group.members]
            turns_counts.append(turns_count)
        assert turns_counts[1] >= turns_counts[0] + 4


async def test_groups_beyond_what_an_answer_holds_are_to_be_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (describe_groups, consumer_group_describe):
        monkeypatch.setattr(module, "GROUP_MEMBERS_LISTED_MAX", 1)
    async with serving() as services:
        for group_id in ("g", "h"):
            await services.group_ledger.claim(group_id)
            await services.group_ledger.write(group_id, GENERATION)
            await services.group_ledger.claim(f"next {group_id}")
            await services.group_ledger.write_consumer(f"next {group_id}", JOINED)
        told = await described(services, 6, "g", "h")
        assert [each.error_code for each in told.groups] == [NONE, ErrorCode.coordinator_load_in_progress]
        told = await ask(
            services, CONSUMER_DESCRIBE, 1, group_ids=["next g", "next h"], include_authorized_operations=False
        )
        assert [each.error_code for each in told.groups] == [NONE, ErrorCode.coordinator_load_in_progress]


async def listed(services: Services, version: int, **filters: object) -> list[tuple[str, ...]]:
    told = await ask(services, LIST, version, **filters)
    assert told.error_code is NONE
    names = ("group_id", "protocol_type", "group_state", "group_type")
    return sorted(tuple(getattr(each, name) for name in names if hasattr(each, name)) for each in told.groups)


async def test_groups_are_listed_by_state_and_type() -> None:
    async with serving() as services:
        ledger = services.group_ledger
        await ledger.claim("g")
        await ledger.write("g", GENERATION)
        await ledger.claim("next")
        await ledger.write_consumer("next", JOINED)
        await ledger.claim("claimed alone")
        waiting = asyncio.ensure_future(asked_to_join(services, 3, group_id="joining"))
        while not services.groups.unwritten():
            await services.clock.sleep(0)
        classic = ("g", "consumer", "Stable", "classic")
        consumer = ("next", "consumer", "Assigning", "consumer")
        joining = ("joining", "consumer", "PreparingRebalance", "classic")
        assert await listed(services, 5) == [classic, joining, consumer]
        assert await listed(services, 4) == [classic[:3], joining[:3], consumer[:3]]
        assert await listed(services, 0) == [classic[:2], joining[:2], consumer[:2]]
        assert await listed(services, 5, states_filter=["stable", " PREPARINGREBALANCE "]) == [classic, joining]
        assert await listed(services, 5, types_filter=["Consumer"]) == [consumer]
        assert await listed(services, 5, types_filter=["classic"], states_filter=["Stable"]) == [classic]
        assert await listed(services, 5, types_filter=["share"]) == []
        waiting.cancel()


async def test_another_agent_lists_and_describes_none_of_them() -> None:
    async with data_paths() as paths, another_agent(paths) as other, asyncio.TaskGroup() as tasks:
        one, two = (services_of(each, each.parts.clock, tasks) for each in (paths, other))
        for services in (one, two):
            await services.ledger.barrier()
        owner, stranger = (one, two) if one.group_ledger.coordinator("g") == one.ledger.session else (two, one)
        await owner.group_ledger.claim("g")
        await owner.group_ledger.write("g", GENERATION)
        assert [row[0] for row in await listed(owner, 5)] == ["g"]
        assert await listed(stranger, 5) == []
        (told,) = (await described(stranger, 6, "g")).groups
        assert (told.error_code, told.group_state, told.members) == (ErrorCode.not_coordinator, "", ())


async def test_s4_without_the_ledger_nothing_is_said_of_groups() -> None:
    async with serving() as services:
        ledger = services.ledger.backend
        assert isinstance(ledger, MemoryLedger)
        ledger.is_reachable = False
        assert (await ask(services, LIST, 5)).error_code is ErrorCode.coordinator_not_available
        (told,) = (await described(services, 6, "g")).groups
        assert (told.error_code, told.group_state) == (ErrorCode.coordinator_not_available, "")
        told = await ask(services, HEARTBEAT, 4, group_id="g", generation_id=1, member_id="a")
        assert told.error_code is ErrorCode.coordinator_not_available
