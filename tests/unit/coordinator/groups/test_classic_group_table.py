"""Every event in every state of a classic group: what it leads to, and what whoever asked is told.

Two members, "a" that leads and "b"; in PreparingRebalance "a" has joined and "b" has not; in CompletingRebalance "b"
has asked for its assignment. The answers are those of GroupMetadataManager's branches by state (Kafka 4.3).
"""

from collections.abc import Callable, Mapping

import pytest

from coordinator.groups.classic_messages import Ticket
from coordinator.groups.classic_states import ClassicGroupState
from protocol.errors import ErrorCode
from tests.support.groups.classic_group import REBALANCE_MS, Room, completing, stable

OTHER = (("range", b"other topics"),)
WAITS = None
EMPTY, PREPARING, COMPLETING, STABLE = ClassicGroupState
OK = ErrorCode.none
UNKNOWN = ErrorCode.unknown_member_id
REJOIN = ErrorCode.rebalance_in_progress
ILLEGAL = ErrorCode.illegal_generation
KNOWN_ID = ErrorCode.member_id_required

Told = ErrorCode | None
Event = Callable[[Room], Told]


def empty_room() -> Room:
    room = stable("a", "b")
    room.leave("a", "b")
    return room


def preparing_room() -> Room:
    room = stable("a", "b")
    room.join("a")
    return room


def completing_room() -> Room:
    room = completing("a", "b")
    room.sync("b")
    return room


ROOMS: Mapping[ClassicGroupState, Callable[[], Room]] = {
    EMPTY: empty_room,
    PREPARING: preparing_room,
    COMPLETING: completing_room,
    STABLE: lambda: stable("a", "b"),
}


def asks(ask: Callable[[Room], Ticket]) -> Event:
    return lambda room: room.error(ask(room))


def wait_for_all(room: Room, *silent: str) -> Told:
    """A rebalance time-out, in which all but the silent ones send heartbeats."""
    for _ in range(REBALANCE_MS // 5_000):
        room.wait(5)
        for member in {"a", "b"} - {*silent}:
            room.heartbeat(member)
    return OK


def want_rebalance(room: Room) -> Told:
    """As where the group was one of the consumer protocol until now."""
    room.group.rebalance("its members changed", room.now_s)
    return OK


EVENTS: Mapping[str, Event] = {
    "a member comes": asks(lambda room: room.join(new="c")),
    "a member asks for its id": asks(lambda room: room.join(new="c", version=4)),
    "a member comes with an id that nobody gave it": asks(lambda room: room.join("c", version=4)),
    "a static member comes": asks(lambda room: room.join(new="c", instance="i", version=5)),
    "the leader joins again": asks(lambda room: room.join("a")),
    "a follower joins again": asks(lambda room: room.join("b")),
    "a follower joins with other topics": asks(lambda room: room.join("b", protocols=OTHER)),
    "somebody joins with nothing in common": asks(lambda room: room.join(protocols=(("sticky", b""),))),
    "the leader assigns": asks(lambda room: room.sync("a", ("a", b"1"), ("b", b"2"))),
    "a follower asks for its assignment": asks(lambda room: room.sync("b")),
    "a stranger asks for its assignment": asks(lambda room: room.sync("c")),
    "somebody asks for the assignment of another generation": asks(lambda room: room.sync("b", generation=7)),
    "a heartbeat": lambda room: room.heartbeat("b"),
    "a stranger's heartbeat": lambda room: room.heartbeat("c"),
    "a heartbeat of another generation": lambda room: room.heartbeat("b", generation=7),
    "the leader leaves": lambda room: room.leave("a")[0],
    "a follower leaves": lambda room: room.leave("b")[0],
    "all leave": lambda room: room.leave("a", "b")[0],
    "a stranger leaves": lambda room: room.leave("c")[0],
    "a member commits": lambda room: room.commit("b"),
    "a tool commits": lambda room: room.commit(generation=-1),
    "the coordinator wants a rebalance": want_rebalance,
    "nobody is heard of for a rebalance time-out": lambda room: wait_for_all(room, "a", "b"),
    "the rebalance time-out goes by with heartbeats": lambda room: wait_for_all(room),
}

EXPECTED: Mapping[str, Mapping[ClassicGroupState, tuple[Told, ClassicGroupState]]] = {
    "a member comes": {
        EMPTY: (WAITS, PREPARING),
        PREPARING: (WAITS, PREPARING),
        COMPLETING: (WAITS, PREPARING),
        STABLE: (WAITS, PREPARING),
    },
    "a member asks for its id": {
        EMPTY: (KNOWN_ID, EMPTY),
        PREPARING: (KNOWN_ID, PREPARING),
        COMPLETING: (KNOWN_ID, COMPLETING),
        STABLE: (KNOWN_ID, STABLE),
    },
    "a member comes with an id that nobody gave it": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (UNKNOWN, PREPARING),
        COMPLETING: (UNKNOWN, COMPLETING),
        STABLE: (UNKNOWN, STABLE),
    },
    "a static member comes": {
        EMPTY: (WAITS, PREPARING),
        PREPARING: (WAITS, PREPARING),
        COMPLETING: (WAITS, PREPARING),
        STABLE: (WAITS, PREPARING),
    },
    "the leader joins again": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (WAITS, PREPARING),
        COMPLETING: (OK, COMPLETING),
        STABLE: (WAITS, PREPARING),
    },
    "a follower joins again": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (OK, COMPLETING),
        COMPLETING: (OK, COMPLETING),
        STABLE: (OK, STABLE),
    },
    "a follower joins with other topics": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (OK, COMPLETING),
        COMPLETING: (WAITS, PREPARING),
        STABLE: (WAITS, PREPARING),
    },
    "somebody joins with nothing in common": {
        EMPTY: (WAITS, PREPARING),
        PREPARING: (ErrorCode.inconsistent_group_protocol, PREPARING),
        COMPLETING: (ErrorCode.inconsistent_group_protocol, COMPLETING),
        STABLE: (ErrorCode.inconsistent_group_protocol, STABLE),
    },
    "the leader assigns": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (REJOIN, PREPARING),
        COMPLETING: (OK, STABLE),
        STABLE: (OK, STABLE),
    },
    "a follower asks for its assignment": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (REJOIN, PREPARING),
        COMPLETING: (WAITS, COMPLETING),
        STABLE: (OK, STABLE),
    },
    "a stranger asks for its assignment": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (UNKNOWN, PREPARING),
        COMPLETING: (UNKNOWN, COMPLETING),
        STABLE: (UNKNOWN, STABLE),
    },
    "somebody asks for the assignment of another generation": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (ILLEGAL, PREPARING),
        COMPLETING: (ILLEGAL, COMPLETING),
        STABLE: (ILLEGAL, STABLE),
    },
    "a heartbeat": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (REJOIN, PREPARING),
        COMPLETING: (OK, COMPLETING),
        STABLE: (OK, STABLE),
    },
    "a stranger's heartbeat": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (UNKNOWN, PREPARING),
        COMPLETING: (UNKNOWN, COMPLETING),
        STABLE: (UNKNOWN, STABLE),
    },
    "a heartbeat of another generation": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (ILLEGAL, PREPARING),
        COMPLETING: (ILLEGAL, COMPLETING),
        STABLE: (ILLEGAL, STABLE),
    },
    "the leader leaves": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (OK, PREPARING),
        COMPLETING: (OK, PREPARING),
        STABLE: (OK, PREPARING),
    },
    "a follower leaves": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (OK, COMPLETING),
        COMPLETING: (OK, PREPARING),
        STABLE: (OK, PREPARING),
    },
    "all leave": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (OK, EMPTY),
        COMPLETING: (OK, EMPTY),
        STABLE: (OK, EMPTY),
    },
    "a stranger leaves": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (UNKNOWN, PREPARING),
        COMPLETING: (UNKNOWN, COMPLETING),
        STABLE: (UNKNOWN, STABLE),
    },
    "a member commits": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (OK, PREPARING),
        COMPLETING: (REJOIN, COMPLETING),
        STABLE: (OK, STABLE),
    },
    "a tool commits": {
        EMPTY: (OK, EMPTY),
        PREPARING: (UNKNOWN, PREPARING),
        COMPLETING: (UNKNOWN, COMPLETING),
        STABLE: (UNKNOWN, STABLE),
    },
    "the coordinator wants a rebalance": {
        EMPTY: (OK, EMPTY),
        PREPARING: (OK, PREPARING),
        COMPLETING: (OK, PREPARING),
        STABLE: (OK, PREPARING),
    },
    "nobody is heard of for a rebalance time-out": {
        EMPTY: (OK, EMPTY),
        # "a" waits for "b", which goes; then nobody hears of "a" any more, which was told of the generation.
        PREPARING: (OK, EMPTY),
        # "a" goes, so "b" is asked to join again, and does not.
        COMPLETING: (OK, EMPTY),
        STABLE: (OK, EMPTY),
    },
    "the rebalance time-out goes by with heartbeats": {
        EMPTY: (OK, EMPTY),
        # "b" did not join again.
        PREPARING: (OK, COMPLETING),
        # "a" did not assign: "b" is asked to join again.
        COMPLETING: (OK, PREPARING),
        STABLE: (OK, STABLE),
    },
}


def test_the_table_is_complete() -> None:
    assert {(event, state) for event, row in EXPECTED.items() for state in row} == {
        (event, state) for event in EVENTS for state in ClassicGroupState
    }


@pytest.mark.parametrize("state", list(ClassicGroupState), ids=lambda state: state.value)
@pytest.mark.parametrize("event", list(EVENTS))
def test_each_event_in_each_state(state: ClassicGroupState, event: str) -> None:
    room = ROOMS[state]()
    assert room.is_in(state)
    generation = room.group.generation
    told = EVENTS[event](room)
    assert (told, room.group.state) == EXPECTED[event][state]
    assert room.group.generation >= generation
